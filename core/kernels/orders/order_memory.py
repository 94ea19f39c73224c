"""The memory of every step of an order on one device; smoothing, for lifetimes that are easier to pack; first fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import INT64_MAX, IndexArray, IntArray, frozen
from ...graph.graph import Buffers
from ..jit import inlined, kernel


@kernel
def order_memory(b: Buffers, order: Any, base: Any, uses: Any, memory: IntArray) -> None:
    """Write to `memory` the bytes that each step of `order` takes; `base` bytes are there throughout."""
    for buffer in range(b.size.size):
        uses[buffer] = b.user_ptr[buffer + 1] - b.user_ptr[buffer]
    resident = base
    for step in range(order.size):
        op = order[step]
        resident += b.own[op]
        memory[step] = resident + b.workspace[op]
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            uses[buffer] -= 1
            if uses[buffer] == 0 and not b.is_final[buffer]:
                resident -= b.size[buffer]
        for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
            if b.user_ptr[buffer] == b.user_ptr[buffer + 1] and not b.is_final[buffer]:
                resident -= b.size[buffer]


def memory_of_steps(b: Buffers, order: Any, base: int = 0) -> IntArray:
    """Return the bytes that each step of an order takes, shape `(ops,)`; `base` bytes are there throughout."""
    memory = np.empty(len(order), np.int64)
    order_memory(b, frozen(order, np.int32), np.int64(base), np.empty(len(b.size), np.int32), memory)
    return memory


@kernel
def smooth(
    b: Buffers, order: IndexArray, place: IndexArray, limit: int, power: float, draws: Any, uses: Any, memory: Any
) -> int:
    """Move one op after another to where the steps' memory, each to a power, sums to less; returns how many moved."""
    moved = 0
    order_memory(b, order, np.int64(0), uses, memory)
    least = _height(memory, limit, power)
    for move in range(draws.shape[0]):
        step, draw = int(draws[move, 0] * order.size), draws[move, 1]
        op, low, high = order[step], 0, order.size - 1
        for at in range(b.predecessor_ptr[op], b.predecessor_ptr[op + 1]):
            low = max(low, place[b.predecessors[at]] + 1)
        for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
            high = min(high, place[b.successors[at]] - 1)
        target = low if draw < 0.25 else high
        if draw >= 0.5:
            target = low + int((draw - 0.5) * 2 * (high - low + 1))
        if target == step:
            continue
        shift(order, place, step, target)
        order_memory(b, order, np.int64(0), uses, memory)
        height = _height(memory, limit, power)
        if height <= least:
            moved += 1
            least = height
        else:
            shift(order, place, target, step)
    return moved


@inlined
def _height(memory: IntArray, limit: int, power: float) -> float:
    """Return the sum of the steps' shares of the limit, to a power; infinite if one exceeds it."""
    total = 0.0
    for step in range(memory.size):
        if memory[step] > limit:
            total = 1e300
        total += (memory[step] / limit) ** power
    return total


@inlined
def shift(order: Any, position: Any, here: int, there: int) -> None:
    """Move the op at one place to another; those between close up."""
    op = order[here]
    step = 1 if here < there else -1
    while here != there:
        order[here] = order[here + step]
        position[order[here]] = here
        here += step
    order[there] = op
    position[op] = there


@inlined
def release(pointers: Any, followers: Any, done: int, waiting: Any, ready: Any, count: int) -> int:
    """Note what is done for those that wait; who waits no more joins the `count` ready; return how many are."""
    for at in range(pointers[done], pointers[done + 1]):
        follower = followers[at]
        waiting[follower] -= 1
        if waiting[follower] == 0:
            ready[count] = follower
            count += 1
    return count


class Placing(NamedTuple):
    """The buffers to be placed, and scratch space; lifetimes are half-open."""

    lower: IntArray  # this and the next three: shape `(pieces,)`
    upper: IntArray
    size: IntArray
    alignment: IntArray
    offsets: IntArray  # shape `(pieces,)`: receives the offsets
    placed: IndexArray  # scratch, shape `(pieces,)`: what is placed already, by offset
    done: IntArray  # how many of these there are, and the end of the highest


def new_placing(lower: IntArray, upper: IntArray, size: IntArray, alignment: IntArray) -> Placing:
    """Allocate the scratch space of a placement."""
    pieces = len(size)
    offsets, placed, done = np.zeros(pieces, np.int64), np.zeros(pieces, np.int32), np.zeros(2, np.int64)
    return Placing(lower, upper, size, alignment, offsets, placed, done)


@kernel
def first_fit(p: Placing, order: IndexArray, limit: int, first: int, last: int) -> int:
    """Place pieces of an order, all or until one ends beyond the limit; returns the end of the highest so far."""
    if first == 0:
        p.done[:] = 0
    count, highest = int(p.done[0]), int(p.done[1])
    for number in range(first, last):
        piece = order[number]
        start, end, size, alignment = p.lower[piece], p.upper[piece], int(p.size[piece]), p.alignment[piece]
        at = 0
        for k in range(count):
            other = p.placed[k]
            offset = p.offsets[other]
            if offset >= at + size:
                break
            if p.lower[other] < end and start < p.upper[other]:
                above = offset + p.size[other]
                if above > at:
                    at = -(-above // alignment) * alignment
        p.offsets[piece] = at
        highest = max(highest, at + size)
        if highest > limit:
            return int(highest)
        place = count
        while place > 0 and p.offsets[p.placed[place - 1]] > at:
            p.placed[place] = p.placed[place - 1]
            place -= 1
        p.placed[place] = piece
        count += 1
    p.done[0], p.done[1] = count, highest
    return int(highest)


@kernel
def first_fit_by_start(p: Placing, order: IndexArray, by_end: IndexArray, edges: IntArray) -> int:
    """Place all pieces by start; returns the end of the highest. `edges` is scratch, shape `(2 * pieces + 4,)`."""
    edges[0], edges[1] = 0, INT64_MAX  # the sorted ends of what is free
    count, ended, highest = 2, 0, 0
    for piece in order:
        while p.upper[by_end[ended]] <= p.lower[piece]:
            count = _toggled(p, by_end[ended], edges, count)
            ended += 1
        at, gap, size, alignment = 0, 0, p.size[piece], p.alignment[piece]
        while size > 0:
            if edges[gap + 1] - edges[gap] >= size:
                at = -(-edges[gap] // alignment) * alignment
                if at + size <= edges[gap + 1]:
                    break
            gap += 2
        p.offsets[piece] = at
        highest = max(highest, at + size)
        count = _toggled(p, piece, edges, count)
    return highest


@inlined
def _toggled(p: Placing, piece: int, edges: IntArray, count: int) -> int:
    """Take or give back the bytes of a piece: each of its ends becomes an edge or, if it is one, none."""
    for edge in (p.offsets[piece], p.offsets[piece] + p.size[piece]):
        at = np.searchsorted(edges[:count], edge)
        if at < count and edges[at] == edge:
            count -= 1
            for k in range(at, count):
                edges[k] = edges[k + 1]
        else:
            for k in range(count, at, -1):
                edges[k] = edges[k - 1]
            edges[at] = edge
            count += 1
    return count
