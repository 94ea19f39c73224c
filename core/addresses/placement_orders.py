"""First fit in many orders: the usual ones, then those in which what ends too high is placed earlier."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT64_MAX, IndexArray
from ..kernels.first_fit import first_fit, new_placing
from .lifetimes import Lifetimes

SQUEAKY_SHARE = 0.5
"""Of the time, for jumps out of where single moves cannot lead."""


class PlacementOrders:
    """First fit of lifetimes, with the best offsets found so far."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self.lifetimes = lifetimes
        self.placing = new_placing(lifetimes.lower, lifetimes.upper, lifetimes.size, lifetimes.alignment)
        self.order = np.arange(len(lifetimes), dtype=np.int32)
        self.offsets = np.zeros(len(lifetimes), np.int64)
        self.highest = INT64_MAX
        for order in usual_orders(lifetimes):
            if self.highest > lifetimes.live:
                self._place(order, self.highest)

    def improve(self, rng: np.random.Generator, deadline: float) -> None:
        """Try other orders until none is needed or time ends."""
        now = time.monotonic()
        self._squeak(rng, now + SQUEAKY_SHARE * (deadline - now))
        self._climb(rng, deadline)

    def _is_done(self, deadline: float) -> bool:
        return self.highest <= self.lifetimes.live or time.monotonic() >= deadline

    def _place(self, order: IndexArray, limit: int) -> int:
        """Place in an order, up to a limit; keep what is best, on a tie the last."""
        highest = int(first_fit(self.placing, order, limit))
        if highest <= self.highest and highest <= limit:
            self.highest, self.order = highest, order
            self.offsets[:] = self.placing.offsets
        return highest

    def _squeak(self, rng: np.random.Generator, deadline: float) -> None:
        order, size = self.order, self.lifetimes.size
        rank = np.empty(len(order))
        self._place(order, INT64_MAX)
        while not self._is_done(deadline):
            blamed = np.flatnonzero(self.placing.offsets + size > self.lifetimes.live)
            rank[order] = np.arange(len(order))
            rank[blamed] -= rng.random(len(blamed)) * len(order) * rng.random()
            order = np.argsort(rank, kind="stable").astype(np.int32)
            self._place(order, INT64_MAX)

    def _climb(self, rng: np.random.Generator, deadline: float) -> None:
        lower, upper = self.lifetimes.lower, self.lifetimes.upper
        while not self._is_done(deadline):
            highest = np.flatnonzero(self.offsets + self.lifetimes.size == self.highest)
            piece = int(rng.choice(highest))
            place = int(np.flatnonzero(self.order == piece)[0])
            before = self.order[:place]
            beside = np.flatnonzero((lower[before] < upper[piece]) & (lower[piece] < upper[before]))
            if not len(beside):
                return
            target = int(rng.choice(beside))
            order = self.order.copy()
            if rng.random() < 0.5:
                order[[target, place]] = order[[place, target]]
            else:
                order[target + 1 : place + 1] = self.order[target:place]
                order[target] = piece
            self._place(order, self.highest)


def usual_orders(lifetimes: Lifetimes) -> list[NDArray[np.int32]]:
    """Return the orders tried first: by size, in three ways, by size times duration, by duration, by start, by end."""
    size, duration = lifetimes.size, lifetimes.upper - lifetimes.lower
    area = size.astype(np.float64) * duration
    start, end = lifetimes.lower, lifetimes.upper
    keys = [(-duration, -size), (start, -size), (-end, -size), (-size, -area), (-size, -duration), (-size, start)]
    keys.append((-size, -end))
    return [np.lexsort(key).astype(np.int32) for key in keys]
