"""Least peak memory first: the greedy order on one device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray, IntArray
from ...graph.buffers import Buffers, unread_bytes
from ..jit import inlined, kernel

NONE = -1


class Greedy(NamedTuple):
    """How far an order is; a kernel goes on with it."""

    waiting: IntArray  # per op: predecessors that have not run
    users_left: IntArray  # per buffer: users that have not run
    freed: IntArray  # per op: bytes that running it now would free, its own unused outputs included
    ran: BoolArray  # per op
    # bytes that an op takes while it runs beside what is there, sorted; a place in it is a leaf of `tree`
    need: IntArray
    leaf: IndexArray  # per op: its place in `need`
    # A binary tree in an array, its root at 1 and leaf `i` at `size + i`: the ready op of a subtree after which least
    # is resident, of equals the smallest; or NONE
    tree: IndexArray
    order: IndexArray  # the ops that have run, then scratch
    memory: IntArray  # the peak so far and what is resident, bytes without persistent ones


def new_greedy(b: Buffers) -> Greedy:
    """Return an order without ops."""
    ops = len(b.own)
    users = np.diff(b.user_ptr).astype(np.int64)
    # What running an op frees at once: outputs that nobody reads, and buffers of which it is the only user.
    freed = unread_bytes(b)
    sole = (users == 1) & ~b.is_final
    np.add.at(freed, b.users[b.user_ptr[:-1][sole]], b.size[sole])
    need = b.own + b.workspace
    by_need = np.argsort(need, kind="stable")
    leaf = np.empty(ops, np.int32)
    leaf[by_need] = np.arange(ops)
    size = 1 << (ops - 1).bit_length()
    greedy = Greedy(
        np.diff(b.predecessor_ptr).astype(np.int64),
        users,
        freed,
        np.zeros(ops, np.bool_),
        need[by_need],
        leaf,
        np.full(2 * size, NONE, np.int32),
        np.empty(ops, np.int32),
        np.zeros(2, np.int64),
    )
    _begin(b, greedy)
    return greedy


@inlined
def _first(b: Buffers, g: Greedy, one: int, two: int) -> int:
    """Return of two ready ops, or NONE, the one after which less is resident, of equals the smaller."""
    if one == NONE or two == NONE:
        return max(one, two)
    resident_one = b.own[one] - g.freed[one]
    resident_two = b.own[two] - g.freed[two]
    if resident_one == resident_two:
        return min(one, two)
    return one if resident_one < resident_two else two


@inlined
def _set(b: Buffers, g: Greedy, leaf: int, op: int) -> None:
    """Put an op, or NONE, into its leaf, and tell the nodes above as far as it matters to them."""
    node = (g.tree.size >> 1) + leaf
    before = g.tree[node]
    g.tree[node] = op
    node >>= 1
    while node > 0:
        known = g.tree[node]
        g.tree[node] = _first(b, g, g.tree[2 * node], g.tree[2 * node + 1])
        if g.tree[node] == known and known != op and known != before:
            return
        node >>= 1


@inlined
def _choose(b: Buffers, g: Greedy, slack: int) -> int:
    """Return the ready op that raises the peak least, then the one after which least is resident."""
    size = g.tree.size >> 1
    node = 1
    while node < size:
        node = 2 * node if g.tree[2 * node] != NONE else 2 * node + 1
    allowed = max(slack, g.need[node - size])
    low, high = node - size, g.need.size
    while low < high:  # how many leaves need no more than that
        middle = (low + high) >> 1
        if g.need[middle] <= allowed:
            low = middle + 1
        else:
            high = middle
    if low == size:
        whole: int = g.tree[1]
        return whole
    chosen = NONE
    end = size + low
    while end > 1:  # the leaves before `end` are the left siblings on its way up
        if end & 1:
            chosen = _first(b, g, chosen, g.tree[end - 1])
        end >>= 1
    return chosen


@kernel
def _begin(b: Buffers, g: Greedy) -> None:
    for op in range(g.waiting.size):
        if g.waiting[op] == 0:
            _set(b, g, g.leaf[op], op)


@kernel
def least_peak_memory_first(b: Buffers, g: Greedy, start: int, end: int) -> None:
    """Run the ops of steps `start` up to `end`, in O((ops + edges) log ops) for all."""
    for step in range(start, end):
        op = _choose(b, g, g.memory[0] - g.memory[1])
        g.order[step] = op
        g.ran[op] = True
        _set(b, g, g.leaf[op], NONE)
        g.memory[0] = max(g.memory[0], g.memory[1] + b.own[op] + b.workspace[op])
        g.memory[1] += b.own[op] - g.freed[op]
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            g.users_left[buffer] -= 1
            if g.users_left[buffer] == 1 and not b.is_final[buffer]:
                for place in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
                    user = b.users[place]
                    if not g.ran[user]:
                        g.freed[user] += b.size[buffer]
                        if g.waiting[user] == 0:
                            _set(b, g, g.leaf[user], user)
        for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
            successor = b.successors[at]
            g.waiting[successor] -= 1
            if g.waiting[successor] == 0:
                _set(b, g, g.leaf[successor], successor)
