"""Plans on machines: an order of the ops, a device for each, and how early it is sent what it lacks.

What an op lacks is sent when the order comes to it. Beside work a transfer may have started long before: with lead 0
it starts as soon as its tensor and the link allow, with 1 not before the op before the last on its target has ended,
with 2 not before the last has. Less lead takes less memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .group_moves import Groups
from .machine_model import MachineArrays, Scratch, Steps, account, begin, note_rows, time_op, time_transfer
from .moments import sort_moments
from .sequences import peak_penalty, shift, shift_within

EARLY, NEXT, LATE = 0, 1, 2
SHARE_OF_LEADS, SHARE_OF_RETURNS = 0.15, 0.3
"""Of all moves but those of a whole group those that change a lead, and of the latter the returns."""


class Plan(NamedTuple):
    """A plan: the ops in their order, the place of each in it, and per op the lead of what is sent to it."""

    order: IndexArray
    position: IndexArray
    lead: IndexArray


class MachineAim(NamedTuple):
    """What a search minimises: `scale * makespan`, or what the memory of each step costs if `is_peak`.

    Parameters
    ----------
    is_peak
        Whether the peak counts; a step that holds `m` bytes then costs `(m / size) ** 16`.
    memory
        Whether memory is counted at all.
    size, scale
        Bytes and microseconds that count as 1, the latter as `scale` per microsecond.
    weight
        What an excess over the limits costs, as a share of a device's limit.
    """

    is_peak: bool
    memory: bool
    size: float
    scale: float
    weight: float


class Cost(NamedTuple):
    """What a plan costs: what is minimised, the worst excess in bytes, the largest peak and the makespan."""

    energy: float
    excess: int
    peak: int
    runtime: float


@kernel
def write_plan(g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Steps, bar: float) -> tuple[int, float]:
    """Write the steps of a plan; returns their number, and the makespan, infinite if unlinked or above the bar."""
    devices = s.clock.size
    begin(s)
    count, runtime = 0, 0.0
    for op in plan.order:
        device = s.placement[op]
        after = -1.0
        if m.beside and plan.lead[op] == NEXT:
            after = s.before[device]
        elif m.beside and plan.lead[op] == LATE:
            after = s.clock[device]
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if s.there[tensor * devices + device] >= 0.0:
                continue
            start, end = time_transfer(g, m, s, tensor, device, after)
            if end == np.inf:
                return count, np.inf
            steps.items[count] = ~tensor
            steps.targets[count] = device
            steps.start[count] = start
            steps.end[count] = end
            count += 1
        start, end = time_op(g, m, s, op, device)
        steps.items[count] = op
        steps.targets[count] = device
        steps.start[count] = start
        steps.end[count] = end
        count += 1
        runtime = max(runtime, end)
        if runtime > bar:
            return count, np.inf
    return count, runtime


@kernel
def sort_steps(m: MachineArrays, s: Scratch, steps: Steps, count: int, sorted_steps: Steps) -> None:
    """Order steps so that each transfer follows the ops that end on its target before it starts.

    Ops go by their ends and transfers by their starts; the times of the steps remain what they are.
    """
    if m.beside:
        for step in range(count):
            s.moments[step] = steps.start[step] if steps.items[step] < 0 else steps.end[step]
        note_rows(m, s, steps, count)
        sort_moments(s.moments[:count], s.order, s.merged, s.ends, s.row[:count])
    for at in range(count):
        step = s.order[at] if m.beside else at
        sorted_steps.items[at] = steps.items[step]
        sorted_steps.targets[at] = steps.targets[step]
        sorted_steps.start[at] = steps.start[step]
        sorted_steps.end[at] = steps.end[step]


@inlined
def _price(
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: MachineAim, bar: float
) -> tuple[int, Cost]:
    """Write a plan's steps to `steps[0]`, sorted ones to `steps[1]` if memory counts, and price it."""
    most = bar / aim.scale if aim.scale > 0.0 else np.inf
    count, runtime = write_plan(g, m, s, plan, steps[0], most)
    if runtime == np.inf:
        return count, Cost(np.inf, 2**62, 2**62, np.inf)
    energy = aim.scale * runtime
    excess, peak = 0, 0
    if aim.memory:
        sort_steps(m, s, steps[0], count, steps[1])
        account(g, m, s, steps[1], count)
        for device in range(s.clock.size):
            peak = max(peak, s.peak[device])
            over = s.peak[device] - m.limits[device]
            if over > 0:
                excess = max(excess, over)
                energy += aim.weight * (0.001 + over / m.limits[device])
        if aim.is_peak:
            for step in range(count):
                energy += peak_penalty(s.memory[step] / aim.size)
    return count, Cost(energy, excess, peak, runtime)


@kernel
def price_plan(
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: MachineAim
) -> tuple[int, Cost]:
    """Write a plan's steps to `steps[1]`, as a schedule has them; returns how many, and what it costs."""
    count, cost = _price(g, m, s, plan, steps, aim, np.inf)
    if cost.runtime < np.inf and not aim.memory:
        sort_steps(m, s, steps[0], count, steps[1])
    return count, cost


class Places(NamedTuple):
    """Where ops may be: CSR group -> its ops, and -> the devices that all of them may be on; per op its group.

    `allowed`, shape `(ops, devices)`, says the latter once more; `groups` are ops that are moved together though they
    need not be on one device.
    """

    group: IndexArray
    member_ptr: IndexArray
    members: IndexArray
    device_ptr: IndexArray
    devices: IndexArray
    allowed: BoolArray
    groups: Groups


class Returns(NamedTuple):
    """Groups some of whose ops are on a slower device than need be, once per device on which such are fastest.

    Shape `(returns,)` each: the first and the last place of a group among `Groups.ops`, and that device.
    """

    first: IndexArray
    last: IndexArray
    device: IndexArray


class PlanWalk(NamedTuple):
    """Moves of an annealing over plans, and the best that it meets.

    Parameters
    ----------
    temperature, energy
        A move is kept if what is minimised stays under its present value times `u ** -temperature`.
    draws
        Shape `(moves, 6)`, uniform: a row per move, each of which is one evaluation.
    best
        Shape `(2,)`: the least excess in bytes, and the task's value there.
    best_order, best_placement, best_lead
        Shape `(ops,)`: the plan to which `best` belongs.
    leads
        Whether leads are changed, too.
    bunches
        The share of moves that take a whole group of the hierarchy, if there is one.
    returns
        Groups that had better be elsewhere.
    before
        Scratch, shape `(ops,)`.
    """

    temperature: float
    energy: float
    draws: FloatArray
    best: FloatArray
    best_order: IndexArray
    best_placement: IndexArray
    best_lead: IndexArray
    leads: bool
    bunches: float
    returns: Returns
    before: IndexArray


@inlined
def _place_group(s: Scratch, places: Places, group: int, device: int) -> None:
    for at in range(places.member_ptr[group], places.member_ptr[group + 1]):
        s.placement[places.members[at]] = device


@inlined
def _copy(source: Any, target: Any) -> None:
    for at in range(source.size):
        target[at] = source[at]


@inlined
def _move_group(s: Scratch, places: Places, first: int, last: int, device: int) -> bool:
    """Place a group of the hierarchy, as far as its ops may be there; returns whether any was elsewhere."""
    moved = False
    for at in range(first, last):
        op = places.groups.ops[at]
        if s.placement[op] != device and places.allowed[op, device]:
            _place_group(s, places, places.group[op], device)
            moved = True
    return moved


@inlined
def _move_bunch(s: Scratch, places: Places, returns: Returns, draws: Any) -> bool:
    """Place a group that is drawn, one that had better be elsewhere or any; returns whether an op moved."""
    if returns.device.size and draws[1] < SHARE_OF_RETURNS:
        number = int(draws[0] * returns.device.size)
        return _move_group(s, places, returns.first[number], returns.last[number], returns.device[number])
    number = int(draws[0] * places.groups.first.size)
    first, last = places.groups.first[number], places.groups.last[number]
    return _move_group(s, places, first, last, int(draws[2] * s.clock.size))


@inlined
def _keep_best(s: Scratch, plan: Plan, walk: PlanWalk, aim: MachineAim, cost: Cost) -> None:
    value = np.float64(cost.peak) if aim.is_peak else cost.runtime
    if cost.excess < walk.best[0] or (cost.excess == walk.best[0] and value < walk.best[1]):
        walk.best[0], walk.best[1] = cost.excess, value
        for at in range(plan.order.size):
            walk.best_order[at] = plan.order[at]
            walk.best_placement[at] = s.placement[at]
            walk.best_lead[at] = plan.lead[at]


@kernel
def anneal_plan(
    g: GraphArrays,
    m: MachineArrays,
    s: Scratch,
    plan: Plan,
    steps: Any,
    places: Places,
    aim: MachineAim,
    walk: PlanWalk,
) -> float:
    """Anneal over plans; returns what the present one costs then.

    A move gives an op, and all that is on one device with it, another device, or another place in the order, or both;
    or a group of ops another device; or it changes how early an op is sent what it lacks.
    """
    draws, energy = walk.draws, walk.energy
    single = 1.0 - walk.bunches if places.groups.first.size else 1.0
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * plan.order.size)
        group = places.group[op]
        before, here, lead = s.placement[op], plan.position[op], plan.lead[op]
        there = here
        first = places.device_ptr[group]
        choices = places.device_ptr[group + 1] - first
        kind = draws[move, 1] if choices > 1 else 1.0
        is_bunch = draws[move, 5] >= single
        if op >= m.first_home:
            kind = 0.0
        if is_bunch:
            _copy(s.placement, walk.before)
            if not _move_bunch(s, places, walk.returns, draws[move]):
                continue
        elif walk.leads and draws[move, 5] < SHARE_OF_LEADS * single:
            plan.lead[op] = (lead + 1 + int(draws[move, 2] * 2)) % 3
        else:
            if kind < 0.5 and choices > 1:
                device = places.devices[first + int(draws[move, 2] * choices)]
                _place_group(s, places, group, device)
            if kind >= 0.15:
                there = shift_within(g, plan.order, plan.position, op, draws[move, 3])
        if not is_bunch and s.placement[op] == before and there == here and plan.lead[op] == lead:
            continue
        bar = energy * (1.0 - draws[move, 4]) ** -walk.temperature
        _, cost = _price(g, m, s, plan, steps, aim, bar)
        if cost.energy > bar:
            if is_bunch:
                _copy(walk.before, s.placement)
                continue
            plan.lead[op] = lead
            _place_group(s, places, group, before)
            shift(plan.order, plan.position, there, here)
            continue
        energy = cost.energy
        _keep_best(s, plan, walk, aim, cost)
    return energy
