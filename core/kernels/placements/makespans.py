"""Annealing of sequences for the makespan: priced from the first change on, and given up as early as can be.

Under a memory limit what the makespan alone does not rule out is run as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cost_model import State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from .group_moves import GroupMoves, drawn_group, put_back, put_group
from .incremental_makespan import Course, Sequence, Waits, keep_rows, makespan_of
from .sequences import Aim, Due, Walk, drawn_device, note_best, run_sequence, shift

SWAPPED = 0.3
"""Of the moves that leave an op's device, where transfers are free: two ops swap theirs instead."""
ROUNDING_OF_SUMS = 1e-9
"""Of a bar: penalties are added in another order than they are compared."""


@inlined
def _move_within(w: Waits, q: Sequence, op: int, draw: float) -> int:
    """Move an op to a place, drawn uniformly, between those that it waits for and those that wait for it."""
    first, last = 0, q.order.size - 1
    for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
        first = max(first, q.position[w.before[at]] + 1)
    for at in range(w.after_ptr[op], w.after_ptr[op + 1]):
        last = min(last, q.position[w.after[at]] - 1)
    there = first + int(draw * (last - first + 1))
    shift(q.order, q.position, q.position[op], there)
    return there


@inlined
def _first_change(w: Waits, q: Sequence, op: int, place: int) -> int:
    """Return the first place at which another device of an op changes anything: where what it reads is made."""
    for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
        place = min(place, q.position[w.before[at]])
    return place


@inlined
def _first_change_of_group(w: Waits, q: Sequence, moves: GroupMoves, group: int) -> int:
    """Return the first place at which another device of a group's ops changes anything."""
    first = q.order.size
    for at in range(moves.groups.first[group], moves.groups.last[group]):
        op = moves.groups.ops[at]
        if q.placement[op] != moves.before[at]:
            first = _first_change(w, q, op, min(first, q.position[op]))
    return first


@inlined
def _price(
    g: GraphArrays, s: State, scratch: tuple[Due, Course], q: Sequence, first: int, aim: Aim, links: Links, bar: float
) -> tuple[float, int, float]:
    """Return what a sequence costs, its peak and makespan, given the first place where it is not the present one.

    Costs above the bar need not be exact: they are those of the makespan if that alone is above it, or infinite. The
    peak is 0 without memory accounting.
    """
    due, course = scratch
    runtime = makespan_of(g, course, q, first, aim, links, bar / aim.scale)
    cost, peak = aim.scale * runtime, 0
    if aim.memory and cost <= bar:
        left = bar - cost + ROUNDING_OF_SUMS * bar
        _, cost, peak, runtime = run_sequence(g, s, due, q.order, aim, links, left, Steps(q.order[:0], q.order[:0]))
    return cost, peak, runtime


@kernel
def anneal_sequence(
    g: GraphArrays, s: State, scratch: tuple[Due, Course], order: Any, position: Any, aim: Aim, links: Links, walk: Walk
) -> float:
    """Anneal over sequences, 5 draws a move.

    A move gives an op another device (half of the time), another place between those that it waits for and those that
    wait for it, or both. Where transfers are free it may swap two ops' devices instead: else that breaks up what
    belongs together. With 6 draws, a tenth of the moves give a group of ops one device.

    Returns
    -------
    float
        What the present sequence, in `order` and `s`, costs then.
    """
    w, rows, _ = scratch[1]
    q = Sequence(order, position, s.placement)
    draws, energy = walk.draws, walk.energy
    is_free = links.latency == 0.0 and links.microseconds_per_byte == 0.0
    swapped = SWAPPED if is_free else 0.0
    makespan_of(g, scratch[1], q, np.int64(0), aim, links, np.inf)
    keep_rows(rows, 0)
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * order.size)
        group, kind = drawn_group(walk.moves, draws[move]), draws[move, 1] if links.devices > 1 else 1.0
        before, here = q.placement[op], position[op]
        other, there = op, here
        if group >= 0:
            if not put_group(walk.moves, group, int(draws[move, 3] * links.devices), q.placement):
                continue
            first = _first_change_of_group(w, q, walk.moves, group)
        else:
            if kind < 0.5:
                q.placement[op] = drawn_device(before, draws[move, 2], links.devices)
            if kind >= 0.5 and draws[move, 2] < swapped:
                other = int(draws[move, 3] * order.size)
                q.placement[op] = q.placement[other]
                q.placement[other] = before
            elif kind >= 0.1:
                there = _move_within(w, q, op, draws[move, 3])
            if there == here and q.placement[op] == before:
                continue
            first = min(here, there, position[other])
            if not is_free and q.placement[op] != before:
                first = _first_change(w, q, op, first)
        bar = energy * (1.0 - draws[move, 4]) ** -walk.temperature
        new, peak, runtime = _price(g, s, scratch, q, first, aim, links, bar)
        if new > bar:
            if group >= 0:
                put_back(walk.moves, group, q.placement)
            else:
                q.placement[other] = q.placement[op]
                q.placement[op] = before
                shift(order, position, there, here)
            continue
        energy = new
        keep_rows(rows, first)
        note_best(walk, aim, peak, runtime, order, q.placement)
    return energy
