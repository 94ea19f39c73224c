"""Beam search with state collapsing over partial orders scored by their probability (Topoformer 4.2, item 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray, IntArray
from ...graph.buffers import Buffers
from ..hash_table import slot_of
from ..jit import kernel
from .priority_orders import checked_priorities
from .set_beam import (
    Candidates,
    Level,
    Walk,
    backward_walk,
    fill_states,
    first_level,
    forward_walk,
    new_candidates,
    select,
    set_candidate,
    step_need,
)

NO_LIMIT = 2**62
# States that are extended before it is asked whether to stop, which takes some tenths of a second in large graphs
STATES_AT_ONCE = 2**14


class BeamOrders(NamedTuple):
    """The complete orders that a beam ends with, the first found first."""

    # shape `(rows, ops)`: up to the width, or a single one with state collapsing, since complete orders all have
    # executed the same set; none if every partial order reached the limit, or the beam was told to stop
    orders: IndexArray
    # by eq. 8, or backward by its mirror image, shape `(rows,)`; ops that are taken at once count for nothing.
    log_probability: FloatArray
    peaks: IntArray  # bytes, persistent ones left out, shape `(rows,)`


class Rules(NamedTuple):
    """What decides which partial orders are kept."""

    # priorities, zobrist: per op: its priority, and a random number
    priorities: FloatArray
    zobrist: Any
    collapse: bool  # whether equal executed sets are collapsed
    limit: int  # bytes that no partial order may reach


class Successors(NamedTuple):
    """Scratch for all successors of a level."""

    candidates: Candidates  # the successors
    likelihood: FloatArray  # shape `(2, successors)`: the log-probability of each, and a row of scratch
    slots: IndexArray  # per successor, its slot of the candidates' hash table


class Trail(NamedTuple):
    """How the states of a beam came to be."""

    log_probability: FloatArray  # shape `(width,)`: that of each state so far
    back: Any  # shape `(2, ops, width)`: the parent and the op of each state of each step


def beam(
    b: Buffers,
    priorities: Any,
    width: int,
    *,
    collapse: bool = True,
    is_backward: bool = False,
    limit: int = NO_LIMIT,
    must_stop: Callable[[], bool] = lambda: False,
) -> BeamOrders:
    """Extend partial orders by one op at a time and keep the `width` most probable, ties by the last op's index."""
    # Of equal executed sets only the one of least peak is kept, of equal peaks the more probable: whatever follows ends
    # no higher. Scored by its own probability, it can be cut later where what it replaced would not be.
    ops = len(b.own)
    priorities = checked_priorities(priorities)
    zobrist = np.random.default_rng(0).integers(0, 2**64, ops, dtype=np.uint64)
    rules = Rules(-priorities if is_backward else priorities, zobrist, collapse, limit)
    found = _run(b, backward_walk(b) if is_backward else forward_walk(b), rules, width, must_stop)
    orders = np.ascontiguousarray(found.orders[:, :: -1 if is_backward else 1])
    return found._replace(orders=orders)


def _run(b: Buffers, walk: Walk, rules: Rules, width: int, must_stop: Callable[[], bool]) -> BeamOrders:
    """Return the orders in which a beam adds the ops, see `beam`."""
    ops = len(rules.priorities)
    room = max(1, width * ops)
    successors = Successors(new_candidates(room, room), np.empty((2, room)), np.empty(room, np.int32))
    levels = first_level(walk, width, width * ops), first_level(walk, width, width * ops)
    trail = Trail(np.zeros(width), np.empty((2, ops, width), np.int32))
    at_once = max(1, STATES_AT_ONCE // width)
    states = 1
    for first in range(0, ops, at_once):
        if first and must_stop():
            states = 0
        if states == 0:
            break
        steps = first, min(first + at_once, ops)
        states = extend(b, walk, rules, levels, states, steps, successors, trail)
        if (steps[1] - steps[0]) % 2:
            levels = levels[::-1]
    orders = np.empty((states, ops), np.int32)
    fill_orders(trail.back, orders)
    return BeamOrders(orders, trail.log_probability[:states], levels[0].peak[:states])


@kernel
def extend(
    b: Buffers,
    walk: Walk,
    rules: Rules,
    levels: tuple[Level, Level],
    states: int,
    steps: tuple[int, int],
    successors: Successors,
    trail: Trail,
) -> int:
    """Extend the first states of a level by the ops of some steps; returns how many states there are then."""
    level, following = levels
    back, log_probability = trail.back, trail.log_probability
    c, likelihood = successors.candidates, successors.likelihood
    floor = rules.limit - 1 if rules.limit < NO_LIMIT else -1
    for step in range(steps[0], steps[1]):
        count = _extend(b, walk, rules, level, states, log_probability, successors)
        states = _keep_most_probable(c, likelihood, count, log_probability.size)
        for state in range(states):
            following.hash[state] = c.hash[state]
            following.peak[state] = c.peak[state]
            following.safe[state] = -1
        fill_states(level, b, walk, c.parent[:states], c.op[:states], floor, following)
        for state in range(states):
            log_probability[state] = likelihood[0, state]
            back[0, step, state] = c.parent[state]
            back[1, step, state] = c.op[state]
        level, following = following, level
    return states


@kernel
def fill_orders(back: Any, orders: Any) -> None:
    """Fill the orders that the last states stand for, from the parent and op of each state `(2, ops, width)`."""
    for row in range(orders.shape[0]):
        state = row
        for step in range(orders.shape[1] - 1, -1, -1):
            orders[row, step] = back[1, step, state]
            state = back[0, step, state]


@kernel
def _extend(
    b: Buffers, walk: Walk, rules: Rules, level: Level, states: int, log_probability: Any, successors: Successors
) -> int:
    """Fill in the successors of the first states of a level; returns how many."""
    c, likelihood, slots = successors.candidates, successors.likelihood, successors.slots
    priorities, collapse = rules.priorities, rules.collapse
    count = 0
    for state in range(states):
        first, last = level.ready_ptr[state], level.ready_ptr[state + 1]
        largest = -np.inf
        for at in range(first, last):
            largest = max(largest, priorities[level.ready[at]])
        total = 0.0
        for at in range(first, last):
            total += np.exp(priorities[level.ready[at]] - largest)
        before = log_probability[state] - np.log(total)
        safe = level.safe[state]
        for at in range(first, last):
            op = level.ready[at]
            peak = max(level.peak[state], step_need(level, b, walk, state, op, rules.limit))
            if peak >= rules.limit or (safe >= 0 and safe != op):
                continue
            score = log_probability[state] if safe >= 0 else before + (priorities[op] - largest)
            key = level.hash[state] ^ rules.zobrist[op]
            entry = -1
            if collapse:
                slot = slot_of(c.table, c.hash, key)
                entry = c.table[slot]
                if entry < 0:
                    c.table[slot] = count
                    slots[count] = slot
                elif peak > c.peak[entry] or (peak == c.peak[entry] and score <= likelihood[0, entry]):
                    continue
            if entry < 0:
                entry = count
                count += 1
            set_candidate(c, entry, key, peak, state, op)
            likelihood[0, entry] = score
    if collapse:
        for at in range(count):
            c.table[slots[at]] = -1
    return count


@kernel
def _keep_most_probable(c: Candidates, likelihood: Any, count: int, width: int) -> int:
    """Move the `width` most probable candidates to the front, ties by op, then by parent; return their number."""
    if count <= width:
        return count
    for at in range(count):
        likelihood[1, at] = likelihood[0, at]
    least = select(likelihood[1], count, count - width)
    above, equal = 0, 0
    for at in range(count):
        if likelihood[0, at] > least:
            above += 1
        elif likelihood[0, at] == least:
            c.ties[equal] = np.uint64(c.op[at]) << np.uint64(32) | np.uint64(c.parent[at])
            equal += 1
    largest_tie = select(c.ties, equal, width - above - 1)
    kept = 0
    for at in range(count):
        tie = np.uint64(c.op[at]) << np.uint64(32) | np.uint64(c.parent[at])
        if likelihood[0, at] > least or (likelihood[0, at] == least and tie <= largest_tie):
            set_candidate(c, kept, c.hash[at], c.peak[at], c.parent[at], c.op[at])
            likelihood[0, kept] = likelihood[0, at]
            kept += 1
    return kept
