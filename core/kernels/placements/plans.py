"""Plans on machines, and list scheduling: an order of the ops, a device for each, and how early inputs are sent.

Missing inputs of an op are sent when the order comes to it. Beside work a transfer may have started long before: with
lead 0 it starts as soon as its tensor and the link allow, with 1 not before the op before the last on its target has
ended, with 2 not before the last has. Less lead takes less memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from .. import cost_model
from ..cost_model import MachineArrays, Scratch, TimedSteps, account, begin, sort_moments, time_op, time_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of
from ..orders.order_memory import shift
from .sequences import Objective, Places, note_best, peak_penalty, place_within, put, put_back, put_group

EARLY, NEXT, LATE = 0, 1, 2
SHARE_OF_LEADS, SHARE_OF_RETURNS = 0.15, 0.3  # of all moves but a group's those of leads, and of a group's the returns


class Plan(NamedTuple):
    """A plan: the ops in their order, the place of each in it, and per op the lead of its inputs."""

    order: IndexArray
    position: IndexArray
    lead: IndexArray


class Cost(NamedTuple):
    """The cost of a plan: the objective, the worst excess in bytes, the largest peak and the makespan."""

    energy: float
    excess: int
    peak: int
    runtime: float


@inlined
def _write(steps: TimedSteps, count: int, item: int, device: int, times: tuple[float, float]) -> int:
    """Write a step that starts and ends then; returns the next place."""
    steps.items[count] = item
    steps.targets[count] = device
    steps.start[count], steps.end[count] = times
    return count + 1


@kernel
def write_plan(g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: TimedSteps, bar: float) -> Any:
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
            times = time_transfer(g, m, s, tensor, device, after)
            if times[1] == np.inf:
                return count, np.inf
            count = _write(steps, count, ~tensor, device, times)
        times = time_op(g, m, s, op, device)
        count = _write(steps, count, op, device, times)
        runtime = max(runtime, times[1])
        if runtime > bar:
            return count, np.inf
    return count, runtime


@kernel
def sort_steps(m: MachineArrays, s: Scratch, steps: TimedSteps, count: int, sorted_steps: TimedSteps) -> None:
    """Order steps so that each transfer follows the ops that end on its target before it starts; times remain."""
    if m.beside:
        for step in range(count):
            s.moments[step] = steps.start[step] if steps.items[step] < 0 else steps.end[step]
        sort_moments(m, s, steps, count, np.int64(1))
    for at in range(count):
        step = s.order[at] if m.beside else at
        _write(sorted_steps, at, steps.items[step], steps.targets[step], (steps.start[step], steps.end[step]))


@inlined
def _price(g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: Objective, bar: float) -> Any:
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
            peak, excess = cost_model.reached(m, s.peak, device, peak, excess)
            over = s.peak[device] - m.limits[device]
            if over > 0:
                energy += aim.weight * (0.001 + over / m.limits[device])
        if aim.is_peak:
            for step in range(count):
                energy += peak_penalty(s.memory[step] / aim.size[steps[1].targets[step]])
    return count, Cost(energy, excess, peak, runtime)


@kernel
def price_plan(g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: Objective) -> Any:
    """Write a plan's steps to `steps[1]`, as a schedule has them; returns how many, and its cost."""
    count, cost = _price(g, m, s, plan, steps, aim, np.inf)
    if cost.runtime < np.inf and not aim.memory:
        sort_steps(m, s, steps[0], count, steps[1])
    return count, cost


class Bunches(NamedTuple):
    """Moves of whole groups."""

    share: float  # of all moves
    # Per group that holds ops on slower devices than need be: its stretch, and a device where such ops are fastest
    first: IndexArray
    last: IndexArray
    device: IndexArray
    leads: bool  # whether leads are changed, too


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
    g: GraphArrays, m: MachineArrays, s: Scratch, plan: Plan, steps: Any, aim: Objective, energy: float, walk: Walk
) -> float:
    """Anneal over plans, by single ops, groups, and leads; returns the cost of the present one then."""
    draws = walk.draws
    places, bunches = walk.places
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


NOWHERE = -1


class Greedy(NamedTuple):
    """The data of list scheduling, and its scratch."""

    # If it `is_quick`, only two devices are tried, and missing inputs count as sent when they were made (HEFT's
    # assumption): a blocking transfer just before the op would wait for both devices, and none would leave a busy one.

    allowed: BoolArray  # shape `(ops, devices)`
    group: IndexArray
    ahead: FloatArray  # microseconds added to when an op ends, shape `(ops, devices)`, or without rows for none
    is_quick: bool
    is_limited: bool  # what each device holds throughout is kept within its limit as far as that goes
    chosen: IndexArray  # the device of a group, `NOWHERE` before
    # Per device: its clock and the link from it while another is tried, bytes left beside what stays throughout, and
    # those that it holds of what an op reads
    clock: FloatArray
    link: FloatArray
    room: IntArray
    held: IntArray


@inlined
def _home_of(s: Scratch, z: Greedy, op: int) -> Any:
    """Return where an op is, or has to be with others; NOWHERE while that is open."""
    home = s.placement[op]
    return home if home != NOWHERE else z.chosen[z.group[op]]


@inlined
def _try(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, op: int, device: int) -> Any:
    """Return when an op would end on a device, infinite if it cannot be sent something."""
    devices, ready, free = s.clock.size, 0.0, s.clock[device]
    if not z.is_quick:
        for source in range(devices):
            z.clock[source] = s.clock[source]
            z.link[source] = s.link[source * devices + device]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        there = s.there[tensor * devices + device]
        if there < 0.0:
            source = _home_of(s, z, g.producer[tensor])
            if source == NOWHERE:
                continue
            if m.latency[source, device] == np.inf:
                return np.inf
            there = max(0.0, s.there[tensor * devices + source])
            takes = m.latency[source, device] + g.tensor_size[tensor] * m.per_byte[source, device]
            if not z.is_quick and not m.beside:
                there = max(there, z.clock[source], free)
                free = there + takes
                z.clock[source] = free
            elif not z.is_quick and m.contention:
                there = max(there, z.link[source])
                z.link[source] = there + takes
            there += takes
        ready = max(ready, there)
    return max(ready, free) + m.times[op, device]


@inlined
def _bytes_to_stay(g: GraphArrays, s: Scratch, z: Greedy, op: int, device: int) -> int:
    """Return the bytes that stay on a device throughout if an op runs there, with residents that get their home so."""
    size = g.persistent[op]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        maker = g.producer[g.inputs[at]]
        if _home_of(s, z, maker) == NOWHERE and z.allowed[maker, device]:
            size += g.persistent[maker]
    return int(size)


@inlined
def _settle(g: GraphArrays, s: Scratch, z: Greedy, op: int, device: int) -> None:
    """Put an op on a device, and with it all that have to be there."""
    z.chosen[z.group[op]] = device
    s.placement[op] = device
    z.room[device] -= g.persistent[op]


@inlined
def _roomiest(m: MachineArrays, z: Greedy, op: int, device: int) -> int:
    """Return where a resident has its home that cannot be on the device of its reader."""
    best = NOWHERE
    for other in range(z.room.size):
        linked = m.latency[other, device] < np.inf
        if z.allowed[op, other] and linked and (best == NOWHERE or z.room[other] > z.room[best]):
            best = other
    for other in range(z.room.size):
        if best == NOWHERE and z.allowed[op, other]:
            best = other
    return best


@inlined
def _nearest_and_free(g: GraphArrays, s: Scratch, z: Greedy, op: int) -> tuple[int, int]:
    """Return the device that holds most of an op's inputs, and the one that is free first, the first of equals."""
    for device in range(z.held.size):
        z.held[device] = 0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        source = _home_of(s, z, g.producer[g.inputs[at]])
        if source != NOWHERE:
            z.held[source] += g.tensor_size[g.inputs[at]]
    near = free = z.chosen[z.group[op]]
    for device in range(z.held.size if near == NOWHERE else 0):
        if z.allowed[op, device]:
            if near == NOWHERE or z.held[device] > z.held[near]:
                near = device
            if free == NOWHERE or s.clock[device] < s.clock[free]:
                free = device
    return near, free


@inlined
def _choose(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, op: int) -> int:
    """Return the device on which an op ends first, `z.ahead` added, if any among those with room for its residents."""
    near, free, devices = NOWHERE, NOWHERE, z.room.size
    if z.is_quick:
        near, free = _nearest_and_free(g, s, z, op)
        if near == free:
            return near
        devices = 2
    best, least, is_roomy = NOWHERE, np.inf, False
    for at in range(devices):
        device = at if not z.is_quick else near if at == 0 else free
        if not z.allowed[op, device] or z.chosen[z.group[op]] not in (NOWHERE, device):
            continue
        roomy = not z.is_limited or _bytes_to_stay(g, s, z, op, device) <= z.room[device]
        if is_roomy and not roomy:
            continue
        end = _try(g, m, s, z, op, device)
        if z.ahead.size:
            end += z.ahead[op, device]
        if best == NOWHERE or (roomy and not is_roomy) or end < least:
            best, least, is_roomy = device, end, roomy
    return best


@kernel
def begin_list(m: MachineArrays, s: Scratch, z: Greedy) -> None:
    """Forget all that was placed."""
    begin(s)
    s.placement[:] = NOWHERE
    z.chosen[:] = NOWHERE
    for device in range(z.room.size):
        z.room[device] = m.limits[device]


@kernel
def list_ops(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, order: Any, steps: TimedSteps, count: int) -> int:
    """Place some more ops in `s.placement`, each where it ends first, `z.ahead` added, and its residents have room."""
    # Returns how many steps there are then, without those of residents, at home where they are read first; or else -1.
    devices = s.clock.size
    for op in order:
        best = _choose(g, m, s, z, op)
        _settle(g, s, z, op, best)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if s.there[tensor * devices + best] >= 0.0:
                continue
            maker = g.producer[tensor]
            if s.placement[maker] == NOWHERE:
                home = z.chosen[z.group[maker]]
                if home == NOWHERE:
                    fits = z.allowed[maker, best] and (not z.is_limited or g.persistent[maker] <= z.room[best])
                    home = best if fits else _roomiest(m, z, maker, best)
                _settle(g, s, z, maker, home)
                time_op(g, m, s, maker, home)
            if s.there[tensor * devices + best] < 0.0:
                times = time_transfer(g, m, s, tensor, best, -1.0)
                if times[1] == np.inf:
                    return -1
                count = _write(steps, count, ~tensor, best, times)
        count = _write(steps, count, op, best, time_op(g, m, s, op, best))
    return count
