"""Longest paths, and earliest starts where transfers cost time: ops without a transfer between them share a device.

Papadimitriou and Yannakakis 1990 (section 3), without duplication and for any runtimes. Let an op start at `x`. An
ancestor from which a path to it takes longer than that, if some transfer of the path is paid, is on the same device.
All such ancestors run there in turn, after their own earliest starts; if that ends after `x`, the op starts later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray, frozen
from ..jit import inlined, kernel

HALVINGS = 40


def path_ends(order: IndexArray, pointers: IndexArray, before: IndexArray, runtime: FloatArray) -> FloatArray:
    """Return the longest path that ends with each op, its own runtime included, microseconds; shape `(ops,)`."""
    end = np.empty(len(runtime))
    # Copies of one type, so that the kernel is compiled once.
    find_path_ends(frozen(order, np.int32), pointers, before, frozen(runtime, np.float64), end)
    return end


@kernel
def find_path_ends(order: Any, pointers: Any, before: IndexArray, runtime: FloatArray, end: FloatArray) -> None:
    """Write when each op ends, one after the other."""
    for op in order:
        latest = 0.0
        for at in range(pointers[op], pointers[op + 1]):
            latest = max(latest, end[before[at]])
        end[op] = runtime[op] + latest


class Sending(NamedTuple):
    """Ops in an order, and per op those before it, CSR, with the cost of sending; all is reversed for latest ends."""

    order: IndexArray
    before_ptr: IndexArray
    before: IndexArray
    cost: FloatArray
    runtime: FloatArray


class Heads(NamedTuple):
    """Earliest starts, and scratch; per op, shape `(ops,)`."""

    head: FloatArray
    # How long an op takes from its start to that of the op looked at on one device, and on two; -1 if no ancestor
    together: FloatArray
    apart: FloatArray
    sorted: IndexArray  # the ops done, by `head`


def new_heads(ops: int) -> Heads:
    """Allocate."""
    return Heads(np.zeros(ops), np.empty(ops), np.empty(ops), np.empty(ops, np.int32))


@inlined
def _find_ancestors(g: Sending, h: Heads, place: int) -> None:
    """Fill `together` and `apart` for the op at a place of the order."""
    h.together[:] = -1.0
    h.together[g.order[place]], h.apart[g.order[place]] = 0.0, np.inf
    for at in range(place, -1, -1):
        op = g.order[at]
        if h.together[op] < 0.0:
            continue
        for i in range(g.before_ptr[op], g.before_ptr[op + 1]):
            ancestor = g.before[i]
            time = g.runtime[ancestor]
            apart = time + min(g.cost[i] + h.together[op], h.apart[op])
            if h.together[ancestor] < 0.0:
                h.together[ancestor], h.apart[ancestor] = time + h.together[op], apart
            else:
                h.together[ancestor] = max(h.together[ancestor], time + h.together[op])
                h.apart[ancestor] = max(h.apart[ancestor], apart)


@inlined
def _end_of_turn(g: Sending, h: Heads, count: int, start: float) -> float:
    """Return when the ancestors that share a device with an op that starts then have run and reached it."""
    latest, work, delivery = 0.0, 0.0, np.inf
    for at in range(count - 1, -1, -1):
        op = h.sorted[at]
        if h.together[op] >= 0.0 and h.head[op] + h.apart[op] > start:
            work += g.runtime[op]
            delivery = min(delivery, h.together[op] - g.runtime[op])
            latest = max(latest, h.head[op] + work + delivery)
    return latest


@kernel
def find_heads(g: Sending, h: Heads, first: int, last: int) -> None:
    """Fill `h.head` for the ops at the places `first` up to `last` of the order, those before being done."""
    for place in range(first, last):
        op = g.order[place]
        low = 0.0
        for i in range(g.before_ptr[op], g.before_ptr[op + 1]):
            low = max(low, h.head[g.before[i]] + g.runtime[g.before[i]])
        if g.before_ptr[op + 1] > g.before_ptr[op]:
            _find_ancestors(g, h, place)
            high = _end_of_turn(g, h, place, low)
            if high > low:
                for _ in range(HALVINGS):
                    middle = 0.5 * (low + high)
                    if _end_of_turn(g, h, place, middle) > middle:
                        low = middle
                    else:
                        high = middle
        h.head[op] = low
        at = place
        while at > 0 and h.head[h.sorted[at - 1]] > low:
            h.sorted[at] = h.sorted[at - 1]
            at -= 1
        h.sorted[at] = op


@kernel
def between_heads_and_tails(head: Any, tail: Any, by_head: Any, by_tail: Any, energy: Any) -> float:
    """Return the largest, over pairs of a head and a tail, of both and the energy of ops that have no less."""
    best = 0.0
    for one in range(by_head.size):
        least = head[by_head[one]]
        work = 0.0
        for other in range(by_tail.size - 1, -1, -1):
            op = by_tail[other]
            if head[op] >= least:
                work += energy[op]
                best = max(best, least + tail[op] + work)
    return best
