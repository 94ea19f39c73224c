"""Orders from one priority per op (Topoformer 4.2), greedy and sampled; and greedy ones of least peak memory first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ...graph.graph import Buffers, unread_bytes
from ..heap import larger_first, pop, push
from ..jit import inlined, kernel
from .order_memory import memory_of_steps

NONE = -1


def greedy(b: Buffers, priorities: Any) -> IndexArray:
    """Return the orders that always take the ready op of highest priority, ties by index."""
    ops = len(b.own)
    rows = np.atleast_2d(priorities)
    rows = checked_priorities(rows, len(rows), ops)
    urgency = np.ascontiguousarray(np.argsort(-rows, axis=1, kind="stable")[:, ::-1].astype(np.int32))
    orders = np.empty(rows.shape, np.int32)
    rank, waiting, heap = (np.empty(ops, np.int32) for _ in range(3))
    fill_greedy(b, urgency, rank, waiting, heap, orders)
    return orders


def sample(b: Buffers, priorities: Any, count: int, rng: np.random.Generator) -> IndexArray:
    """Draw orders in which each next op is a softmax of the priorities over the ready ops (eq. 8)."""
    # Exact however far apart the priorities are: the ready ops are the leaves of a tree whose nodes hold the sum of
    # e^priority below them, relative to the largest there; no sum is reduced by subtraction, and none underflows.
    ops = len(b.own)
    priorities = checked_priorities(priorities, ops)
    leaves = 1 << max(ops - 1, 0).bit_length()
    largest, total = np.full(2 * leaves, -np.inf), np.zeros(2 * leaves)
    orders = np.empty((count, ops), np.int32)
    fill_sampled(b, priorities, rng.random((count, ops)), np.empty(ops, np.int32), largest, total, orders)
    return orders


def price_orders(b: Buffers, orders: Any) -> IntArray:
    """Return the peak memory of each order on one device."""
    return np.array([memory_of_steps(b, order).max(initial=0) for order in orders], np.int64)


def ready_steps(predecessors: tuple[IndexArray, IndexArray], orders: Any) -> IndexArray:
    """Return the first step at which each op could run: it is a choice of eq. 8 from there to its own step."""
    pointers, before = predecessors
    place, waiting = np.argsort(orders, axis=1), np.flatnonzero(np.diff(pointers))
    steps = np.zeros(place.shape, np.int32)
    if len(waiting):
        steps[:, waiting] = np.maximum.reduceat(place[:, before], pointers[waiting], axis=1) + 1
    return steps


def checked_priorities(priorities: Any, *shape: int) -> FloatArray:
    """Return priorities as float64."""
    checked = np.ascontiguousarray(priorities, np.float64)
    if checked.shape != shape:
        raise ValueError(f"priorities must have the shape {shape}, not {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError("a priority is not finite")
    return checked


@kernel
def fill_greedy(b: Buffers, urgency: Any, rank: Any, waiting: Any, heap: Any, orders: Any) -> None:
    """Fill each row of `orders`; `urgency` holds the ops, the least urgent first. Scratch arrays: one entry per op."""
    for row in range(urgency.shape[0]):
        for place in range(rank.size):
            rank[urgency[row, place]] = place
        size = 0
        for op in range(rank.size):
            waiting[op] = b.predecessor_ptr[op + 1] - b.predecessor_ptr[op]
            if waiting[op] == 0:
                size = push(heap, size, rank[op], rank, larger_first)
        for step in range(rank.size):
            op = urgency[row, heap[0]]
            size = pop(heap, size, rank, larger_first)
            orders[row, step] = op
            for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
                successor = b.successors[at]
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    size = push(heap, size, rank[successor], rank, larger_first)


@inlined
def _set_leaf(largest: Any, total: Any, leaf: int, value: float, weight: float) -> None:
    """Put a leaf in (weight 1) or take it out (value -inf, weight 0), and sum up the nodes above it."""
    largest[leaf] = value
    total[leaf] = weight
    node = leaf >> 1
    while node > 0:
        high, low = 2 * node, 2 * node + 1
        if largest[low] > largest[high]:
            high, low = low, high
        largest[node] = largest[high]
        total[node] = total[high]
        if total[low] > 0:
            total[node] += total[low] * np.exp(largest[low] - largest[high])
        node >>= 1


@inlined
def _draw_leaf(largest: Any, total: Any, draw: float) -> int:
    """Return a leaf that is in, by probability e^value over their sum: the cumulative sum inverted at `draw`."""
    target = draw * total[1]
    node = 1
    while 2 * node < total.size:
        left, right = 2 * node, 2 * node + 1
        share = 0.0
        if total[left] > 0:
            share = total[left] * np.exp(largest[left] - largest[node])
        if total[right] == 0 or target < share:
            child = left
        else:
            child = right
            target -= share
        target *= np.exp(largest[node] - largest[child])
        node = child
    return node


@kernel
def fill_sampled(b: Buffers, priorities: Any, draws: Any, waiting: Any, largest: Any, total: Any, orders: Any) -> None:
    """Fill each row of `orders` by a row of `draws`, uniform in [0, 1)."""
    # `largest` (-inf) and `total` (0) hold a binary tree with a leaf for each op; a node stands for e^largest * total.
    # No generator is passed in: an interrupt while numba takes one apart ends the process.
    leaves = total.size >> 1
    for row in range(draws.shape[0]):
        for op in range(waiting.size):
            waiting[op] = b.predecessor_ptr[op + 1] - b.predecessor_ptr[op]
            if waiting[op] == 0:
                _set_leaf(largest, total, leaves + op, priorities[op], 1.0)
        for step in range(waiting.size):
            leaf = _draw_leaf(largest, total, draws[row, step])
            _set_leaf(largest, total, leaf, -np.inf, 0.0)
            op = leaf - leaves
            orders[row, step] = op
            for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
                successor = b.successors[at]
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    _set_leaf(largest, total, leaves + successor, priorities[successor], 1.0)


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
    return Greedy(
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
def least_peak_memory_first(b: Buffers, g: Greedy, start: int, end: int) -> None:
    """Run the ops of steps `start` up to `end`, in O((ops + edges) log ops) for all."""
    for op in range(g.waiting.size if start == 0 else 0):
        if g.waiting[op] == 0:
            _set(b, g, g.leaf[op], op)
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
