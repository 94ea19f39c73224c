"""Buffers on several devices, where a view may be sent alone: split into pieces that are somewhere while it is needed.

A buffer is laid out: each view is put within what it is a view of, beside the other views of that as far as they fit,
and over them beyond. Whatever holds a tensor has at least as many bytes as it has room, so what is held of a buffer,
on any devices, has at least the bytes of the union of what is needed. Any layout gives a valid bound.
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import IntArray, csr, distinct_pairs, frozen, gathered
from ..graph.graph import Buffers, CostGraph

MOST_VIEWS = 32  # views of a buffer that are pieces of their own; the others have no room, which is valid, too


def split_buffers(graph: CostGraph) -> Buffers:
    """Return the buffers, split where views are smaller than what they are views of."""
    # A piece is alive as long as any tensor that has room in it is needed.
    start, room = _layout(graph)
    root, data = graph.root, ~graph.is_control
    if (room == graph.tensor_size[root])[data].all():
        return graph.buffers
    tensors = np.flatnonzero(data & (room > 0))
    both_ends = np.concatenate((start[tensors], start[tensors] + room[tensors]))
    ends, row = np.unique(np.stack((np.tile(root[tensors], 2), both_ends)), axis=1, return_inverse=True)
    first, last = row.reshape(2, -1)
    is_piece = ends[0, 1:] == ends[0, :-1]  # between two ends of the same buffer
    number = np.cumsum(np.append(0, is_piece))
    roots, size = ends[0, :-1][is_piece], np.diff(ends[1])[is_piece]
    by_maker = np.argsort(graph.tensor_producer[roots], kind="stable")
    roots, size = roots[by_maker], size[by_maker]
    piece, holder = gathered(np.argsort(by_maker), number[first], number[last])
    tensors = tensors[holder]  # of each piece, what it is held for
    count = len(roots)
    producer = graph.tensor_producer[roots]
    is_final = np.zeros(count, bool)
    is_final[piece[graph.is_final[tensors]]] = True
    pointers, consumers = graph.consumers
    users, pair = gathered(consumers, pointers[tensors], pointers[tensors + 1])
    pieces, users = distinct_pairs(piece[pair], users)
    made_ptr = np.searchsorted(producer, np.arange(graph.num_ops + 1))
    return Buffers(
        frozen(size, np.int64),
        frozen(producer, np.int32),
        frozen(is_final, np.bool_),
        *csr(pieces, users, count),
        *csr(users, pieces, graph.num_ops),
        frozen(made_ptr, np.int32),
        *graph.buffers[8:],
    )


def _layout(graph: CostGraph) -> tuple[IntArray, IntArray]:
    """Return where each tensor begins within its buffer, and its room there: at most its bytes; `(tensors,)` each."""
    start, room = np.zeros(graph.num_tensors, np.int64), graph.tensor_size.copy()
    taken, smaller = np.zeros((2, graph.num_tensors), np.int64)
    place = np.argsort(graph.input_order)
    views = np.flatnonzero(graph.alias_of >= 0)
    for view in views[np.argsort(place[graph.tensor_producer[views]], kind="stable")].tolist():
        base = graph.alias_of[view]
        room[view] = min(room[view], room[base])
        if room[view] < room[base]:
            smaller[graph.root[view]] += 1
            room[view] = room[view] if smaller[graph.root[view]] <= MOST_VIEWS else 0
        begin = taken[base] if taken[base] + room[view] <= room[base] else 0
        start[view], taken[base] = start[base] + begin, begin + room[view]
    return start, room
