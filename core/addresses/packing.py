"""Offsets for lifetimes, so that the arena is as small as it can be made in the time given."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from ..base.arrays import IntArray, frozen
from .engine import LADDER_THREADS, branch_and_bound
from .lifetimes import Lifetimes, rounded_up
from .placement_orders import PlacementOrders

DEFAULT_SECONDS = 3.0
LARGEST_SEARCHED = 6_000  # pieces: setting up branch and bound takes half a second
IMPROVED_SHARE, SEARCH_SHARE = 0.4, 0.4
TIMES_LATE = 2.0  # as late as branch and bound ended before, the next one may be twice


@dataclass(frozen=True, eq=False)
class Packing:
    """Offsets of lifetimes, and what they take.

    Parameters
    ----------
    lifetimes
        What was packed.
    offsets
        Shape `(pieces,)`: bytes from the start of the arena.
    arena
        Bytes that hold all of them, a multiple of the lifetimes' unit.
    is_repeatable
        Whether the same call gives the same offsets: not if time ended the search.
    """

    lifetimes: Lifetimes
    offsets: IntArray
    arena: int
    is_repeatable: bool = True

    @property
    def bound(self) -> int:
        """The most bytes that live at once, rounded up to the unit: no arena of these lifetimes is smaller."""
        return self.lifetimes.live

    @property
    def is_optimal(self) -> bool:
        """Whether the arena equals its bound."""
        return self.arena == self.bound


def pack_lifetimes(lifetimes: Lifetimes, time_limit: float = DEFAULT_SECONDS, seed: int = 0) -> Packing:
    """Give every lifetime an offset, at a multiple of its alignment, so that none overlaps another of the same time."""
    deadline = time.monotonic() + time_limit
    packer = Packer(lifetimes)
    packer.improve(IMPROVED_SHARE * time_limit, np.random.default_rng(seed))
    packer.search_targets(deadline - time.monotonic())
    return packer.packing()


def warm_up() -> None:
    """Compile the kernels."""
    PlacementOrders(Lifetimes.of([0], [1], [1]))


class Packer:
    """A packing in the making: what first fit gives at once, and better the longer it is improved."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self.lifetimes = lifetimes
        self.orders = PlacementOrders(lifetimes)
        self.unit = math.lcm(*map(int, np.unique(lifetimes.alignment)))
        self.offsets, self.highest = self.orders.offsets, self.orders.highest
        self.is_repeatable = True
        self._late, self._is_finished = 0.0, False

    @property
    def arena(self) -> int:
        """Bytes that the best offsets take, a multiple of the unit."""
        return int(rounded_up(np.array([self.highest]), self.lifetimes.unit)[0]) if len(self.lifetimes) else 0

    @property
    def is_optimal(self) -> bool:
        """Whether the arena equals its bound."""
        return self.arena <= self.lifetimes.live

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be found: the arena equals its bound, or branch and bound came to its end."""
        return self.is_optimal or self._is_finished

    def improve(self, time_limit: float, rng: np.random.Generator) -> None:
        """Go on for so many seconds, or until the bound is met."""
        deadline = time.monotonic() + time_limit
        if not self.is_done:
            self._search(SEARCH_SHARE * time_limit, threads=1)
        if self.is_done:
            return
        self.is_repeatable = False
        self.orders.improve(rng, deadline)
        self._keep(self.orders.offsets)

    def search_targets(self, time_limit: float) -> None:
        """Search below several targets at once for so many seconds, or until the bound is met; it often ends late."""
        if not self.is_done:
            self.is_repeatable = False
            self._search(time_limit, LADDER_THREADS)

    def packing(self) -> Packing:
        """Return the best so far."""
        return Packing(self.lifetimes, frozen(self.offsets, np.int64), self.arena, self.is_repeatable)

    def _search(self, time_limit: float, threads: int) -> None:
        """Branch and bound, if there are not too many pieces."""
        time_limit -= TIMES_LATE * self._late
        if len(self.lifetimes) > LARGEST_SEARCHED or time_limit <= 0:
            return
        start = time.monotonic()
        offsets, is_finished = branch_and_bound(self.lifetimes, self.unit, time_limit, threads)
        self._late = max(self._late, time.monotonic() - start - time_limit)
        self._keep(offsets)
        self._is_finished |= is_finished and self.unit == self.lifetimes.unit

    def _keep(self, offsets: IntArray) -> None:
        highest = int((offsets + self.lifetimes.size).max(initial=0))
        if highest < self.highest:
            self.offsets, self.highest = offsets.copy(), highest
