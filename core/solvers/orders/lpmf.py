"""Least peak memory first, a greedy order for one device (field standard)."""

from __future__ import annotations

from collections.abc import Callable

from ...base.arrays import IndexArray
from ...graph.buffers import Buffers
from ...kernels.orders.lpmf import least_peak_memory_first, new_greedy
from ...search.parameters import Parameters
from ...search.search import Search

CHUNK = 20_000  # steps between two looks at the clock


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the greedy order, all ops on device 0; nothing if it has no time for all of it."""
    order = greedy_order(search.problem.graph.buffers, search.exhausted)
    if order is not None:
        search.offer_order(order)


def greedy_order(buffers: Buffers, stop: Callable[[], bool] = lambda: False) -> IndexArray | None:
    """Return the order that always takes the ready op that keeps the peak lowest, then frees most; None if stopped."""
    ops = len(buffers.own)
    greedy = new_greedy(buffers)
    for start in range(0, ops, CHUNK):
        if stop():
            return None
        least_peak_memory_first(buffers, greedy, start, min(ops, start + CHUNK))
    return greedy.order
