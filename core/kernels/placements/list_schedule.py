"""List scheduling: ops in a given order, each where it ends first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..cost_model import MachineArrays, Scratch, TimedSteps, begin, time_op, time_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel

NOWHERE = -1


class Greedy(NamedTuple):
    """What list scheduling goes by, and its scratch.

    Where an op is `allowed`, shape `(ops, devices)`, and the first op of its `group`. Microseconds `ahead` are added to
    when an op ends, to choose its device: shape `(ops, devices)`, or without rows for none. `chosen` is the device of a
    group, `NOWHERE` before. Per device: `clock` and `link` from it while another is tried, bytes left beside what stays
    throughout (`room`), and those `held` of what an op reads.

    If it `is_quick`, only two devices are tried: that which holds most of what an op reads, and that which is free
    first. What it lacks then counts as sent when it was made (HEFT's assumption), since a blocking transfer just before
    the op would wait for both devices, and so no op would leave a busy one.
    """

    allowed: BoolArray
    group: IndexArray
    ahead: FloatArray
    is_quick: bool
    chosen: IndexArray
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
def _may_be(z: Greedy, op: int, device: int) -> bool:
    may_be: bool = z.allowed[op, device] and z.chosen[z.group[op]] in (NOWHERE, device)
    return may_be


@inlined
def _nearest_and_free(g: GraphArrays, s: Scratch, z: Greedy, op: int) -> tuple[int, int]:
    """Return the device that holds most of what an op reads, and the one that is free first, the first of equals."""
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
def _choose(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, op: int, static: bool) -> int:
    """Return the device on which an op ends first, `z.ahead` added, if any among those with room for what stays."""
    near, free, devices = NOWHERE, NOWHERE, z.room.size
    if z.is_quick:
        near, free = _nearest_and_free(g, s, z, op)
        if near == free:
            return near
        devices = 2
    best, least, is_roomy = NOWHERE, np.inf, False
    for at in range(devices):
        device = at if not z.is_quick else near if at == 0 else free
        if not _may_be(z, op, device):
            continue
        roomy = not static or _bytes_to_stay(g, s, z, op, device) <= z.room[device]
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


@inlined
def _write(steps: TimedSteps, count: int, item: int, device: int, times: tuple[float, float]) -> int:
    """Write a step that starts and ends then; returns the next place."""
    steps.items[count] = item
    steps.targets[count] = device
    steps.start[count], steps.end[count] = times
    return count + 1


@kernel
def list_ops(
    g: GraphArrays,
    m: MachineArrays,
    s: Scratch,
    z: Greedy,
    order: IndexArray,
    static: bool,
    steps: TimedSteps,
    count: int,
) -> int:
    """Place some ops more in `s.placement`, in this order, and write their steps from the place `count` on.

    Each op goes where it ends first, `z.ahead` added, among devices with room for what stays there; a resident has its
    home where it is read first, if it may and has room. With `static`, what each device holds throughout is kept within
    its limit as far as that goes. Returns how many steps there are, -1 if something cannot be sent; those of residents
    are not written.
    """
    devices = s.clock.size
    for op in order:
        best = _choose(g, m, s, z, op, static)
        _settle(g, s, z, op, best)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if s.there[tensor * devices + best] >= 0.0:
                continue
            maker = g.producer[tensor]
            if s.placement[maker] == NOWHERE:
                home = z.chosen[z.group[maker]]
                if home == NOWHERE:
                    fits = z.allowed[maker, best] and (not static or g.persistent[maker] <= z.room[best])
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
