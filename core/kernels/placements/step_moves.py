"""Moves of single steps: a schedule as a list of its ops and transfers, any of which goes elsewhere in it.

Every schedule is such a list, so moves reach every plan: a transfer may be sent early or late, in any order with
others, and a device may wait for one. What a move breaks is mended while the list is run: a transfer that nobody needs,
or that was sent already, is left out, and what an op lacks is sent right before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import State, new_steps, reset, run_op, run_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from .group_moves import Groups
from .sequences import Aim, drawn_device, step_penalty

DRAWS = 6
ROUNDING = 1.0 + 1e-12
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


class Edit(NamedTuple):
    """A step that is taken out of a list, and the place in it before which it goes; -1 for none."""

    step: Any
    before: Any


class StepWalk(NamedTuple):
    """Moves of an annealing, and the best that it meets.

    Parameters
    ----------
    temperature
        A move is kept if what is minimised stays under its present value times `u ** -temperature`.
    draws
        Shape `(moves, DRAWS)`, uniform: a row per move, each of which is one evaluation.
    groups
        Groups of ops that go together.
    changed, before
        Scratch of shape `(ops + 1,)`: the ops that a move gave another device, and the devices they had.
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
    changed: IndexArray
    before: IndexArray
    found: FloatArray
    best: Plan
    best_placement: IndexArray


class Scene(NamedTuple):
    """What plans are run on: the graph, the scratch of the cost model, where tensors were `sent`, and the links.

    `tail` is the longest path after each op, `work` all runtimes together, microseconds.
    """

    g: GraphArrays
    s: State
    sent: Any
    links: Links
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
    if x.s.pending[maker] == -1 and x.s.placement[maker] != target and not has_bit(x.sent[tensor], target):
        wanted = is_read
        for at in range(x.g.consumer_ptr[tensor], x.g.consumer_ptr[tensor + 1]):
            if wanted:
                break
            wanted = x.s.placement[x.g.consumers[at]] == target
    return wanted


@inlined
def _send(x: Scene, tensor: int, target: int, memory: bool) -> float:
    """Run a transfer; returns for how long its two devices then have done no work."""
    g, s = x.g, x.s
    source = s.placement[g.producer[tensor]]
    cost = x.links.latency + g.tensor_size[tensor] * x.links.microseconds_per_byte
    lost: float = abs(s.clock[source] - s.clock[target]) + 2.0 * cost
    if memory:
        run_transfer(g, s, tensor, target, x.links, True)
    else:
        end = max(s.clock[source], s.clock[target]) + cost
        s.clock[source] = end
        s.clock[target] = end
    return lost


@kernel
def run_plan(x: Scene, old: Plan, count: int, edit: Edit, aim: Aim, bar: float, new: Plan) -> Any:
    """Run a list of `count` steps, edited, on the placement that the state holds, and write it down normalised.

    Gives up as soon as what `aim` minimises is sure to exceed `bar`, by the longest path after an op, or by the time
    that devices have lost.

    Returns
    -------
    tuple
        Steps; what `aim` asks to minimise, infinite if given up; the peak in bytes (0 without memory accounting) and
        the makespan in microseconds of what was run.
    """
    g, s = x.g, x.s
    reset(g, s, aim.memory)
    x.sent[:] = 0
    step, peak, penalty, runtime, lost = 0, 0, 0.0, 0.0, 0.0
    ceiling = bar * ROUNDING
    for device in range(x.links.devices):
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
        first, last = 0, 1
        if item >= 0:
            target = s.placement[item]
            first, last = g.input_ptr[item], g.input_ptr[item + 1]
        for i in range(first, last):
            tensor = g.inputs[i] if item >= 0 else ~item
            if _is_wanted(x, tensor, target, item >= 0):
                x.sent[tensor] |= bit_of(target)
                s.peak[target] = 0
                lost += _send(x, tensor, target, aim.memory)
                step = _write(new, step, ~tensor, target)
                if aim.memory:
                    peak = max(peak, s.peak[target])
                    penalty += step_penalty(aim, s.peak[target])
        if item >= 0:
            s.peak[target] = 0
            if aim.memory:
                run_op(g, s, item, x.links.devices, True)
            else:
                s.clock[target] += g.runtime[item]
            s.pending[item] = -1
            new.place[item] = step
            step = _write(new, step, item, target)
            if aim.memory:
                peak = max(peak, s.peak[target])
                penalty += step_penalty(aim, s.peak[target])
            runtime = max(runtime, s.clock[target])
            least = max(runtime, s.clock[target] + x.tail[item], (x.work + lost) / x.links.devices)
            if penalty + aim.scale * least > ceiling:
                return step, np.inf, peak, runtime
    return step, penalty + aim.scale * runtime, peak, runtime


@inlined
def _write(plan: Plan, step: int, item: int, target: int) -> int:
    """Write a step at a place; returns the next place."""
    plan.items[step] = item
    plan.targets[step] = target
    return step + 1


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
def _transfer_edit(x: Scene, plan: Plan, count: int, draws: Any) -> Edit:
    """Return the move of some transfer to a place between its tensor's maker and its first reader there."""
    step = int(draws[2] * count)
    while plan.items[step] >= 0:
        step = step + 1 if step + 1 < count else 0
    tensor, target = ~plan.items[step], plan.targets[step]
    first, last = plan.place[x.g.producer[tensor]] + 1, count
    for at in range(x.g.consumer_ptr[tensor], x.g.consumer_ptr[tensor + 1]):
        reader = x.g.consumers[at]
        if x.s.placement[reader] == target:
            last = min(last, plan.place[reader])
    return Edit(np.int64(step), first + int(draws[3] * (last - first + 1)))


@inlined
def _put(s: State, walk: StepWalk, op: int, device: int, changes: int) -> int:
    """Give an op a device, and note what it had; returns how many were given one."""
    walk.changed[changes] = op
    walk.before[changes] = s.placement[op]
    s.placement[op] = device
    return changes + 1


@inlined
def _make_move(x: Scene, plan: Plan, count: int, draws: Any, walk: StepWalk) -> tuple[Edit, int]:
    """Give ops other devices as a row of draws says; returns the edit that goes with it, and how many were changed."""
    ops, s = x.g.runtime.size, x.s
    op, changes = int(draws[0] * ops), 0
    edit = Edit(np.int64(-1), -1)
    kind = draws[1] if x.links.devices > 1 else 1.0
    moves_op = kind >= SENT or (kind >= SWAPPED and count == ops)
    if kind < MOVED:
        changes = _put(s, walk, op, drawn_device(s.placement[op], draws[2], x.links.devices), 0)
        moves_op = draws[5] < 0.6
    elif kind < SWAPPED:
        other = int(draws[2] * ops)
        device = s.placement[op]
        changes = _put(s, walk, op, s.placement[other], 0)
        changes = _put(s, walk, other, device, changes)
        moves_op = draws[5] < 0.5
    elif kind < GROUPED and walk.groups.first.size > 0:
        group = int(draws[0] * walk.groups.first.size)
        for at in range(walk.groups.first[group], walk.groups.last[group]):
            changes = _put(s, walk, walk.groups.ops[at], int(draws[2] * x.links.devices), changes)
        moves_op = False
    elif kind < SENT and count > ops:
        edit = _transfer_edit(x, plan, count, draws)
    if moves_op:
        edit = _op_edit(x.g, plan, count, op, draws[3])
    return edit, changes


@inlined
def _note_best(walk: StepWalk, aim: Aim, plan: Plan, count: int, placement: Any, peak: int, runtime: float) -> bool:
    """Keep a plan that is better than the best that a walk met, and say whether it is."""
    excess = max(0, peak - aim.limit)
    value = np.float64(peak) if aim.is_peak else runtime
    is_better: bool = excess < walk.found[0] or (excess == walk.found[0] and value < walk.found[1])
    if is_better:
        walk.found[0], walk.found[1] = excess, value
        for at in range(count):
            walk.best.items[at] = plan.items[at]
            walk.best.targets[at] = plan.targets[at]
        for op in range(placement.size):
            walk.best_placement[op] = placement[op]
    return is_better


@kernel
def anneal_steps(
    x: Scene, plans: tuple[Plan, Plan], start: tuple[int, float, int], aim: Aim, walk: StepWalk
) -> tuple[int, float, int]:
    """Anneal over plans, a row of draws each; the present one is the first of `plans`, placed as the state says.

    A move gives an op another device, and often another place; or two ops each other's device; or a group of ops one
    device; or a transfer or an op another place. An op stays between those that it waits for and those that wait for
    it, a transfer between the tensor's maker and its first reader there.

    Parameters
    ----------
    x
        What plans are run on.
    plans
        The present plan, which is written back at the end, and room for another.
    start
        Steps of the present plan, what it costs, and steps of the best.
    aim, walk
        What is minimised, and by which moves.

    Returns
    -------
    tuple
        As `start`, after the moves.
    """
    present, other = plans
    count, energy, best_count = start
    for move in range(walk.draws.shape[0]):
        edit, changes = _make_move(x, present, count, walk.draws[move], walk)
        bar = energy * (1.0 - walk.draws[move, 4]) ** -walk.temperature
        steps, new, peak, runtime = run_plan(x, present, count, edit, aim, bar, other)
        if new > bar:
            for at in range(changes - 1, -1, -1):
                x.s.placement[walk.changed[at]] = walk.before[at]
            continue
        present, other = other, present
        count, energy = steps, new
        if _note_best(walk, aim, present, count, x.s.placement, peak, runtime):
            best_count = count
    for at in range(count):
        item = present.items[at]
        _write(plans[0], at, item, present.targets[at])
        if item >= 0:
            plans[0].place[item] = at
    return count, energy, best_count
