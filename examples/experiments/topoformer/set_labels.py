"""Labels to imitate that are sets of ops: those of an order that could run earlier."""

import numpy as np
import torch
from numba import njit
from schedopt.core.graph.graph import unread_bytes
from schedopt.core.kernels.orders.order_memory import order_memory


def memory_of(b, orders):
    """Return the bytes that each step of each order takes; shape `(rows, ops)`, as the orders."""
    memory = np.empty(orders.shape, np.int64)
    for row, order in enumerate(orders):
        order_memory(b, order, 0, np.empty(len(b.size), np.int32), memory[row])
    return memory


def ready_steps(predecessors, orders):
    """Return the first step at which each op could run: it is a choice of eq. 8 from there to its own step."""
    pointers, before = predecessors
    place, waiting = np.argsort(orders, axis=1), np.flatnonzero(np.diff(pointers))
    steps = np.zeros(place.shape, np.int32)
    if len(waiting):
        steps[:, waiting] = np.maximum.reduceat(place[:, before], pointers[waiting], axis=1) + 1
    return steps


def earliest_steps(b, order, first):
    """Return the first step of each op's last stretch of steps at which it alone could run instead of at its own.

    All other ops stay as they are, and the peak becomes no higher.

    Parameters
    ----------
    b
        The graph's buffers.
    order
        The order, shape `(ops,)`.
    first
        The first step at which each op could run at all (`ready_steps`), shape `(ops,)`.
    """
    steps = np.empty(len(order), np.int64)
    _fill(b, unread_bytes(b), order, first, memory_of(b, order[None])[0], steps)
    return steps


@njit
def _fill(b, unread, order, first, memory, steps):
    place, peak = np.empty_like(order), memory.max()
    for step in range(order.size):
        place[order[step]] = step
    for op in range(order.size):
        steps[op] = place[op]
        for step in range(place[op] - 1, first[op] - 1, -1):
            more, displaced = b.own[op] - unread[op], order[step]
            for buffer in b.used[b.used_ptr[op] : b.used_ptr[op + 1]]:
                last = -1  # step of the last other op that reads it
                for user in b.users[b.user_ptr[buffer] : b.user_ptr[buffer + 1]]:
                    if user != op:
                        last = max(last, place[user])
                if last < step and not b.is_final[buffer]:
                    more -= b.size[buffer]
            before = memory[step] - b.own[displaced] - b.workspace[displaced]
            if max(memory[step] + more, before + b.own[op] + b.workspace[op]) > peak:
                break
            steps[op] = step


def log_sum_exp_of_stretches(values, first, last):
    """Return per step the log-sum-exp of the values whose stretch `first` to `last` holds it, all `(rows, ops)`."""
    steps = torch.arange(values.shape[1])[:, None]
    holds = (first[:, None] <= steps) & (steps <= last[:, None])  # (rows, steps, ops)
    return values[:, None].where(holds, -torch.inf).logsumexp(2)
