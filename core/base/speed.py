"""Speed of this machine, measured once: for work that nothing interrupts, and that must fit in the time left."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

_NUMBERS, _ROUNDS = 8192, 5


def seconds_for(numbers: float) -> float:
    """Return about how long work takes that is as much as sorting so many numbers in short arrays."""
    return numbers * _seconds_per_number()


@cache
def _seconds_per_number() -> float:
    """Sort some numbers several times, and return what one takes where others disturb least."""
    drawn, least = np.random.default_rng(0).random(_NUMBERS), float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        np.argsort(drawn, kind="stable")
        least = min(least, time.perf_counter() - start)
    return least / _NUMBERS
