"""Metropolis moves: the draws of a walk, which moves it keeps, and the best that it meets (Metropolis et al. 1953)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..base.arrays import FloatArray
from .jit import inlined


class Walk(NamedTuple):
    """Moves at one temperature."""

    temperature: float  # A move is kept if what is minimised stays under its present value times `u ** -temperature`
    draws: FloatArray  # shape `(moves, columns)`, uniform: a row per move, each of which is one evaluation
    found: FloatArray  # shape `(2,)`: the least excess over the memory limit, and the task's value there
    kept: Any  # arrays of the kernel to which the best is written, whose price `found` is
    places: Any  # where ops may be, and which go together


@inlined
def tolerated(temperature: float, draw: float) -> float:
    """Return by how much a move may raise the objective at most, as Metropolis accepts it."""
    rise: float = -temperature * math.log(max(draw, 1e-300))
    return rise


@inlined
def bar_of(energy: float, temperature: float, draw: float) -> Any:
    """Return the largest cost of an accepted move: the logarithm of a cost counts, not the cost."""
    return energy * math.exp(tolerated(temperature, 1.0 - draw))


@inlined
def is_better(walk: Walk, excess: int, value: float) -> bool:
    """Whether a schedule is better than the best that a walk met, by the excess, then by the value; notes it then."""
    found = walk.found
    better: bool = excess < found[0] or (excess == found[0] and value < found[1])
    if better:
        found[0], found[1] = excess, value
    return better


@inlined
def seed_of(draw: float) -> Any:
    """Return a seed, an unsigned integer of 64 bits, from a uniform draw: a move may then need any number of them."""
    return np.uint64(np.int64(draw * 2.0**53))


@inlined
def uniform(seed: Any, index: int) -> float:
    """Return a number from 0 to 1, 1 left out: the output function of SplitMix64 (Steele, Lea and Flood 2014)."""
    mixed = (seed + np.uint64(index)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.float64(mixed >> np.uint64(11)) * 2.0**-53
