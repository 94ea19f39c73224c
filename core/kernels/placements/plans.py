"""Plans on machines: an order of the ops, a device for each, and how early it is sent what it lacks.

What an op lacks is sent when the order comes to it. Beside work a transfer may have started long before: with lead 0
it starts as soon as its tensor and the link allow, with 1 not before the op before the last on its target has ended,
with 2 not before the last has. Less lead takes less memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray
from ..cost_model import MachineArrays, Scratch, TimedSteps, account, begin, note_rows, time_op, time_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of
from .group_moves import Places, put, put_back, put_group
from .moments import sort_moments
from .sequences import Objective, note_best, peak_penalty, place_within, shift

EARLY, NEXT, LATE = 0, 1, 2
SHARE_OF_LEADS, SHARE_OF_RETURNS = 0.15, 0.3
"""Of all moves but those of a whole group those that change a lead, and of the latter the returns."""


class Plan(NamedTuple):
    """A plan: the ops in their order, the place of each in it, and per op the lead of what is sent to it."""

    order: IndexArray
    position: IndexArray
    lead: IndexArray


class Cost(NamedTuple):
    """What a plan costs: what is minimised, the worst excess in bytes, the largest peak and the makespan."""

    energy: float
    excess: int
    peak: int
    runtime: float


@kernel
def write_plan(
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: TimedSteps, bar: float
) -> tuple[int, float]:
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
def sort_steps(m: MachineArrays, s: Scratch, steps: TimedSteps, count: int, sorted_steps: TimedSteps) -> None:
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
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: Objective, bar: float
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
                energy += peak_penalty(s.memory[step] / aim.size[steps[1].targets[step]])
    return count, Cost(energy, excess, peak, runtime)


@kernel
def price_plan(
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: Objective
) -> tuple[int, Cost]:
    """Write a plan's steps to `steps[1]`, as a schedule has them; returns how many, and what it costs."""
    count, cost = _price(g, m, s, plan, steps, aim, np.inf)
    if cost.runtime < np.inf and not aim.memory:
        sort_steps(m, s, steps[0], count, steps[1])
    return count, cost


class Bunches(NamedTuple):
    """Moves of whole groups, a `share` of all, and whether `leads` are changed, too.

    Per group that holds ops on slower devices than need be: its `first` place, that after its `last`, and a `device` on
    which such ops are fastest.
    """

    share: float
    first: IndexArray
    last: IndexArray
    device: IndexArray
    leads: bool


@inlined
def _put_bunch(s: Scratch, places: Places, bunches: Bunches, draws: Any) -> int:
    """Place a group that is drawn, one that had better be elsewhere or any; returns how many ops moved."""
    first, last = places.groups.first, places.groups.last
    device: Any = int(draws[2] * s.clock.size)
    number = int(draws[0] * first.size)
    if bunches.device.size and draws[1] < SHARE_OF_RETURNS:
        number = int(draws[0] * bunches.device.size)
        first, last, device = bunches.first, bunches.last, np.int64(bunches.device[number])
    return put_group(places, first[number], last[number], device, s.placement)


@kernel
def anneal_plan(
    g: GraphArrays,
    m: MachineArrays,
    s: Scratch,
    plan: Plan,
    steps: Any,
    aim: Objective,
    bunches: Bunches,
    energy: float,
    walk: Walk,
) -> float:
    """Anneal over plans; returns what the present one costs then.

    A move gives an op, and all that is on one device with it, another device, or another place in the order, or both;
    or a group of ops another device; or it changes how early an op is sent what it lacks.
    """
    draws, places = walk.draws, walk.places
    single = 1.0 - bunches.share if places.groups.first.size else 1.0
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * plan.order.size)
        group = places.group[op]
        here, lead = plan.position[op], plan.lead[op]
        there, changes = here, 0
        first = places.device_ptr[group]
        choices = places.device_ptr[group + 1] - first
        kind = draws[move, 1] if choices > 1 else 1.0
        if op >= m.first_home:
            kind = 0.0
        if draws[move, 5] >= single:
            changes = _put_bunch(s, places, bunches, draws[move])
        elif bunches.leads and draws[move, 5] < SHARE_OF_LEADS * single:
            plan.lead[op] = (lead + 1 + int(draws[move, 2] * 2)) % 3
        else:
            if kind < 0.5 and choices > 1:
                device = places.devices[first + int(draws[move, 2] * choices)]
                changes = put(places, op, device, s.placement, 0)
            if kind >= 0.15:
                there = place_within(g, plan.position, op, draws[move, 3], plan.order.size - m.first_home)
                shift(plan.order, plan.position, here, there)
        if changes == 0 and there == here and plan.lead[op] == lead:
            continue
        bar = bar_of(energy, walk.temperature, draws[move, 4])
        _, cost = _price(g, m, s, plan, steps, aim, bar)
        if cost.energy > bar:
            plan.lead[op] = lead
            put_back(places, changes, s.placement)
            shift(plan.order, plan.position, there, here)
            continue
        energy = cost.energy
        if note_best(walk, aim, cost.excess, cost.peak, cost.runtime, plan.order, s.placement):
            for at in range(plan.order.size):
                walk.kept[2][at] = plan.lead[at]
    return energy
