"""Speed: of this machine, for work that nothing interrupts and that must fit in the time left; and of many objects."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

_NUMBERS, _ROUNDS = 8192, 5


def seconds_for(numbers: float) -> float:
    """Return about how long work takes that is as much as sorting so many numbers in short arrays."""
    return numbers * _seconds_per_number()


@cache
def _seconds_per_number() -> float:
    """Sort some numbers several times, and return the time of one where others disturb least."""
    drawn, least = np.random.default_rng(0).random(_NUMBERS), float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        np.argsort(drawn, kind="stable")
        least = min(least, time.perf_counter() - start)
    return least / _NUMBERS


@contextmanager
def without_gc() -> Iterator[None]:
    """Look for no garbage meanwhile: where millions of objects are made that all stay, that is a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
