"""Moves of single steps: a schedule as a list of its ops and transfers, any of which goes elsewhere in it.

Every schedule is such a list, so moves reach every plan: a transfer may be sent early or late, in any order with
others, and a device may wait for one. What a move breaks is mended while the list is run: a transfer that nobody needs,
or that was sent already, is left out, and what an op lacks is sent right before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import State, new_steps, reset, run_op, run_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from .sequences import Aim, drawn_device, step_penalty

DRAWS = 6
MOVED, SWAPPED, GROUPED, SENT = 0.4, 0.52, 0.62, 0.8
"""Kinds of moves, by a draw below: another device; two ops' devices swapped; a group's; a transfer elsewhere; an op."""


class Plan(NamedTuple):
    """A list of steps, normalised: no transfer is needless or missing.

    Parameters
    ----------
    items, targets
        Shape `(most steps,)`, of which the first are used: as in `Steps`.
    place
        Shape `(ops,)`: where in the list each op is.
    """

    items: IndexArray
    targets: IndexArray
    place: IndexArray


class Groups(NamedTuple):
    """Groups of ops that go to another device together.

    Parameters
    ----------
    ops
        Shape `(ops,)`: the ops, such that each group is a stretch.
    first, last
        Shape `(groups,)`: where a group begins, and the place after its end; empty arrays ask for no such moves.
    """

    ops: IndexArray
    first: IndexArray
    last: IndexArray


class Edit(NamedTuple):
    """A step that is taken out of a list, and the place in it before which it goes; -1 for none."""

    step: int
    before: int


class StepWalk(NamedTuple):
    """Moves of an annealing, and the best that it meets.

    Parameters
    ----------
    temperature
        A move is kept if what is minimised stays under its present value times `u ** -temperature`.
    draws
        Shape `(moves, DRAWS)`, uniform: a row per move, each of which is one evaluation.
    groups, before
        Groups of ops, and scratch of shape `(ops,)`.
    found
        Shape `(2,)`: the least excess over the memory limit, and the task's value there.
    best
        The plan to which `found` belongs.
    best_placement
        Shape `(ops,)`: its placement.
    """

    temperature: float
    draws: FloatArray
    groups: Groups
    before: IndexArray
    found: FloatArray
    best: Plan
    best_placement: IndexArray


def new_plan(g: GraphArrays, devices: int) -> Plan:
    """Allocate room for any schedule's steps."""
    items, targets = new_steps(g, devices)
    return Plan(items, targets, np.empty(len(g.runtime), np.int32))


@inlined
def _is_wanted(g: GraphArrays, s: State, sent: Any, tensor: int, target: int) -> bool:
    """Whether a tensor is there, somewhere else, and has a reader on a device that it was not sent to."""
    wanted = False
    maker = g.producer[tensor]
    if s.pending[maker] == -1 and s.placement[maker] != target and not has_bit(sent[tensor], target):
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            wanted = wanted or s.placement[g.consumers[at]] == target
    return wanted


@kernel
def run_plan(
    g: GraphArrays, s: State, sent: Any, old: Plan, count: int, edit: Edit, aim: Aim, links: Links, bar: float, new: Plan
) -> tuple[int, float, int, float]:
    """Run a list of `count` steps, edited, on the placement that `s` holds, and write it down normalised.

    Gives up as soon as what `aim` minimises is sure to exceed `bar`.

    Returns
    -------
    tuple
        Steps; what `aim` asks to minimise, infinite if given up; the peak in bytes (0 without memory accounting) and
        the makespan in microseconds of what was run.
    """
    reset(g, s, aim.memory)
    sent[:] = 0
    step, peak, penalty, runtime = 0, 0, 0.0, 0.0
    for device in range(links.devices):
        peak = max(peak, s.peak[device])
    for turn in range(2 * count + 2):
        at = turn // 2
        if turn % 2 == 0:
            if at != edit.before:
                continue
            at = edit.step
        elif at == count or at == edit.step:
            continue
        item, target = old.items[at], old.targets[at]
        if item >= 0:
            target = s.placement[item]
            first, last = g.input_ptr[item], g.input_ptr[item + 1]
        else:
            first, last = 0, 1
        for i in range(first, last):
            tensor = g.inputs[i] if item >= 0 else ~item
            if _is_wanted(g, s, sent, tensor, target):
                sent[tensor] |= bit_of(target)
                s.peak[target] = 0
                run_transfer(g, s, tensor, target, links, aim.memory)
                new.items[step], new.targets[step] = ~tensor, target
                step += 1
                if aim.memory:
                    peak = max(peak, s.peak[target])
                    penalty += step_penalty(aim, s.peak[target])
        if item >= 0:
            s.peak[target] = 0
            run_op(g, s, item, links.devices, aim.memory)
            s.pending[item] = -1
            new.items[step], new.targets[step] = item, target
            new.place[item] = step
            step += 1
            if aim.memory:
                peak = max(peak, s.peak[target])
                penalty += step_penalty(aim, s.peak[target])
        runtime = max(runtime, s.clock[target])
        if penalty + aim.scale * runtime > bar:
            return step, np.inf, peak, runtime
    return step, penalty + aim.scale * runtime, peak, runtime


@inlined
def _op_edit(g: GraphArrays, plan: Plan, count: int, op: int, draw: float) -> Edit:
    """Return an op's move to a place, drawn uniformly, between those that it waits for and those that wait for it."""
    first, last = 0, count
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        first = max(first, plan.place[g.producer[g.inputs[at]]] + 1)
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            last = min(last, plan.place[g.consumers[at]])
    return Edit(np.int64(plan.place[op]), first + int(draw * (last - first + 1)))


@inlined
def _transfer_edit(g: GraphArrays, s: State, plan: Plan, count: int, step: int, draw: float) -> Edit:
    """Return a transfer's move to a place, drawn uniformly, between its tensor's maker and its first reader."""
    tensor, target = ~plan.items[step], plan.targets[step]
    first, last = plan.place[g.producer[tensor]] + 1, count
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        reader = g.consumers[at]
        if s.placement[reader] == target:
            last = min(last, plan.place[reader])
    return Edit(np.int64(step), first + int(draw * (last - first + 1)))


@inlined
def _move_group(s: State, walk: StepWalk, group: int, device: int) -> tuple[int, int]:
    """Put a group's ops on a device; returns the stretch of them, whose devices are then in `walk.before`."""
    first, last = np.int64(walk.groups.first[group]), np.int64(walk.groups.last[group])
    for at in range(first, last):
        walk.before[at] = s.placement[walk.groups.ops[at]]
        s.placement[walk.groups.ops[at]] = device
    return first, last


@inlined
def _copy_best(walk: StepWalk, plan: Plan, count: int, placement: Any) -> None:
    """Keep a plan as the best."""
    for at in range(count):
        walk.best.items[at] = plan.items[at]
        walk.best.targets[at] = plan.targets[at]
    for op in range(placement.size):
        walk.best_placement[op] = placement[op]


@kernel
def anneal_steps(
    g: GraphArrays,
    s: State,
    sent: Any,
    plans: tuple[Plan, Plan],
    start: tuple[int, float, int],
    aim: Aim,
    links: Links,
    walk: StepWalk,
) -> tuple[int, float, int]:
    """Anneal over plans, a row of draws each; the present one is the first of `plans`, placed as `s` says.

    A move gives an op another device, and often another place; or two ops each other's device; or a group of ops one
    device; or a transfer or an op another place. An op stays between those that it waits for and those that wait for it, a transfer between the
    tensor's maker and its first reader there.

    Parameters
    ----------
    g, s, sent
        The graph, and scratch; `s.placement` is the present placement.
    plans
        The present plan, which is written back at the end, and room for another.
    start
        Steps of the present plan, what it costs, and steps of the best.
    aim, links, walk
        What is minimised, where, and by which moves.

    Returns
    -------
    tuple
        As `start`, after the moves.
    """
    present, other = plans
    count, energy, best_count = start
    devices, ops = links.devices, g.runtime.size
    for move in range(walk.draws.shape[0]):
        draws = walk.draws[move]
        op = int(draws[0] * ops)
        second = op
        before = s.placement[op]
        before_second = before
        edit = Edit(np.int64(-1), -1)
        first, last = np.int64(0), np.int64(0)
        kind = draws[1] if devices > 1 else 1.0
        if kind < MOVED:
            s.placement[op] = drawn_device(before, draws[2], devices)
            if draws[5] < 0.6:
                edit = _op_edit(g, present, count, op, draws[3])
        elif kind < SWAPPED:
            second = int(draws[2] * ops)
            before_second = s.placement[second]
            if before_second == before:
                continue
            s.placement[op], s.placement[second] = before_second, before
            if draws[5] < 0.5:
                edit = _op_edit(g, present, count, op, draws[3])
        elif kind < GROUPED and walk.groups.first.size > 0:
            group = int(draws[0] * walk.groups.first.size)
            first, last = _move_group(s, walk, group, int(draws[2] * devices))
        elif kind < SENT and count > ops:
            step = int(draws[2] * count)
            while present.items[step] >= 0:
                step = step + 1 if step + 1 < count else 0
            edit = _transfer_edit(g, s, present, count, step, draws[3])
        else:
            edit = _op_edit(g, present, count, op, draws[3])
        bar = energy * (1.0 - draws[4]) ** -walk.temperature
        steps, new, peak, runtime = run_plan(g, s, sent, present, count, edit, aim, links, bar, other)
        if new > bar:
            if last > 0:
                for at in range(first, last):
                    s.placement[walk.groups.ops[at]] = walk.before[at]
            else:
                s.placement[second], s.placement[op] = before_second, before
            continue
        present, other = other, present
        count, energy = steps, new
        excess = max(0, peak - aim.limit)
        value = np.float64(peak) if aim.is_peak else runtime
        if excess < walk.found[0] or (excess == walk.found[0] and value < walk.found[1]):
            walk.found[0], walk.found[1] = excess, value
            best_count = count
            _copy_best(walk, present, count, s.placement)
    for at in range(count):
        item, target = present.items[at], present.targets[at]
        plans[0].items[at], plans[0].targets[at] = item, target
        if item >= 0:
            plans[0].place[item] = at
    return count, energy, best_count
