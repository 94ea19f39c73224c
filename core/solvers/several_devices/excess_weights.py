"""What bytes beyond the memory limit weigh against the makespan, as an annealing goes on."""

from __future__ import annotations

from collections.abc import Callable

from .lazy_keys import EXCESS_WEIGHT

HEAVIER, LIGHTER, HEAVIEST = 1.5, 0.9, 1e6
RISE = 1e5
"""How much heavier an excess gets by and by, if it lasts the whole annealing."""

Weighing = Callable[[float, bool, float], float]
"""The next weight, of the present one, whether the limit is exceeded, and the part of the annealing that has passed."""


def at_once(weight: float, is_exceeded: bool, passed: float = 0.0) -> float:
    """Return a weight that soon forbids an excess, and is never light."""
    return min(max(EXCESS_WEIGHT, weight * (HEAVIER if is_exceeded else LIGHTER)), HEAVIEST)


def by_and_by(weight: float, is_exceeded: bool, passed: float) -> float:
    """Return a weight that rises evenly while there is an excess, and falls as fast while there is none."""
    factor = float(RISE**passed)
    return min(weight * factor if is_exceeded else weight / factor, HEAVIEST)
