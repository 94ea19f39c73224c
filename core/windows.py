"""A stretch of an order as a problem of its own (one device), and where every order falls apart into such."""

from __future__ import annotations

import numpy as np

from .buffers import Buffers
from .graph import IndexArray, IntArray, csr


def window_of(b: Buffers, order: IndexArray, place: IntArray, first: int, last: int) -> tuple[Buffers, int]:
    """Return the problem of reordering the steps `first` to `last - 1`, and the bytes that are there throughout.

    Op 0 of the window is virtual: it comes before all others and holds what earlier ops hand over. Op `i` is
    `order[first + i - 1]`. Buffers that later ops use, or that are final, stay to the window's end.

    Parameters
    ----------
    b
        The whole graph's buffers.
    order, place
        The order, shape `(ops,)`, and its inverse.
    first, last
        The stretch of steps.
    """
    inside = order[first:last]
    local = np.zeros(len(order), np.int64)
    local[inside] = np.arange(1, len(inside) + 1)
    buffer_of_user = np.repeat(np.arange(len(b.size)), np.diff(b.user_ptr))
    used_at = place[b.users]
    is_used = np.zeros(len(b.size), bool)
    is_used[buffer_of_user[(used_at >= first) & (used_at < last)]] = True
    stays = b.is_final.copy()
    stays[buffer_of_user[used_at >= last]] = True
    made_at = place[b.producer]
    is_made = (made_at >= first) & (made_at < last)
    comes_in = (made_at < first) & is_used & ~stays

    kept = np.flatnonzero(is_made | comes_in)
    producer = np.where(is_made[kept], local[b.producer[kept]], 0)
    by_producer = np.argsort(producer, kind="stable")
    kept, producer = kept[by_producer], producer[by_producer]
    number = np.full(len(b.size), -1, np.int64)
    number[kept] = np.arange(len(kept))
    uses = (local[b.users] > 0) & (number[buffer_of_user] >= 0)
    buffers, users = number[buffer_of_user[uses]], local[b.users[uses]]

    ops = len(inside) + 1
    waiting = np.repeat(np.arange(len(order)), np.diff(b.predecessor_ptr))
    waiting, awaited = local[waiting], local[b.predecessors]
    within = (waiting > 0) & (awaited > 0)
    waiting, awaited = waiting[within], awaited[within]
    is_first = np.ones(ops, bool)
    is_first[waiting] = is_first[0] = False
    waiting = np.concatenate((waiting, np.flatnonzero(is_first)))
    awaited = np.concatenate((awaited, np.zeros(is_first.sum(), np.int64)))
    window = Buffers(
        b.size[kept],
        producer.astype(np.int32),
        stays[kept],
        *csr(buffers, users, len(kept)),
        *csr(users, buffers, ops),
        np.searchsorted(producer, np.arange(ops + 1)).astype(np.int32),
        np.concatenate(([b.size[comes_in].sum()], b.own[inside])),
        np.concatenate(([0], b.workspace[inside])),
        *csr(waiting, awaited, ops),
        *csr(awaited, waiting, ops),
    )
    for array in window:
        array.setflags(write=False)
    return window, int(b.size[(made_at < first) & stays].sum())


def separators(b: Buffers, order: IndexArray) -> IntArray:
    """Return the places in an order at which an op stands that is before or after every other op in all orders.

    All orders have the same ops on either side of it: the stretches between separators are independent, and
    the peak is the largest of theirs.
    """
    ops = len(order)
    place = np.argsort(order)
    first_reader, last_source = np.full(ops, ops), np.full(ops, -1)
    np.minimum.at(first_reader, np.repeat(place, np.diff(b.successor_ptr)[order[place]]), place[b.successors])
    np.maximum.at(last_source, np.repeat(place, np.diff(b.predecessor_ptr)[order[place]]), place[b.predecessors])
    all_lead_here = np.concatenate(([0], np.maximum.accumulate(first_reader)[:-1]))
    all_come_from_here = np.concatenate((np.minimum.accumulate(last_source[::-1])[::-1][1:], [ops]))
    here = np.arange(ops)
    return np.flatnonzero((all_lead_here <= here) & (all_come_from_here >= here))
