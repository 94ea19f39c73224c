"""List scheduling: ops in a given order, each where it ends first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..cost_model import MachineArrays, Scratch, begin, time_op, time_transfer
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel

NOWHERE = -1


class Greedy(NamedTuple):
    """What list scheduling goes by, and its scratch.

    Parameters
    ----------
    allowed
        Shape `(ops, devices)`: where an op may be.
    group
        Shape `(ops,)`: the op that stands for those that are on one device with it.
    ahead
        Shape `(ops, devices)`, or without rows for none: microseconds that are added to when an op ends, to choose its
        device.
    is_quick
        Whether only two devices are tried: that which holds most of what an op reads, and that which is free first.
        What it lacks then counts as sent when it was made (HEFT's assumption), since a blocking transfer just before
        the op would wait for both devices, and so no op would leave a busy one.
    chosen
        Shape `(ops,)`: per group its device, `NOWHERE` before one is chosen.
    clock, link
        Shape `(devices,)`: clocks, and links to the device that is tried, while it is.
    room, held
        Shape `(devices,)`: bytes that are left beside what stays throughout, and those of what an op reads.
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
def _try(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, op: int, device: int) -> Any:
    """Return when an op would end on a device, infinite if it cannot be sent something."""
    devices = s.clock.size
    for source in range(devices):
        z.clock[source] = s.clock[source]
        z.link[source] = s.link[source * devices + device]
    ready = 0.0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        there = s.there[tensor * devices + device]
        maker = g.producer[tensor]
        if there < 0.0 and z.chosen[z.group[maker]] == NOWHERE and z.allowed[maker, device]:
            there = 0.0  # it will have its home here
        if there < 0.0 and z.chosen[z.group[maker]] == NOWHERE:
            continue
        if there < 0.0:
            source = z.chosen[z.group[maker]]
            if m.latency[source, device] == np.inf:
                return np.inf
            there = max(0.0, s.there[tensor * devices + source])
            takes = m.latency[source, device] + g.tensor_size[tensor] * m.per_byte[source, device]
            if not m.beside and not z.is_quick:
                there = max(there, z.clock[source], z.clock[device])
                z.clock[source] = there + takes
                z.clock[device] = there + takes
            elif m.contention and not z.is_quick:
                there = max(there, z.link[source])
                z.link[source] = there + takes
            there += takes
        ready = max(ready, there)
    return max(ready, z.clock[device]) + m.times[op, device]


@inlined
def _bytes_to_stay(g: GraphArrays, s: Scratch, z: Greedy, op: int, device: int) -> int:
    """Return the bytes that stay on a device throughout if an op runs there, with residents that get their home so."""
    size = g.persistent[op]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        maker = g.producer[g.inputs[at]]
        if z.chosen[z.group[maker]] == NOWHERE and z.allowed[maker, device]:
            size += g.persistent[maker]
    return int(size)


@inlined
def _settle(z: Greedy, op: int, device: int) -> None:
    z.chosen[z.group[op]] = device


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
    z.held[:] = 0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        source = z.chosen[z.group[g.producer[g.inputs[at]]]]
        if source != NOWHERE:
            z.held[source] += g.tensor_size[g.inputs[at]]
    near, free = NOWHERE, NOWHERE
    for device in range(z.held.size):
        if _may_be(z, op, device):
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


@kernel
def list_ops(g: GraphArrays, m: MachineArrays, s: Scratch, z: Greedy, order: IndexArray, static: bool) -> bool:
    """Place some ops more in `s.placement`, in this order; returns whether all that they lack can be sent.

    Each op goes where it ends first, `z.ahead` added, among devices with room for what stays there; a resident has its
    home where it is read first, if it may and has room. With `static`, what each device holds throughout is kept within
    its limit as far as that goes.
    """
    devices = s.clock.size
    for op in order:
        best = _choose(g, m, s, z, op, static)
        _settle(z, op, best)
        s.placement[op] = best
        z.room[best] -= g.persistent[op]
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            maker = g.producer[tensor]
            if maker >= m.first_home and s.placement[maker] == NOWHERE:
                home = z.chosen[z.group[maker]]
                if home == NOWHERE:
                    fits = z.allowed[maker, best] and (not static or g.persistent[maker] <= z.room[best])
                    home = best if fits else _roomiest(m, z, maker, best)
                _settle(z, maker, home)
                s.placement[maker] = home
                z.room[home] -= g.persistent[maker]
                time_op(g, m, s, maker, home)
            if s.there[tensor * devices + best] < 0.0:
                _, end = time_transfer(g, m, s, tensor, best, -1.0)
                if end == np.inf:
                    return False
        time_op(g, m, s, op, best)
    return True
