"""One annealing: share of the budget, temperatures, moves, weight of an excess (Kirkpatrick, Gelatt, Vecchi 1983)."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernels.metropolis import Walk
from ..search.plans import EXCESS_WEIGHT
from ..search.search import Search

OPS_PER_CALL = 50_000
MOST_MOVES_PER_CALL = 2000
LEAST_CALLS = 20
# Of the time: so much passes before evaluations that do not fit in it end with it. Those that fit never notice it.
LEAD_OF_COUNT = 0.2
RISE, FALL, MOST = 1.5, 0.9, 1e6


class Annealing:
    """An annealing in a share of the rest of a search's budget."""

    def __init__(self, search: Search, share: float = 1.0) -> None:
        self.search = search
        self.first_evaluation, self.started = search.evaluations, time.monotonic()
        self.evaluations, self.seconds = share * search.evaluations_left, share * search.seconds_left()
        self.part, self.made, self._start = 0.0, 0, 0.0  # part of a cooling that has passed, and moves made in it

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

    def passed(self) -> float:
        """Return the spent part of the budget that was left when the cooling began."""
        return (self.progress() - self._start) / max(1e-9, 1.0 - self._start)

    def temperatures(self, hot: float, cold: float, *, share: float = 1.0, moves: float = math.inf) -> Iterator[float]:
        """Begin a cooling; return its temperatures until a share of the rest is spent, or that many moves made."""
        self._start, self.made = self.progress(), 0
        return self._temperatures(hot, cold, share, moves)

    def _temperatures(self, hot: float, cold: float, share: float, moves: float) -> Iterator[float]:
        while self.made < moves and (passed := self.passed()) < share and not self.search.exhausted():
            self.part = max(self.made / moves, passed / share)
            yield hot * (cold / hot) ** self.part

    def moves(self, ops: int) -> int:
        """Return how many moves the next call of a kernel makes, each of which prices so many ops."""
        few = max(1.0, self.evaluations / LEAST_CALLS)
        return int(min(MOST_MOVES_PER_CALL, max(1, OPS_PER_CALL // max(1, ops)), few, self.search.evaluations_left))

    def affordable(self) -> float:
        """Return how many moves its share is enough for, by the evaluations and by the time of those made so far."""
        if not self.made or self.seconds == math.inf:
            return self.evaluations
        by_time = self.seconds * self.made / max(1e-6, time.monotonic() - self.started)
        if by_time < self.evaluations:
            self.search.steered_by_time()
        return min(self.evaluations, by_time)

    def walk(self, temperature: float, draws: tuple[int, int], kept: Any, places: Any, best: Any = None) -> Walk:
        """Return moves to make, drawn uniformly; their finds count from a fitness on, the best by default."""
        excess, value = best or self.search.best_fitness
        found = np.array([min(excess, 2**62), value], np.float64)
        return Walk(temperature, self.search.rng.random(draws), found, kept, places)

    def spend(self, walk: Walk, evaluations: float | None = None) -> bool:
        """Count the moves of a walk; return whether it found a schedule better than the best."""
        self.made += len(walk.draws)
        self.search.spend(len(walk.draws) if evaluations is None else evaluations)
        excess, value = self.search.best_fitness
        return bool(tuple(walk.found) < (min(excess, 2**62), value))


def reweighed(
    weight: float, over: bool, rise: float = RISE, fall: float = FALL, least: float = EXCESS_WEIGHT, most: float = MOST
) -> float:
    """Return the next weight of an excess: it rises while a limit is exceeded, and falls while it is kept."""
    return min(max(least, weight * (rise if over else fall)), most)
