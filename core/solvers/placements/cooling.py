"""What an annealing may spend, along which it cools, and how many moves it makes between two looks at the clock."""

from __future__ import annotations

import math
import time

from ...search.search import Search

OPS_PER_CALL = 50_000
MOST_MOVES_PER_CALL = 2000
LEAST_CALLS = 20
LEAD_OF_COUNT = 0.2
"""Of the time: so much passes before evaluations that do not fit in it end with it. Those that fit never notice it."""


class Cooling:
    """A share of what is left of a search's budget."""

    def __init__(self, search: Search, share: float = 1.0) -> None:
        self.search = search
        self.first_evaluation, self.started = search.evaluations, time.monotonic()
        self.evaluations, self.seconds = share * search.evaluations_left, share * search.seconds_left()

    def progress(self) -> float:
        """Return the part that is spent: of the evaluations, or of the time if they are unlimited or do not fit."""
        search = self.search
        passed, whole = time.monotonic() - self.started, self.seconds
        by_time = passed / whole if whole > 0 else 1.0
        if self.evaluations < math.inf:
            done, whole = search.evaluations - self.first_evaluation, self.evaluations
            by_count = done / whole if whole > 0 else 1.0
            by_time = (by_time - LEAD_OF_COUNT) / (1 - LEAD_OF_COUNT)
            if by_time <= by_count:
                return min(1.0, by_count)
        search.steered_by_time()
        return min(1.0, by_time)

    def moves(self, ops: int) -> int:
        """Return how many moves the next call of a kernel makes, on a graph of so many ops."""
        few = max(1.0, self.evaluations / LEAST_CALLS)
        return int(min(MOST_MOVES_PER_CALL, max(1, OPS_PER_CALL // max(1, ops)), few, self.search.evaluations_left))
