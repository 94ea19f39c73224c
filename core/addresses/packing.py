"""Offsets for lifetimes in an arena as small as possible: first fit in many orders, and then branch and bound."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT64_MAX, IndexArray, IntArray, frozen
from ..base.errors import UsageError
from ..base.parallel import call_aside
from ..base.units import LARGEST_ALIGNMENT
from ..kernels.orders.order_memory import first_fit, first_fit_by_start, new_placing

DEFAULT_SECONDS = 3.0
LARGEST_SEARCHED = 6_000  # pieces: setting up branch and bound takes half a second
IMPROVED_SHARE, SEARCH_SHARE = 0.4, 0.4
PAIRS_AT_ONCE = 20_000_000  # of pieces looked at before it is asked whether to stop
TIMES_LATE = 2.0  # as late as branch and bound ended before, the next one may be twice
LATEST = 2**62


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Pieces of memory, arrays of shape `(pieces,)`; build them with `of`, which checks them."""

    lower: IntArray  # the first step that needs each, and the first after it that does not
    upper: IntArray
    size: IntArray  # bytes
    alignment: IntArray  # the offset of each is a multiple of it

    @staticmethod
    def of(lower: Any, upper: Any, size: Any, alignment: Any = 1, names: Sequence[str] = ()) -> Lifetimes:
        """Build from anything array-like; one alignment may stand for all, and names are those of each in errors."""
        given = [np.asarray(column) for column in (lower, upper, size)]
        given.append(np.broadcast_to(np.asarray(alignment), given[0].shape))
        if any(column.ndim != 1 or len(column) != len(given[0]) for column in given):
            shapes = ", ".join(str(column.shape) for column in given)
            raise UsageError(f"lifetimes have one lower, upper, size and alignment each, not the shapes {shapes}")
        if any(column.size and column.dtype.kind not in "iu" for column in given):
            raise UsageError("lifetimes, sizes and alignments are whole numbers of 64 bits")
        if any(column.size and int(column.max()) > INT64_MAX for column in given):
            raise UsageError("lifetimes, sizes and alignments are at most 2^63 - 1")
        lifetimes = Lifetimes(*(frozen(column, np.int64) for column in given))
        lifetimes._check(names)
        return lifetimes

    def _check(self, names: Sequence[str]) -> None:
        columns = zip(*(column.tolist() for column in (self.lower, self.upper, self.size, self.alignment)), strict=True)
        total = 0
        for place, (lower, upper, size, alignment) in enumerate(columns):
            name = names[place] if names else f"lifetime {place}"
            if not (lower >= -LATEST and upper <= LATEST):
                raise UsageError(f"{name} must be from -2^62 to 2^62, not from {lower} to {upper}")
            if lower >= upper:
                raise UsageError(f"{name} must end after it starts, not be from {lower} to {upper}")
            if size < 0:
                raise UsageError(f"{name} must not have a negative size, not {size}")
            if not 1 <= alignment <= LARGEST_ALIGNMENT:
                raise UsageError(f"{name} must have an alignment from 1 to 2^31, not {alignment}")
            total += size + alignment
        if total * math.lcm(*map(int, np.unique(self.alignment))) > INT64_MAX:
            raise UsageError(f"the {total:,} bytes of all lifetimes times their alignments exceed 2^63 - 1")

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def unit(self) -> int:
        """The unit of every offset and the arena: the greatest common divisor of the alignments."""
        return math.gcd(*map(int, np.unique(self.alignment))) or 1

    @cached_property
    def live(self) -> int:
        """The most bytes that live at once, each size rounded up to the unit; no arena is smaller."""
        moments, size = np.unique(np.concatenate((self.lower, self.upper))), rounded_up(self.size, self.unit)
        change = np.zeros(len(moments), np.int64)
        np.add.at(change, np.searchsorted(moments, self.lower), size)
        np.subtract.at(change, np.searchsorted(moments, self.upper), size)
        return int(np.cumsum(change).max(initial=0))


def rounded_up(sizes: NDArray[Any], unit: int) -> IntArray:
    """Return sizes as the least multiples of a unit that hold them."""
    rounded: IntArray = -(-sizes // unit) * unit
    return rounded


Stop: TypeAlias = Callable[[], bool]


def never() -> bool:
    """Let nothing stop a search but its time."""
    return False


def pack_lifetimes(
    lifetimes: Lifetimes, time_limit: float = DEFAULT_SECONDS, seed: int = 0, stop: Stop = never
) -> Packing:
    """Give every lifetime an offset, at a multiple of its alignment, so that none overlaps another of the same time."""
    deadline = time.monotonic() + time_limit
    packer = Packing(lifetimes, stop, deadline)
    packer.improve(IMPROVED_SHARE * (deadline - time.monotonic()), np.random.default_rng(seed))
    packer.search_targets(deadline - time.monotonic())
    return packer


def warm_up() -> None:
    """Compile the kernels."""
    PlacementOrders(Lifetimes.of([0], [1], [1])).improve(np.random.default_rng(0), 0.0)


class Packing:
    """Offsets of lifetimes, by first fit at once, and better the longer they are improved."""

    def __init__(self, lifetimes: Lifetimes, stop: Stop = never, deadline: float = math.inf) -> None:
        self.lifetimes, self.stop = lifetimes, stop
        self.orders = PlacementOrders(lifetimes, stop, deadline)
        self.unit = math.lcm(*map(int, np.unique(lifetimes.alignment)))
        self.offsets, self.highest = self.orders.offsets, self.orders.highest  # shape `(pieces,)`: bytes
        self.is_repeatable = not self.orders.is_stopped  # the same call gives the same offsets
        self._late, self._is_finished = 0.0, False

    @property
    def arena(self) -> int:
        """Bytes that the best offsets take, a multiple of the unit."""
        return -(-self.highest // self.lifetimes.unit) * self.lifetimes.unit if len(self.lifetimes) else 0

    @property
    def bound(self) -> int:
        """The most bytes that live at once, rounded up to the unit: no arena of these lifetimes is smaller."""
        return self.lifetimes.live

    @property
    def is_optimal(self) -> bool:
        """Whether the arena equals its bound."""
        return self.arena <= self.bound

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

    def _search(self, time_limit: float, threads: int) -> None:
        """Branch and bound, if there are not too many pieces."""
        time_limit -= TIMES_LATE * self._late
        if len(self.lifetimes) > LARGEST_SEARCHED or time_limit <= 0 or self.stop():
            return
        start = time.monotonic()
        found = call_aside(lambda: branch_and_bound(self.lifetimes, self.unit, time_limit, threads), self.stop)
        if found is None:
            return
        offsets, is_finished = found
        self._late = max(self._late, time.monotonic() - start - time_limit)
        self._keep(offsets)
        self._is_finished |= is_finished and self.unit == self.lifetimes.unit

    def _keep(self, offsets: IntArray) -> None:
        highest = int((offsets + self.lifetimes.size).max(initial=0))
        if highest < self.highest:
            self.offsets, self.highest = offsets.copy(), highest


# With so many threads, on however few processors, it searches below several targets at once, down to the bound
LADDER_THREADS = 12
FEW_PIECES = 500
OVERRUN = 0.85  # of the time given, for it ends late


def branch_and_bound(lifetimes: Lifetimes, unit: int, time_limit: float, threads: int) -> tuple[IntArray, bool]:
    """Return offsets, shape `(pieces,)`, and whether the search came to its end; it may take longer than it should."""
    from omnimalloc import Allocation  # loads matplotlib
    from omnimalloc.allocators.supermalloc import SupermallocAllocator

    sizes = rounded_up(lifetimes.size, unit) // unit
    held = np.flatnonzero(sizes)
    earliest = lifetimes.lower.min(initial=0)  # the engine's times begin at 0
    lower, upper = lifetimes.lower[held] - earliest, lifetimes.upper[held] - earliest
    if threads == 1 or len(held) > FEW_PIECES:
        lower, upper = cliques(lower, upper)
    rows = zip(*(column.tolist() for column in (sizes[held], lower, upper)), strict=True)
    pieces = tuple(Allocation(id=at, size=size, start=start, end=end) for at, (size, start, end) in enumerate(rows))
    found = SupermallocAllocator(timeout=OVERRUN * time_limit, num_threads=threads).solve(pieces)
    offsets = np.zeros(len(lifetimes), np.int64)
    for piece in found.allocations:
        assert piece.offset is not None
        offsets[held[int(piece.id)]] = piece.offset * unit
    return offsets, found.proved_optimal


def cliques(lower: IntArray, upper: IntArray) -> tuple[IntArray, IntArray]:
    """Return lifetimes that overlap just as these, counted in the largest sets of pieces that live at once."""
    starts, ends = np.sort(lower), np.sort(upper)
    complete = np.unique(ends[np.searchsorted(starts, ends) > np.searchsorted(starts, np.append(-(2**63), ends[:-1]))])
    return np.searchsorted(complete, lower, side="right"), np.searchsorted(complete, upper, side="right")


SQUEAKY_SHARE = 0.5  # of the time, for jumps out of where single moves cannot lead


class PlacementOrders:
    """First fit of lifetimes, with the best offsets found so far."""

    def __init__(self, lifetimes: Lifetimes, stop: Stop = never, deadline: float = math.inf) -> None:
        self.lifetimes, self.stop = lifetimes, stop
        self.placing = new_placing(lifetimes.lower, lifetimes.upper, lifetimes.size, lifetimes.alignment)
        self.order = np.arange(len(lifetimes), dtype=np.int32)
        self.offsets = np.zeros(len(lifetimes), np.int64)
        self.highest, self.is_stopped = INT64_MAX, False  # whether time ended the first orders
        by_start, *others = usual_orders(lifetimes)
        by_end = np.argsort(lifetimes.upper, kind="stable").astype(np.int32)
        edges = np.empty(2 * len(by_start) + 4, np.int64)
        self._keep(by_start, int(first_fit_by_start(self.placing, by_start, by_end, edges)))
        for order in others:
            if self.highest > lifetimes.live and not self.is_stopped:
                self._place(order, self.highest, deadline)

    def improve(self, rng: np.random.Generator, deadline: float) -> None:
        """Try other orders until none is needed or time ends."""
        now = time.monotonic()
        self._squeak(rng, now + SQUEAKY_SHARE * (deadline - now))
        self._climb(rng, deadline)

    def _is_done(self, deadline: float) -> bool:
        return self.highest <= self.lifetimes.live or time.monotonic() >= deadline or self.stop()

    def _place(self, order: IndexArray, limit: int, deadline: float) -> int:
        """Place in an order, up to a limit or a deadline."""
        highest, at_once = 0, 1 + PAIRS_AT_ONCE // max(1, len(order))
        for first in range(0, len(order), at_once):
            if first and (time.monotonic() >= deadline or self.stop()):
                self.is_stopped = True
                return INT64_MAX
            last = min(len(order), first + at_once)
            highest = int(first_fit(self.placing, order, limit, first, last))
            if highest > limit:
                return highest
        self._keep(order, highest)
        return highest

    def _keep(self, order: IndexArray, highest: int) -> None:
        """Keep what is placed if it is the best, on a tie the last."""
        if highest <= self.highest:
            self.highest, self.order = highest, order
            self.offsets[:] = self.placing.offsets

    def _squeak(self, rng: np.random.Generator, deadline: float) -> None:
        order, size = self.order, self.lifetimes.size
        rank = np.empty(len(order))
        self._place(order, INT64_MAX, deadline)
        while not self._is_done(deadline):
            blamed = np.flatnonzero(self.placing.offsets + size > self.lifetimes.live)
            rank[order] = np.arange(len(order))
            rank[blamed] -= rng.random(len(blamed)) * len(order) * rng.random()
            order = np.argsort(rank, kind="stable").astype(np.int32)
            self._place(order, INT64_MAX, deadline)

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
            self._place(order, self.highest, deadline)


def usual_orders(lifetimes: Lifetimes) -> list[NDArray[np.int32]]:
    """Return the orders tried first: by start, by size, in three ways, by size times duration, by duration, by end."""
    size, duration = lifetimes.size, lifetimes.upper - lifetimes.lower
    area = size.astype(np.float64) * duration
    start, end = lifetimes.lower, lifetimes.upper
    keys = [(-size, start), (-duration, -size), (start, -size), (-end, -size), (-size, -area), (-size, -duration)]
    keys.append((-size, -end))
    return [np.lexsort(key).astype(np.int32) for key in keys]
