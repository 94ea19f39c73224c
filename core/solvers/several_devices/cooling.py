"""What an annealing may spend, along which it cools, and how many moves it makes between two looks at the clock."""

from __future__ import annotations

import math
import time

from ...search.search import Search

OPS_PER_CALL = 50_000
MOST_MOVES_PER_CALL = 2000
LEAST_CALLS = 20


class Cooling:
    """A share of what is left of a search's budget.

    Parameters
    ----------
    search
        Whose budget it is; it depends on the time from then on if its evaluations are unlimited.
    share
        Of the evaluations and of the time that are left; by default all.
    """

    def __init__(self, search: Search, share: float = 1.0) -> None:
        self.search = search
        self.first_evaluation, self.started = search.evaluations, time.monotonic()
        self.evaluations, self.seconds = share * search.evaluations_left, share * search.seconds_left()

    def progress(self) -> float:
        """Return the part that is spent: of the evaluations, or of the time if these are unlimited."""
        if self.evaluations < math.inf:
            done, whole = self.search.evaluations - self.first_evaluation, self.evaluations
        else:
            done, whole = time.monotonic() - self.started, self.seconds
            self.search.depends_on_time = True
        return min(1.0, done / whole) if whole > 0 else 1.0

    def moves(self, ops: int) -> int:
        """Return how many moves the next call of a kernel makes, on a graph of so many ops."""
        few = max(1.0, self.evaluations / LEAST_CALLS)
        return int(min(MOST_MOVES_PER_CALL, max(1, OPS_PER_CALL // max(1, ops)), few, self.search.evaluations_left))
