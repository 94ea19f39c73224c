"""Moves of single steps: a schedule as a list of its ops and transfers, any of which goes elsewhere in it.

Every schedule is such a list, so moves reach every plan. Each move is repaired while the list is run: a transfer
that nobody needs, or that was sent already, is left out, and a missing input is sent right before its reader.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays, State, new_steps, reached, start, step_op, step_transfer, write_step
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of, is_better
from .sequences import Objective, Places, drawn_device, put, put_back, put_group, room_of, sending, step_penalty, swap

ROUNDING = 1.0 + 1e-12
MOVED, SWAPPED, GROUPED, SENT = 0.4, 0.52, 0.62, 0.8
"""Kinds of moves, by a draw below: another device; two ops' devices swapped; a group's; a transfer elsewhere; an op."""


class Plan(NamedTuple):
    """A list as in `Steps`, normalised: no transfer is needless or missing. `place` is where in it each op is."""

    items: IndexArray
    targets: IndexArray
    place: IndexArray


class Edit(NamedTuple):
    """A step that is taken out of a list, and the place in it before which it goes; -1 for none."""

    step: Any
    before: Any


class Scene(NamedTuple):
    """The setting in which plans are run."""

    g: GraphArrays
    s: State
    sent: Any  # per tensor a bit per device
    m: MachineArrays
    # Microseconds: of each op where it takes least, of the longest path after it, and of all together
    least: FloatArray
    tail: FloatArray
    work: float


def new_plan(g: GraphArrays, devices: int) -> Plan:
    """Allocate room for any schedule's steps."""
    items, targets = new_steps(g, devices)
    return Plan(items, targets, np.empty(len(g.runtime), np.int32))


@inlined
def _is_wanted(x: Scene, tensor: int, target: int, is_read: bool) -> bool:
    """Whether a tensor is there, somewhere else, and is or will be read on a device that it was not sent to."""
    wanted = False
    maker = x.g.producer[tensor]
    is_there = x.s.placement[maker] == target or x.m.everywhere[tensor] or has_bit(x.sent[tensor], target)
    if x.s.pending[maker] == -1 and not is_there:
        wanted = is_read
        for at in range(x.g.consumer_ptr[tensor], x.g.consumer_ptr[tensor + 1]):
            if wanted:
                break
            wanted = x.s.placement[x.g.consumers[at]] == target
    return wanted


@inlined
def _run(x: Scene, old: Plan, count: int, edit: Edit, aim: Objective, bar: float, new: Plan, memory: bool) -> Any:
    """Run a plan with or without its memory, each compiled for itself: one loop for both takes twice the time."""
    g, s, m = x.g, x.s, x.m
    start(g, m, s, memory)
    x.sent[:] = 0
    step, excess, peak, penalty, runtime, lost = 0, 0, 0, 0.0, 0.0, 0.0
    ceiling = bar * ROUNDING
    for device in range(s.clock.size):
        peak, excess = reached(m, s.peak, device, peak, excess)
    for turn in range(2 * count + 2):
        at = turn // 2
        if turn % 2 == 0:
            if at != edit.before:
                continue
            at = edit.step
        elif at == count or at == edit.step:
            continue
        item, target = old.items[at], old.targets[at]
        first, last = 0, 1
        if item >= 0:
            target = s.placement[item]
            first, last = g.input_ptr[item], g.input_ptr[item + 1]
        for i in range(first, last):
            tensor = g.inputs[i] if item >= 0 else ~item
            if _is_wanted(x, tensor, target, item >= 0):
                x.sent[tensor] |= bit_of(target)
                s.peak[target] = 0
                source = s.placement[g.producer[tensor]]
                cost = sending(g, m, tensor, source, target)
                lost += abs(s.clock[source] - s.clock[target]) + 2.0 * cost  # neither device works meanwhile
                step = write_step(new, step, ~tensor, target)
                if not memory:
                    end = max(s.clock[source], s.clock[target]) + cost
                    s.clock[source] = end
                    s.clock[target] = end
                else:
                    step_transfer(g, m, s, tensor, target, True)
                    peak, excess = reached(m, s.peak, target, peak, excess)
                    penalty += step_penalty(aim, target, s.peak[target])
        if item >= 0:
            s.peak[target] = 0
            if memory:
                step_op(g, m, s, item, True)
            else:
                s.clock[target] += m.times[item, target]
            lost += m.times[item, target] - x.least[item]
            s.pending[item] = -1
            new.place[item] = step
            step = write_step(new, step, item, target)
            if memory:
                peak, excess = reached(m, s.peak, target, peak, excess)
                penalty += step_penalty(aim, target, s.peak[target])
            runtime = max(runtime, s.clock[target])
            least = max(runtime, s.clock[target] + x.tail[item], (x.work + lost) / s.clock.size)
            if penalty + aim.scale * least > ceiling:
                return step, np.inf, excess, peak, runtime
    return step, penalty + aim.scale * runtime, excess, peak, runtime


@kernel
def run_plan(x: Scene, old: Plan, count: int, edit: Edit, aim: Objective, bar: float, new: Plan) -> Any:
    """Run `count` steps, edited, placed as the state says, and write them normalised, unless that must exceed `bar`."""
    if aim.memory:
        return _run(x, old, count, edit, aim, bar, new, True)
    return _run(x, old, count, edit, aim, bar, new, False)


@inlined
def _make_move(x: Scene, plan: Plan, count: int, draws: Any, places: Places) -> tuple[Edit, int]:
    """Give ops other devices as a row of draws says; returns the edit that goes with it, and how many were changed."""
    ops, s, devices = x.g.runtime.size, x.s, x.s.clock.size
    op, changes, homes = int(draws[0] * ops), 0, ops - x.m.first_home
    edit = Edit(np.int64(-1), -1)
    kind = draws[1] if devices > 1 else 1.0
    moves_op = kind >= SENT or (kind >= SWAPPED and count == ops)
    if kind < MOVED:
        changes = put(places, op, drawn_device(places, op, s.placement[op], draws[2]), s.placement, 0)
        moves_op = draws[5] < 0.6
    elif kind < SWAPPED:
        changes = swap(places, op, int(draws[2] * ops), s.placement)
        moves_op = draws[5] < 0.5
    elif kind < GROUPED and places.groups.first.size > 0:
        group = int(draws[0] * places.groups.first.size)
        first, last = places.groups.first[group], places.groups.last[group]
        changes = put_group(places, first, last, int(draws[2] * devices), s.placement)
        moves_op = False
    elif kind < SENT and count > ops:  # some transfer, between its tensor's maker and its first reader there
        step = int(draws[2] * count)
        while plan.items[step] >= 0:
            step = step + 1 if step + 1 < count else 0
        tensor, target = ~plan.items[step], plan.targets[step]
        first, last = plan.place[x.g.producer[tensor]] + 1, count
        for at in range(x.g.consumer_ptr[tensor], x.g.consumer_ptr[tensor + 1]):
            reader = x.g.consumers[at]
            if s.placement[reader] == target:
                last = min(last, plan.place[reader])
        edit = Edit(np.int64(step), first + int(draws[3] * (last - first + 1)))
    if moves_op and op < x.m.first_home:
        first, last = room_of(x.g, plan.place, op, homes, count)
        edit = Edit(np.int64(plan.place[op]), first + int(draws[3] * (last - first + 1)))
    return edit, changes


@kernel
def anneal_steps(
    x: Scene, plans: tuple[Plan, Plan], start: tuple[int, float, int], aim: Objective, walk: Walk
) -> tuple[int, float, int]:
    """Anneal over plans, a row of draws each; the present one is the first of `plans`, placed as the state says."""
    (present, other), (best, best_placement) = plans, walk.kept
    count, energy, best_count = start
    for move in range(walk.draws.shape[0]):
        edit, changes = _make_move(x, present, count, walk.draws[move], walk.places)
        bar = bar_of(energy, walk.temperature, walk.draws[move, 4])
        steps, new, excess, peak, runtime = run_plan(x, present, count, edit, aim, bar, other)
        if new > bar:
            put_back(walk.places, changes, x.s.placement)
            continue
        present, other = other, present
        count, energy = steps, new
        if is_better(walk, excess, np.float64(peak) if aim.is_peak else runtime):
            for at in range(count):
                best.items[at] = present.items[at]
                best.targets[at] = present.targets[at]
            for op in range(best_placement.size):
                best_placement[op] = x.s.placement[op]
            best_count = count
    for at in range(count):
        item = present.items[at]
        write_step(plans[0], at, item, present.targets[at])
        if item >= 0:
            plans[0].place[item] = at
    return count, energy, best_count
