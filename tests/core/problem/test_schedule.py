"""The schedule: what it can be made of."""

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.core.problem.schedule import Schedule


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1], [0], [0, 0]), r"a number per step, not the shapes \(2,\), \(1,\), \(2,\)"),
        (([[0, 1]], [[0, 0]], [[0, 0]]), "a number per step"),
        (([0.5, 1.7], [0, 0], [0, 0]), "whole numbers of 32 bits"),
        (([0, 2**40], [0, 0], [0, 0]), "whole numbers of 32 bits"),
        (([0, 2**80], [0, 0], [0, 0]), "whole numbers of 32 bits"),
        ((["a"], [0], [0]), "whole numbers of 32 bits"),
    ],
)
def test_steps_are_columns_of_whole_numbers(columns, message):
    with pytest.raises(UsageError, match=message):
        Schedule.from_steps(*columns)


def test_no_steps_are_a_schedule():
    assert len(Schedule.from_steps([], [], [])) == 0
