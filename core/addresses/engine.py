"""The engine: omnimalloc's branch and bound, which ends with a proof if its time suffices."""

from __future__ import annotations

import numpy as np

from ..base.arrays import IntArray
from .lifetimes import Lifetimes, rounded_up

LADDER_THREADS = 12
"""With so many threads, on however few processors, it searches below several targets at once, down to the bound."""
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
