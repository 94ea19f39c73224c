"""Stretches of an order as problems of their own, and the ops between which they lie."""

from collections.abc import Callable

import numpy as np

from ..base.arrays import IndexArray, IntArray, csr, gathered
from ..graph.graph import Buffers

Look = Callable[[], None]


def stretch_of(
    b: Buffers, order: IndexArray, place: IntArray, memory: IntArray, first: int, last: int, look: Look = lambda: None
) -> tuple[Buffers, int]:
    """Return the problem of reordering the steps `first` to `last - 1`, and the bytes that are there throughout."""
    # Op 0 of the stretch is virtual: it comes before all others and holds what earlier ops hand over. Op `i` is
    # `order[first + i - 1]`. Buffers that later ops use, or that are final, stay to its end.
    inside = order[first:last]
    read, reading = gathered(b.used, b.used_ptr[inside], b.used_ptr[inside + 1])
    made, _ = gathered(np.arange(len(b.size)), b.made_ptr[inside], b.made_ptr[inside + 1])
    buffers = np.union1d(read, made)
    look()
    user, user_of = gathered(b.users, b.user_ptr[buffers], b.user_ptr[buffers + 1])
    stays = b.is_final[buffers].copy()
    stays[user_of[place[user] >= last]] = True
    is_made = place[b.producer[buffers]] >= first
    comes_in = ~is_made & ~stays

    kept = is_made | comes_in
    producer = np.where(is_made, place[b.producer[buffers]] - first + 1, 0)[kept]
    by_producer = np.argsort(producer, kind="stable")
    number = np.full(len(buffers), -1)
    number[np.flatnonzero(kept)[by_producer]] = np.arange(len(producer))
    used = number[np.searchsorted(buffers, read)]
    reader, used = reading[used >= 0] + 1, used[used >= 0]

    ops, chosen = len(inside) + 1, buffers[kept][by_producer]
    on, waits = gathered(b.predecessors, b.predecessor_ptr[inside], b.predecessor_ptr[inside + 1])
    on = place[on] - first + 1
    waiting, awaited = waits[on > 0] + 1, on[on > 0]
    is_first = np.ones(ops, bool)
    is_first[waiting] = is_first[0] = False
    waiting = np.append(waiting, np.flatnonzero(is_first))
    awaited = np.append(awaited, np.zeros(is_first.sum(), np.int64))
    wanted = ((used, reader, len(chosen)), (reader, used, ops), (waiting, awaited, ops), (awaited, waiting, ops))
    groups = []
    for rows, columns, count in wanted:
        look()
        groups.append(csr(rows, columns, count))
    users, uses, before, after = groups
    entering = int(b.size[buffers[comes_in]].sum())
    stretch = Buffers(
        b.size[chosen],
        producer[by_producer].astype(np.int32),
        stays[kept][by_producer],
        *users,
        *uses,
        np.searchsorted(producer[by_producer], np.arange(ops + 1)).astype(np.int32),
        np.concatenate(([entering], b.own[inside])),
        np.concatenate(([0], b.workspace[inside])),
        *before,
        *after,
    )
    for array in stretch:
        array.setflags(write=False)
    return stretch, int(memory[first] - b.own[inside[0]] - b.workspace[inside[0]]) - entering


def separators(b: Buffers, order: IndexArray) -> IntArray:
    """Return the places in an order at which an op stands that is before or after every other op in all orders."""
    ops = len(order)
    place = np.argsort(order)
    first_reader, last_source = np.full(ops, ops), np.full(ops, -1)
    np.minimum.at(first_reader, np.repeat(place, np.diff(b.successor_ptr)[order[place]]), place[b.successors])
    np.maximum.at(last_source, np.repeat(place, np.diff(b.predecessor_ptr)[order[place]]), place[b.predecessors])
    latest_reader = np.concatenate(([0], np.maximum.accumulate(first_reader)[:-1]))
    earliest_source = np.concatenate((np.minimum.accumulate(last_source[::-1])[::-1][1:], [ops]))
    here = np.arange(ops)
    return np.flatnonzero((latest_reader <= here) & (earliest_source >= here))
