"""How an annealing of the makespan heeds the memory limit: what an excess weighs, and how often it is looked for."""

from __future__ import annotations

from collections.abc import Callable

from ...search.plans import EXCESS_WEIGHT

HEAVIER, LIGHTER, HEAVIEST = 1.5, 0.9, 1e6
RISE = 1e5
"""How much heavier an excess gets by and by, if it lasts the whole annealing."""

LEAST_UNCHECKED, MOST_UNCHECKED, PAUSE = 8, 2000, 8
"""How few and how many moves go unchecked at once, and how often none do once the fewest were taken back."""

Weighing = Callable[[float, bool, float], float]
"""The next weight, of the present one, whether the limit is exceeded, and the part of the annealing that has passed."""


def at_once(weight: float, is_exceeded: bool, passed: float = 0.0) -> float:
    """Return a weight that soon forbids an excess, and is never light."""
    return min(max(EXCESS_WEIGHT, weight * (HEAVIER if is_exceeded else LIGHTER)), HEAVIEST)


def by_and_by(weight: float, is_exceeded: bool, passed: float) -> float:
    """Return a weight that rises evenly while there is an excess, and falls as fast while there is none."""
    factor = float(RISE**passed)
    return min(weight * factor if is_exceeded else weight / factor, HEAVIEST)


class UncheckedMoves:
    """How many moves are made before their memory is looked at, which takes several times as long as their makespan.

    While the limit is kept some are, and all of them are taken back if it no longer is. There are twice as many each
    time that it still is, else half as many; if they were the fewest, the memory of each move is looked at for a while.
    """

    def __init__(self, are_priced: bool) -> None:
        self.are_priced, self.size, self.pause, self.made, self.is_within = are_priced, LEAST_UNCHECKED, 0, 0, False

    def next(self) -> int:
        """Return how many moves are next, or 0 if the memory of each is looked at."""
        self.made = self.size if self.are_priced and self.is_within and not self.pause else 0
        self.pause = max(0, self.pause - 1)
        return self.made

    def keeps(self, is_within: bool) -> bool:
        """Whether the moves last made are kept, given whether the limit is after them."""
        is_kept = is_within or not self.made
        if not is_kept and self.size == LEAST_UNCHECKED:
            self.pause = PAUSE
        elif self.made:
            self.size = min(2 * self.size, MOST_UNCHECKED) if is_kept else self.size // 2
        self.is_within = is_within or not is_kept
        return is_kept
