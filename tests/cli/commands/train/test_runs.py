"""The lines of progress: how long a run still takes, in the unit that fits."""

import math

import pytest
from schedopt.cli.commands.train.network import _left


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, []),
        (math.inf, []),
        (0.4, ["about 0 s left"]),
        (99, ["about 99 s left"]),
        (100, ["about 2 min left"]),
        (5990, ["about 100 min left"]),
        (6001, ["about 1.7 h left"]),
        (360_000, ["about 100.0 h left"]),
    ],
)
def test_the_rest_is_in_seconds_minutes_or_hours(seconds, text):
    assert _left(seconds) == text
