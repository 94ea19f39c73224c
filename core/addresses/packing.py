"""Offsets for lifetimes, so that the arena is as small as it can be made in the time given."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from omnimalloc import Allocation
from omnimalloc.allocators.supermalloc import SupermallocAllocator

from ..arrays import IntArray, frozen
from .lifetimes import Lifetimes, rounded_up

DEFAULT_SECONDS = 3.0


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


def pack_lifetimes(lifetimes: Lifetimes, time_limit: float = DEFAULT_SECONDS) -> Packing:
    """Give every lifetime an offset, at a multiple of its alignment, so that none overlaps another of the same time.

    Parameters
    ----------
    lifetimes
        What is needed when.
    time_limit
        Seconds; the search ends before as soon as the arena equals its bound.
    """
    unit = math.lcm(*map(int, np.unique(lifetimes.alignment)))
    best = _packed(lifetimes, unit, time_limit)
    if unit > lifetimes.unit:
        first_fit = _packing(lifetimes, _first_fit(lifetimes), best.is_repeatable)
        best = min(best, first_fit, key=lambda packing: packing.arena)
    return best


def _packed(lifetimes: Lifetimes, unit: int, time_limit: float) -> Packing:
    """Pack with sizes rounded up to a unit, in whose multiples every offset is."""
    sizes = rounded_up(lifetimes.size, unit) // unit
    held = np.flatnonzero(sizes)
    columns = (held, sizes[held], lifetimes.lower[held], lifetimes.upper[held])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    pieces = tuple(Allocation(id=place, size=size, start=start, end=end) for place, size, start, end in rows)
    found = SupermallocAllocator(timeout=time_limit, num_threads=1).solve(pieces)
    offsets = np.zeros(len(lifetimes), np.int64)
    for piece in found.allocations:
        assert piece.offset is not None
        offsets[piece.id] = piece.offset * unit
    return _packing(lifetimes, offsets, found.proved_optimal)


def _packing(lifetimes: Lifetimes, offsets: IntArray, is_repeatable: bool) -> Packing:
    ends = offsets + lifetimes.size
    arena = int(rounded_up(ends[lifetimes.size > 0], lifetimes.unit).max(initial=0))
    return Packing(lifetimes, frozen(offsets, np.int64), arena, is_repeatable)


def _first_fit(lifetimes: Lifetimes) -> IntArray:
    """Place the largest first, each at the lowest multiple of its own alignment that is free all its life."""
    offsets = np.zeros(len(lifetimes), np.int64)
    order = np.lexsort((-(lifetimes.upper - lifetimes.lower), -lifetimes.size))
    placed: list[int] = []
    for piece in order.tolist():
        size, alignment = int(lifetimes.size[piece]), int(lifetimes.alignment[piece])
        if not size:
            continue
        others = np.array(placed, np.int64)
        beside = (lifetimes.lower[others] < lifetimes.upper[piece]) & (lifetimes.lower[piece] < lifetimes.upper[others])
        others = others[beside]
        at = 0
        for other in others[np.argsort(offsets[others], kind="stable")].tolist():
            if at + size <= offsets[other]:
                break
            at = max(at, -(-int(offsets[other] + lifetimes.size[other]) // alignment) * alignment)
        offsets[piece] = at
        placed.append(piece)
    return offsets
