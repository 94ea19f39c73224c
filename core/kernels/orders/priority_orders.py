"""Orders from one priority per op (Topoformer 4.2), greedy and sampled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import FloatArray, IndexArray, IntArray
from ...graph.graph import Buffers
from ..heap import larger_first, pop, push
from ..jit import inlined, kernel
from .order_memory import memory_of_steps


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


def log_probabilities(b: Buffers, priorities: Any, orders: Any) -> tuple[FloatArray, FloatArray]:
    """Return the log-probability of each order (eq. 6, 8), shape `(rows,)`, and its gradient, shape `(rows, ops)`."""
    orders = np.ascontiguousarray(orders, np.int32)
    priorities = checked_priorities(priorities, orders.shape[1])
    found, gradients = np.zeros(len(orders)), np.empty(orders.shape)
    scratch = (*np.empty((3, *priorities.shape), np.int32), *np.empty((2, *priorities.shape)))
    fill_probabilities(b, priorities, orders, scratch, found, gradients)
    return found, gradients


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


@inlined
def _admit(scratch: Any, size: int, op: int, weight: Any) -> int:
    """Add an op to the first `size` that are ready; returns the new size."""
    _, ready, place, weights, shares = scratch
    ready[size], place[op], weights[size], shares[size] = op, size, weight, 0.0
    return size + 1


@kernel
def fill_probabilities(b: Buffers, priorities: Any, orders: Any, scratch: Any, found: Any, gradients: Any) -> None:
    """Add to the log-probability of each order, and fill its gradient: 1 for each op, less its shares of all steps."""
    # Of each ready op there is its weight, e^(priority - shift), and the sum of its probabilities so far. The shift
    # changes where the sum of the weights is about to leave the range of numbers.
    waiting, ready, place, weights, shares = scratch
    for row in range(orders.shape[0]):
        size, shift = 0, 0.0
        for op in range(waiting.size):
            waiting[op] = b.predecessor_ptr[op + 1] - b.predecessor_ptr[op]
            if waiting[op] == 0:
                size = _admit(scratch, size, op, np.exp(priorities[op] - shift))
        for step in range(waiting.size):
            total = 0.0
            for at in range(size):
                total += weights[at]
            if not 1e-100 < total < 1e100:
                shift, total = priorities[ready[0]], 0.0
                for at in range(1, size):
                    shift = max(shift, priorities[ready[at]])
                for at in range(size):
                    weights[at] = np.exp(priorities[ready[at]] - shift)
                    total += weights[at]
            for at in range(size):
                shares[at] += weights[at] / total
            op = orders[row, step]
            at, size = place[op], size - 1
            found[row] += priorities[op] - shift - np.log(total)
            gradients[row, op] = 1.0 - shares[at]
            ready[at], place[ready[size]], weights[at], shares[at] = ready[size], at, weights[size], shares[size]
            for edge in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
                successor = b.successors[edge]
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    size = _admit(scratch, size, successor, np.exp(priorities[successor] - shift))
