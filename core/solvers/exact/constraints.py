"""Constraints and objectives of the CP-SAT model, a function each; objectives define the solver's numbers."""

import math
from collections.abc import Callable
from typing import Any

from ...problem.problem import Problem
from ...search.plans import may_exceed
from ...search.search import Search
from .variables import Buffer, Variables

LARGEST_SUM, MOST_DIGITS = 2**58, 16  # of the solver's sums, and of a share
MOST_RANKED = 200  # ops by which equal devices are told apart: more say little
# Of a device or a link: per step that it may have, whether it has it, its start and its duration
Steps = list[tuple[Any, Any, int]]
Minimised = tuple[Variables, Callable[[float], float]]


def add_time_constraints(v: Variables) -> dict[int, Steps]:
    """Add all that holds whatever is minimised; return the steps of each device."""
    choose_devices(v)
    if v.problem.is_symmetric:
        number_equal_devices(v)
    set_durations(v)
    require_transfers(v)
    order_inputs(v)
    return forbid_overlaps(v)


def choose_devices(v: Variables) -> None:
    """Run each op on exactly one device, and with it all that it is together with."""
    for op, first in enumerate(v.problem.rules.group.tolist()):
        if op == first:
            v.model.add_exactly_one(v.on[op].values())


def number_equal_devices(v: Variables) -> None:
    """Let an op be on a device only if one before it, in `v.ranked`, is on the device numbered one lower."""
    # So one op stays on device 0 (REGAL A.2). Every best schedule obeys this once its devices are numbered so.
    ranked = v.ranked[:MOST_RANKED]
    for place, op in enumerate(ranked):
        for device in v.devices[1:]:
            before = [v.on[other][device - 1] for other in ranked[:place]]
            if place < device:
                v.model.add(v.on[op][device] == 0)
            elif device > 1:
                v.model.add_bool_or([~v.on[op][device], *before])


def set_durations(v: Variables) -> None:
    """Let a step whose duration depends on its device last as long as on that device."""
    for op, takes in enumerate(v.takes):
        if len({*takes.values()}) > 1:
            lasts = sum(duration * v.on[op][device] for device, duration in takes.items())
            v.model.add(v.ops[op].end == v.ops[op].start + lasts)
    for key, links in v.links.items():
        v.check_time()
        if len({duration for _, duration in links.values()}) > 1:
            for literal, duration in links.values():
                v.model.add(v.transfers[key].end == v.transfers[key].start + duration).only_enforce_if(literal)


def require_transfers(v: Variables) -> None:
    """Have a tensor on a device if and only if a reader is there and its producer is not, over a link that exists."""
    for (tensor, device), sent in v.sent.items():
        v.check_time()
        made_on = v.on[v.producer[tensor]]
        home = [made_on[device]] if device in made_on else []
        here = [v.on[reader][device] for reader in v.readers[tensor] if device in v.on[reader]]
        v.model.add_bool_or([*here, ~sent])
        for literal in home:
            v.model.add_implication(sent, ~literal)
        for reader in here:
            v.model.add_bool_or([~reader, *home, sent])
        for source, literal in made_on.items() if (tensor, device) in v.links else ():
            if source != device and source not in v.links[tensor, device]:
                v.model.add_bool_or([~literal, ~sent])


def order_inputs(v: Variables) -> None:
    """Run an op after its inputs are produced and sent, and a transfer after its tensor is produced."""
    for tensor, readers in enumerate(v.readers):
        v.check_time()
        if v.producer[tensor] < v.own:
            for reader in readers:
                v.model.add(v.ops[reader].start >= v.ops[v.producer[tensor]].end)
    for (tensor, device), step in v.transfers.items():
        v.check_time()
        sent = v.sent[tensor, device]
        if v.producer[tensor] < v.own:
            v.model.add(step.start >= v.ops[v.producer[tensor]].end).only_enforce_if(sent)
        for reader in v.readers[tensor]:
            if device in v.on[reader]:
                v.model.add(v.ops[reader].start >= step.end).only_enforce_if([sent, v.on[reader][device]])


def forbid_overlaps(v: Variables) -> dict[int, Steps]:
    """Let no ops on a device overlap, nor transfers that occupy it or a contended link; return those of each device."""
    of_device: dict[int, Steps] = {device: [] for device in v.devices}
    of_link: dict[tuple[int, int], Steps] = {}
    for op, takes in enumerate(v.takes):
        for device, duration in takes.items():
            of_device[device].append((v.on[op][device], v.ops[op].start, duration))
    for (tensor, target), links in v.links.items():
        start, durations = v.transfers[tensor, target].start, {duration for _, duration in links.values()}
        for source, (literal, duration) in links.items():
            if not v.machine.is_beside:
                of_device[source].append((literal, start, duration))
            elif v.machine.contention:
                of_link.setdefault((source, target), []).append((literal, start, duration))
        if not v.machine.is_beside and len(durations) == 1:
            of_device[target].append((v.sent[tensor, target], start, *durations))
        elif not v.machine.is_beside:
            of_device[target] += [(literal, start, duration) for literal, duration in links.values()]
    interval = v.model.new_optional_fixed_size_interval_var
    for steps in (*of_device.values(), *of_link.values()):
        v.check_time()
        v.model.add_no_overlap([interval(start, duration, literal, "") for literal, start, duration in steps])
    return of_device


def bytes_throughout(v: Variables, device: int) -> Any:
    """Return the units of bytes that lie on a device throughout: persistent ones, residents and their replicas."""
    persistent = (v.graph.persistent // v.units.bytes).tolist()
    held = [size * v.on[op][device] for op, size in enumerate(persistent) if size and device in v.on[op]]
    replicas = [v.size[t] * sent for (t, where), sent in v.sent.items() if where == device and v.is_everywhere[t]]
    return sum((*held, *replicas))


def most_bytes(v: Variables) -> list[Any]:
    """Add the memory of devices with blocking transfers; return the peak of each, in units of bytes."""
    v.add_buffers()
    set_lifetimes(v)
    return [bytes_throughout(v, device) + temporary_bytes(v, device) for device in v.devices]


def set_lifetimes(v: Variables) -> None:
    """Keep a buffer through every step on its device that reads or sends it or a view of it, or to the end."""
    views: list[list[int]] = [[] for _ in v.producer]
    for tensor, viewed in enumerate(v.graph.alias_of.tolist()):
        if viewed >= 0:
            views[viewed].append(tensor)
    for (is_copy, tensor, device), buffer in v.buffers.items():
        v.check_time()
        v.model.add(buffer.end >= buffer.since.end)
        members = [(tensor, not is_copy, [buffer.present])]
        while members:
            member, is_produced_here, given = members.pop()
            _member_is_used(v, buffer, member, is_produced_here, given, device)
            for view in views[member]:
                if device in v.on[v.producer[view]]:
                    members.append((view, True, [*given, v.on[v.producer[view]][device]]))


def _member_is_used(
    v: Variables, buffer: Buffer, tensor: int, is_produced_here: bool, given: list[Any], device: int
) -> None:
    """Keep a buffer for the uses of a tensor that lives in it if the literals `given` hold."""
    for reader in v.readers[tensor]:
        if device in v.on[reader]:
            v.model.add(buffer.end >= v.ops[reader].end).only_enforce_if([*given, v.on[reader][device]])
    if not is_produced_here:
        return
    for target in v.devices:
        if target != device and (tensor, target) in v.transfers:
            sent = [*given, v.sent[tensor, target]]
            v.model.add(buffer.end >= v.transfers[tensor, target].end).only_enforce_if(sent)
    if v.graph.is_final[tensor]:
        v.model.add(buffer.end >= v.units.horizon).only_enforce_if(given)


def temporary_bytes(v: Variables, device: int) -> Any:
    """Return the most that buffers alive and the workspace of the op that runs take on a device."""
    interval, fixed = v.model.new_optional_interval_var, v.model.new_optional_fixed_size_interval_var
    intervals, sizes = [], []
    for (_, tensor, where), buffer in v.buffers.items():
        if where == device:
            length = v.model.new_int_var(0, v.units.horizon, "")
            intervals.append(interval(buffer.since.start, length, buffer.end, buffer.present, ""))
            sizes.append(v.size[tensor])
    workspace = (v.graph.workspace // v.units.bytes).tolist()
    for op, takes in enumerate(v.takes):
        if workspace[op] and device in takes:
            intervals.append(fixed(v.ops[op].start, takes[device], v.on[op][device], ""))
            sizes.append(workspace[op])
    room = v.model.new_int_var(0, v.most, "")
    v.model.add_cumulative(intervals, sizes, room)
    return room


def knows_memory(problem: Problem) -> bool:
    """Whether the memory of the devices follows from the order of the steps on each: no transfer runs beside ops."""
    return problem.devices == 1 or not problem.machine.is_beside


def minimised_peak(search: Search) -> Minimised:
    """Minimise the peak of the fullest device, down to the known least, within limits that differ."""
    # Where shares count, the peak is in parts of a unit, and a device's part of `whole`, in as many parts, is rounded
    # up: the model's peak is never above a schedule's. Where bytes count, there is one part.
    v, problem = Variables(search, counts_time=False), search.problem
    add_time_constraints(v)
    held, unit, high = most_bytes(v), v.units.bytes, v.most * math.ceil(problem.byte_weights.max())
    low, parts = min(int(search.lower_bound) // unit, v.most), 1
    if not problem.counts_alike:
        low, parts = 0, 1 << max(0, min(MOST_DIGITS, (LARGEST_SUM.bit_length() - high.bit_length()) // 2))
    rooms = [-(-memory * parts // problem.whole) for memory in problem.memories]
    peak = v.number(max(0, low), high * parts, int(search.best_value * parts / unit))
    for most, room in zip(held, rooms, strict=True):
        v.model.add(most * parts**2 <= peak * room)
    if len({*problem.memory_limits}) > 1:
        _keep_limits(v, held)
    v.model.minimize(peak)

    def bound(least: float) -> float:
        below = math.ceil(least - 1e-6) - 1  # some device holds more units than these parts are
        units = [max(0, below * room // parts**2 + 1) for room in rooms]
        peaks = ([unit * most * (at == device) for at, most in enumerate(units)] for device in v.devices)
        return min(map(problem.counted_peak, peaks))

    return v, bound


def minimised_excess(search: Search) -> Minimised:
    """Minimise by how much the device that exceeds its memory limit most does so."""
    v = Variables(search, counts_time=False)
    add_time_constraints(v)
    excess = v.number(0, v.most, search.best_fitness[0] // v.units.bytes)
    _keep_limits(v, most_bytes(v), excess)
    v.model.minimize(excess)
    return v, lambda least: math.ceil(least - 1e-6) * v.units.bytes


def minimised_makespan(search: Search) -> Minimised:
    """Minimise the end of the last op, no later than in the hint if that is feasible; sent tensors are read later."""
    v = Variables(search, counts_time=True)
    steps_of_device = add_time_constraints(v)
    if knows_memory(search.problem) and may_exceed(search.problem):
        _keep_limits(v, most_bytes(v))
    else:
        _keep_limits(v, [bytes_throughout(v, device) for device in v.devices])
    low = max(0, math.floor(search.lower_bound / v.units.microseconds * (1 - 1e-12)) * v.units.steps)
    high = v.units.horizon if search.best_fitness[0] else max(low, v.hint.makespan)
    makespan = v.number(min(low, high), high, v.hint.makespan)
    for steps in steps_of_device.values():  # all that a device does fits in, which helps the solver's bound
        v.model.add(sum(duration * literal for literal, _, duration in steps) <= makespan)
    for step in v.ops:
        v.model.add(makespan >= step.end)
    v.model.minimize(makespan)
    return v, lambda least: math.ceil(least - 1e-6) // v.units.steps * v.units.microseconds


def _keep_limits(v: Variables, held: list[Any], excess: Any = 0) -> None:
    """Keep the bytes of each device within its limit, or exceed it by no more."""
    for most, limit in zip(held, v.problem.memory_limits, strict=True):
        if limit is not None:
            v.model.add(most <= min(limit // v.units.bytes, v.most) + excess)
