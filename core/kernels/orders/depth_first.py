"""Depth-first search over executed-op sets with state collapsing and cost pruning (Topoformer C.3)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray, IntArray
from ...graph.graph import Buffers
from ..jit import inlined, kernel
from .order_memory import release

FINISHED, IMPROVED, PAUSED = 0, 1, 2
_PROBES = 8


class Search(NamedTuple):
    """Where the search stands, so that it can pause: one frame per op of the current path."""

    waiting: IntArray  # per op the predecessors, per buffer the users, that have not run
    users_left: IntArray
    ready: IndexArray  # shape `(ops,)`: the ops that can run next, the first `children[depth]`
    path: IndexArray  # shape `(ops,)`: the ops that have run
    # place, tried, start, stride, children: per frame, shape `(ops + 1,)`: where in `ready` the op now running was, how
    # many children were tried, the walk over them, and their number
    place: IndexArray
    tried: IndexArray
    start: IndexArray
    stride: IndexArray
    children: IndexArray
    hash: Any  # per frame: the exclusive or of the Zobrist numbers of the ops that have run
    resident: IntArray  # per frame, bytes: alive after these ops, and the largest step on the way
    peak: IntArray
    closed: Any  # open-addressing table of hashes, 0 where free, its size a power of two
    depth: IntArray  # shape `(1,)`: frames in use, or -1 when all is searched


def new_search(b: Buffers, table: int, salt: Any) -> Search:
    """Return a search at the empty set, whose table has room for at least `table` sets."""
    ops = len(b.own)
    ready = np.flatnonzero(np.diff(b.predecessor_ptr) == 0)
    columns: list[Any] = [
        np.diff(b.predecessor_ptr).astype(np.int64),
        np.diff(b.user_ptr).astype(np.int64),
        *np.zeros((2, ops), np.int32),
        *np.zeros((5, ops + 1), np.int32),
        np.zeros(ops + 1, np.uint64),
        *np.zeros((2, ops + 1), np.int64),
        np.zeros(1 << max(3, (table - 1).bit_length()), np.uint64),
        np.zeros(1, np.int64),
    ]
    s = Search(*columns)
    s.ready[: len(ready)] = ready
    open_frame(s, 0, len(ready), salt)
    return s


@kernel
def open_frame(s: Search, depth: int, count: int, salt: Any) -> None:
    """Start a frame: its `count` children will be tried from a random one on, a random stride apart."""
    mixed = (s.hash[depth] ^ salt) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    size = np.uint64(max(1, count))
    stride = np.uint64(1) + (mixed >> np.uint64(32)) % size
    common = np.uint64(0)
    while common != np.uint64(1):
        common = stride
        other = size
        while other != np.uint64(0):
            common, other = other, common % other
        if common != np.uint64(1):
            stride += np.uint64(1)
    s.children[depth] = count
    s.tried[depth] = 0
    s.start[depth] = mixed % size
    s.stride[depth] = stride % size


@inlined
def _is_closed(closed: Any, key: Any) -> bool:
    mask = np.uint64(closed.size - 1)
    found = False
    for probe in range(_PROBES):
        found = found or closed[(key + np.uint64(probe)) & mask] == key
    return found


@inlined
def _run(b: Buffers, s: Search, depth: int, at: int) -> int:
    """Run the ready op at a place; fills the next frame's memory and returns how many ops are ready there."""
    op = s.ready[at]
    count: int = s.children[depth] - 1
    s.path[depth] = op
    s.place[depth] = at
    s.ready[at] = s.ready[count]
    resident = s.resident[depth] + b.own[op]
    for made in range(b.made_ptr[op], b.made_ptr[op + 1]):
        if s.users_left[made] == 0 and not b.is_final[made]:
            resident -= b.size[made]
    for use in range(b.used_ptr[op], b.used_ptr[op + 1]):
        buffer = b.used[use]
        s.users_left[buffer] -= 1
        if s.users_left[buffer] == 0 and not b.is_final[buffer]:
            resident -= b.size[buffer]
    s.resident[depth + 1] = resident
    return release(b.successor_ptr, b.successors, op, s.waiting, s.ready, count)


@inlined
def _undo(b: Buffers, s: Search, depth: int) -> None:
    """Take back the op that ran from a frame; `ready` is again as it was before."""
    op = s.path[depth]
    at = s.place[depth]
    s.ready[s.children[depth] - 1] = s.ready[at]
    s.ready[at] = op
    for use in range(b.used_ptr[op], b.used_ptr[op + 1]):
        s.users_left[b.used[use]] += 1
    for after in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
        s.waiting[b.successors[after]] += 1


@kernel
def search_on(b: Buffers, s: Search, zobrist: Any, salt: Any, best: int, children: int) -> Any:
    """Search on from where it stands, for an order whose peak is below `best`."""
    ops = s.path.size
    depth = s.depth[0]
    tried = 0
    followed = 0
    while depth >= 0:
        if depth == ops or s.peak[depth] >= best or s.tried[depth] == s.children[depth]:
            # All that follows this set reaches `best`, unless the peak on the way to it did.
            if depth < ops and s.peak[depth] < best:
                # Its hash goes into the first free of its slots, or else into one whose set is forgotten.
                key, mask = s.hash[depth], np.uint64(s.closed.size - 1)
                slot = (key + (key >> np.uint64(61))) & mask
                for probe in range(_PROBES):
                    free = (key + np.uint64(_PROBES - 1 - probe)) & mask
                    if s.closed[free] == np.uint64(0):
                        slot = free
                s.closed[slot] = key
            depth -= 1
            if depth >= 0:
                _undo(b, s, depth)
            continue
        if tried == children:
            s.depth[0] = depth
            return PAUSED, tried, followed
        at = (np.int64(s.start[depth]) + np.int64(s.tried[depth]) * s.stride[depth]) % s.children[depth]
        s.tried[depth] += 1
        tried += 1
        op = s.ready[at]
        peak = max(s.peak[depth], s.resident[depth] + b.own[op] + b.workspace[op])
        key = s.hash[depth] ^ zobrist[op]
        if peak >= best or _is_closed(s.closed, key):
            continue
        count = _run(b, s, depth, at)
        followed += 1
        depth += 1
        s.peak[depth] = peak
        s.hash[depth] = key
        open_frame(s, depth, count, salt)
        if depth == ops:
            s.depth[0] = depth
            return IMPROVED, tried, followed
    s.depth[0] = depth
    return FINISHED, tried, followed
