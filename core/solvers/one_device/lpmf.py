"""Least peak memory first, a greedy order for one device (field standard)."""

from __future__ import annotations

import numpy as np

from ...arrays import IndexArray
from ...buffers import Buffers, unread_bytes
from ...kernels.one_device.lpmf import least_peak_memory_first
from ...search.parameters import Parameters
from ...search.search import Search


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the greedy order, all ops on device 0."""
    search.offer_order(greedy_order(search.problem.graph.buffers))


def greedy_order(buffers: Buffers) -> IndexArray:
    """Return the order that always takes the ready op that keeps the peak lowest, then frees most."""
    ops = len(buffers.own)
    users = np.diff(buffers.user_ptr).astype(np.int64)
    # What running an op frees at once: outputs that nobody reads, and buffers of which it is the only user.
    freed = unread_bytes(buffers)
    sole = (users == 1) & ~buffers.is_final
    np.add.at(freed, buffers.users[buffers.user_ptr[:-1][sole]], buffers.size[sole])
    order = np.empty(ops, np.int32)
    least_peak_memory_first(
        buffers,
        np.diff(buffers.predecessor_ptr).astype(np.int64),
        users,
        freed,
        np.zeros(ops, np.bool_),
        np.empty(ops, np.int32),
        order,
    )
    return order
