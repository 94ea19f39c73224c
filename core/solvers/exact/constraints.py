"""The constraints of the CP-SAT model: what the cost model asks of devices, times and memory, a function each."""

from __future__ import annotations

from typing import Any

from .redundant import devices_are_numbered_as_they_are_used
from .variables import Buffer, Variables


def add_time_constraints(v: Variables) -> None:
    """Add all that holds whatever is minimised."""
    ops_run_on_one_device_each(v)
    one_op_stays_on_device_0(v)
    devices_are_numbered_as_they_are_used(v)
    needed_transfers_are_sent(v)
    inputs_are_there(v)
    devices_run_one_step_at_a_time(v)


def add_memory_constraints(v: Variables) -> None:
    """Add what ties the peak to the rest."""
    buffers_live_to_their_last_use(v)
    devices_hold_what_is_alive(v)


def ops_run_on_one_device_each(v: Variables) -> None:
    """Run each op on exactly one device."""
    for on in v.on:
        v.model.add_exactly_one(on)


def one_op_stays_on_device_0(v: Variables) -> None:
    """Devices are alike, so one op may stay where it is (REGAL A.2)."""
    v.model.add(v.on[v.problem.fixed_op][0] == 1)


def needed_transfers_are_sent(v: Variables) -> None:
    """Send a tensor to a device if and only if a reader is there and its producer is not."""
    for (tensor, device), sent in v.sent.items():
        v.check_time()
        home = v.on[v.producer[tensor]][device]
        here = [v.on[reader][device] for reader in v.readers[tensor]]
        v.model.add_implication(sent, ~home)
        v.model.add_bool_or([*here, ~sent])
        for reader in here:
            v.model.add_bool_or([~reader, home, sent])


def inputs_are_there(v: Variables) -> None:
    """Run an op after what it reads is produced and sent, and a transfer after its tensor is produced."""
    for tensor, readers in enumerate(v.readers):
        v.check_time()
        produced = v.ops[v.producer[tensor]].end
        for reader in readers:
            v.model.add(v.ops[reader].start >= produced)
        for device in v.devices:
            if (tensor, device) in v.sent:
                step, sent = v.transfers[tensor, device], v.sent[tensor, device]
                v.model.add(step.start >= produced).only_enforce_if(sent)
                for reader in readers:
                    both = [sent, v.on[reader][device]]
                    v.model.add(v.ops[reader].start >= step.end).only_enforce_if(both)


def devices_run_one_step_at_a_time(v: Variables) -> None:
    """Ops on a device, and transfers to it and from it, do not overlap."""
    interval = v.model.new_optional_fixed_size_interval_var
    for device in v.devices:
        steps = [interval(s.start, s.duration, v.on[op][device], "") for op, s in enumerate(v.ops)]
        for (tensor, target), step in v.transfers.items():
            v.check_time()
            busy = v.sent[tensor, target]
            if target != device:
                busy = v.both(busy, v.on[v.producer[tensor]][device])
            v.busy[(tensor, target), device] = busy
            steps.append(interval(step.start, step.duration, busy, ""))
        v.model.add_no_overlap(steps)


def buffers_live_to_their_last_use(v: Variables) -> None:
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
            members += [(view, True, [*given, v.on[v.producer[view]][device]]) for view in views[member]]


def _member_is_used(
    v: Variables, buffer: Buffer, tensor: int, is_produced_here: bool, given: list[Any], device: int
) -> None:
    """Keep a buffer for the uses of a tensor that lives in it if the literals `given` hold."""
    for reader in v.readers[tensor]:
        _lasts_to(v, buffer, v.ops[reader].end, [*given, v.on[reader][device]])
    if not is_produced_here:
        return
    for target in v.devices:
        if target != device and (tensor, target) in v.sent:
            _lasts_to(v, buffer, v.transfers[tensor, target].end, [*given, v.sent[tensor, target]])
    if v.graph.is_final[tensor]:
        _lasts_to(v, buffer, v.units.horizon, given)


def _lasts_to(v: Variables, buffer: Buffer, end: Any, given: list[Any]) -> None:
    v.model.add(buffer.end >= end).only_enforce_if(given)


def devices_hold_what_is_alive(v: Variables) -> None:
    """On each device: persistent bytes, buffers alive and the workspace of the op that runs, within the peak."""
    unit = v.units.bytes
    workspace, persistent = (v.graph.workspace // unit).tolist(), (v.graph.persistent // unit).tolist()
    for device in v.devices:
        held = [_lifetime(v, key, buffer) for key, buffer in v.buffers.items() if key[2] == device]
        for op, step in enumerate(v.ops):
            if workspace[op]:
                present = v.on[op][device]
                running = v.model.new_optional_fixed_size_interval_var(step.start, step.duration, present, "")
                held.append((running, workspace[op]))
        room = v.model.new_int_var(0, v.most, "")
        weights = [size * on[device] for size, on in zip(persistent, v.on, strict=True) if size]
        v.model.add(room + sum(weights) <= v.peak)
        v.model.add_cumulative([interval for interval, _ in held], [size for _, size in held], room)


def _lifetime(v: Variables, key: tuple[bool, int, int], buffer: Buffer) -> tuple[Any, int]:
    """Return when a buffer is alive, and its size."""
    length = v.model.new_int_var(0, v.units.horizon, "")
    interval = v.model.new_optional_interval_var(buffer.since.start, length, buffer.end, buffer.present, "")
    return interval, v.size[key[1]]
