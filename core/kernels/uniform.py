"""Uniform numbers within kernels: a function of a seed and an index, so that a move may need any number of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import inlined


@inlined
def seed_of(draw: float) -> Any:
    """Return a seed, an unsigned integer of 64 bits, from a uniform draw."""
    return np.uint64(np.int64(draw * 2.0**53))


@inlined
def uniform(seed: Any, index: int) -> float:
    """Return a number from 0 to 1, 1 left out: the output function of SplitMix64 (Steele, Lea and Flood 2014)."""
    mixed = (seed + np.uint64(index)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.float64(mixed >> np.uint64(11)) * 2.0**-53
