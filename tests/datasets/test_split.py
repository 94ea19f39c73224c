"""Splits by size (REGAL A.1.2)."""

from collections import Counter

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.datasets.folder import parse_ratio, split_by_size


def graphs(count):
    return [((7 * i) % count + 10, f"{i:016x}") for i in range(count)]


def test_each_group_of_five_is_split_three_to_one_to_one():
    given = graphs(50)
    parts = split_by_size(given, (3, 1, 1), seed=0)
    ranked = [part for _, part in sorted(zip(given, parts, strict=True))]
    for start in range(0, 50, 5):
        assert Counter(ranked[start : start + 5]) == {"train": 3, "valid": 1, "test": 1}
    assert len({tuple(ranked[start : start + 5]) for start in range(0, 50, 5)}) > 3


@pytest.mark.parametrize(
    ("count", "ratio", "shares"),
    [
        (1, (3, 1, 1), (1, 0, 0)),
        (2, (3, 1, 1), (1, 1, 0)),
        (3, (3, 1, 1), (2, 1, 0)),
        (4, (3, 1, 1), (2, 1, 1)),
        (7, (3, 1, 1), (4, 2, 1)),
        (10, (80, 10, 10), (8, 1, 1)),
        (105, (80, 10, 10), (84, 11, 10)),
        (6, (1, 0, 1), (3, 0, 3)),
        (5, (2, 0, 0), (5, 0, 0)),
    ],
)
def test_a_last_group_that_is_not_full_is_shared_out_close_to_the_ratio(count, ratio, shares):
    parts = Counter(split_by_size(graphs(count), ratio, seed=3))
    assert (parts["train"], parts["valid"], parts["test"]) == shares


def test_ratios_are_parsed():
    assert parse_ratio("3-1-1") == (3, 1, 1)
    assert parse_ratio("80-0-20") == (80, 0, 20)
    for wrong in ("3-1", "3:1:1", "0-1-1", "a-b-c", "3-1-1-1", "-3-1-1"):
        with pytest.raises(UsageError, match="write train-valid-test like 3-1-1"):
            parse_ratio(wrong)
