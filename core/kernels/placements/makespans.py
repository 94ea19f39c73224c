"""Annealing of sequences for the makespan: priced from the first change on, and given up as early as can be.

Under a memory limit what the makespan alone does not rule out is run as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cost_model import MachineArrays, State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of
from .group_moves import Places, drawn_device, drawn_group, put, put_back, put_group
from .incremental_makespan import Course, Sequence, Waits, keep_rows, makespan_of
from .sequences import Due, Objective, note_best, place_within, run_sequence, shift

SWAPPED = 0.3
"""Of the moves that leave an op's device, where transfers are free: two ops swap theirs instead."""
ROUNDING_OF_SUMS = 1e-9
"""Of a bar: penalties are added in another order than they are compared."""


@inlined
def _first_of_changes(w: Waits, q: Sequence, places: Places, changes: int, first: int, costs: bool) -> int:
    """Return the first place at which other devices of the ops that a move has changed change anything.

    That is where such an op is or, if transfers cost anything, where what it reads is made.
    """
    for changed in range(changes):
        op = places.changed[changed]
        first = min(first, q.position[op])
        for at in range(w.before_ptr[op], w.before_ptr[op + 1] if costs else 0):
            first = min(first, q.position[w.before[at]])
    return first


@inlined
def _price(
    g: GraphArrays,
    s: State,
    scratch: tuple[Due, Course],
    q: Sequence,
    first: int,
    aim: Objective,
    m: MachineArrays,
    bar: float,
) -> tuple[float, int, int, float]:
    """Return what a sequence costs, its excess, peak and makespan, given the first place where it differs."""
    due, course = scratch
    runtime = makespan_of(g, course, q, first, aim, m, bar / aim.scale)
    cost, excess, peak = aim.scale * runtime, 0, 0
    if aim.memory and cost <= bar:
        left = bar - cost + ROUNDING_OF_SUMS * bar
        nothing = Steps(q.order[:0], q.order[:0])
        _, cost, excess, peak, runtime = run_sequence(g, s, due, q.order, aim, m, left, nothing)
    return cost, excess, peak, runtime


@kernel
def anneal_sequence(
    g: GraphArrays,
    s: State,
    scratch: tuple[Due, Course],
    order: Any,
    position: Any,
    aim: Objective,
    m: MachineArrays,
    energy: float,
    walk: Walk,
) -> float:
    """Anneal over sequences, 5 draws a move.

    A move gives an op, and all that is on one device with it, another device (half of the time), another place between
    those that it waits for and those that wait for it, or both. Where transfers are free it may swap two ops' devices
    instead: else that breaks up what belongs together. With 6 draws, a tenth of the moves give a group of ops one
    device. Residents have no place but the first.
    """
    w, rows, _, costs, _ = scratch[1]
    places, devices = walk.places, m.limits.size
    q = Sequence(order, position, s.placement)
    draws = walk.draws
    swapped = 0.0 if costs else SWAPPED
    makespan_of(g, scratch[1], q, np.int64(0), aim, m, np.inf)
    keep_rows(rows, 0)
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * order.size)
        group, kind = drawn_group(places, draws[move]), draws[move, 1] if devices > 1 else 1.0
        if op >= m.first_home:
            kind = 0.0
        before, here = q.placement[op], position[op]
        there, changes, first = here, 0, here
        if group >= 0:
            to = int(draws[move, 3] * devices)
            changes = put_group(places, places.groups.first[group], places.groups.last[group], to, q.placement)
            first = order.size
        else:
            if kind < 0.5:
                device = drawn_device(places, op, before, draws[move, 2])
                changes = put(places, op, device, q.placement, 0)
            if kind >= 0.5 and draws[move, 2] < swapped:
                other = int(draws[move, 3] * order.size)
                if places.allowed[op, q.placement[other]] and places.allowed[other, before]:
                    changes = put(places, op, q.placement[other], q.placement, 0)
                    changes = put(places, other, before, q.placement, changes)
            elif kind >= 0.1:
                there = place_within(g, position, op, draws[move, 3], order.size - m.first_home)
                shift(order, position, here, there)
                first = min(here, there)
        if there == here and changes == 0:
            continue
        first = _first_of_changes(w, q, places, changes, first, costs)
        bar = bar_of(energy, walk.temperature, draws[move, 4])
        new, excess, peak, runtime = _price(g, s, scratch, q, first, aim, m, bar)
        if new > bar:
            put_back(places, changes, q.placement)
            shift(order, position, there, here)
            continue
        energy = new
        keep_rows(rows, first)
        note_best(walk, aim, excess, peak, runtime, order, q.placement)
    return energy
