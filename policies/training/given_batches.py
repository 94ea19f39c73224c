"""Batches of given things: all in a random order, then again in another one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ...core.base.arrays import IntArray

Given = TypeVar("Given")


def given_batches(
    examples: Sequence[Given], seed: int, epoch: int, ranges: Sequence[range]
) -> Generator[list[Given], None, None]:
    """Yield batches of what is given."""
    count = len(examples)
    for indices in ranges:
        places = (divmod(index, count) for index in indices)
        yield [examples[_shuffled(count, seed, epoch, turn)[place]] for turn, place in places]


@lru_cache(maxsize=1)
def _shuffled(count: int, seed: int, epoch: int, turn: int) -> IntArray:
    return np.random.default_rng([seed, epoch, turn]).permutation(count)
