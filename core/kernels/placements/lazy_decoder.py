"""The lazy decoder: one key per op, the placement chosen while decoding (`docs/methods/several-devices.md`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..bits import bit_of, has_bit
from ..cost_model import State
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from .sequences import Due, new_due


class Lazy(NamedTuple):
    """Scratch of the decoders.

    Per op: `pending` inputs, `where` all inputs are (a bit per device), how many ops were taken with it
    (`taken`), and `order`. `ready` holds the ready ops, the most urgent first. `met` holds, per pair of
    devices, how many ops had been taken when they last synchronised. Per device: its `clock`, the `work` of
    the ready ops whose inputs are all there, in microseconds, whether it is `parked`, and its `resident`
    bytes. Per tensor: how many readers are `left`, and, in `due`, where it was sent.
    """

    pending: IndexArray
    where: Any
    taken: IndexArray
    order: IndexArray
    ready: IndexArray
    met: IndexArray
    clock: FloatArray
    work: FloatArray
    parked: BoolArray
    resident: IntArray
    left: IndexArray
    due: Due


def new_lazy(g: GraphArrays, devices: int) -> Lazy:
    """Allocate the scratch."""
    ops = len(g.runtime)
    return Lazy(
        pending=np.empty(ops, np.int32),
        where=np.empty(ops, np.uint64),
        taken=np.empty(ops, np.int32),
        order=np.empty(ops, np.int32),
        ready=np.empty(ops, np.int32),
        met=np.empty(devices * devices, np.int32),
        clock=np.empty(devices),
        work=np.empty(devices),
        parked=np.empty(devices, np.bool_),
        resident=np.empty(devices, np.int64),
        left=np.empty(len(g.tensor_size), np.int32),
        due=new_due(g, devices),
    )


@inlined
def _is_far(g: GraphArrays, s: State, z: Lazy, tensor: int, device: int) -> Any:
    """Whether a tensor would have to be sent to a device."""
    return s.placement[g.producer[tensor]] != device and not has_bit(z.due.sent[tensor], device)


@inlined
def _find(g: GraphArrays, s: State, z: Lazy, op: int, devices: int) -> None:
    """Note where all inputs of a ready op are, or could have been sent when devices last synchronised."""
    for device in range(devices):
        if has_bit(z.where[op], device):
            continue
        here = True
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            maker = g.producer[tensor]
            if _is_far(g, s, z, tensor, device) and z.taken[maker] > z.met[s.placement[maker] * devices + device]:
                here = False
                break
        if here:
            z.where[op] |= bit_of(device)
            z.work[device] += g.runtime[op]


@inlined
def _insert(z: Lazy, keys: Any, size: int, op: int) -> int:
    """Add to the ready ops: larger key first, then the smaller op."""
    at = size
    while at > 0:
        other = z.ready[at - 1]
        if keys[other] > keys[op] or (keys[other] == keys[op] and other < op):
            break
        z.ready[at] = other
        at -= 1
    z.ready[at] = op
    return size + 1


@inlined
def _next_device(z: Lazy, devices: int, any_device: bool) -> int:
    """Return the device whose clock lags most, the first of equals, among those not parked; -1 for none."""
    found = -1
    for device in range(devices):
        if (any_device or not z.parked[device]) and (found < 0 or z.clock[device] < z.clock[found]):
            found = device
    return found


@inlined
def _choose_near(z: Lazy, size: int, device: int) -> int:
    """Return the place of the most urgent ready op whose inputs are all on `device`, or -1."""
    chosen = -1
    for at in range(size):
        if has_bit(z.where[z.ready[at]], device):
            chosen = at
            break
    return chosen


@inlined
def _choose_far(
    g: GraphArrays, s: State, z: Lazy, size: int, device: int, patience: float, forced: bool, links: Links
) -> int:
    """Return the place among the ready ops of the one that could start first on `device`, or -1.

    An op whose inputs are all on another device is left to that one if it should get to it sooner, that is
    after `patience` times its other local work; transfers that cost nothing are always worth it.
    """
    chosen = -1
    least = np.inf
    for at in range(size):
        op = z.ready[at]
        start, cost = z.clock[device], 0.0
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[i]
            if _is_far(g, s, z, tensor, device):
                maker = g.producer[tensor]
                source = s.placement[maker]
                cost += links.latency + g.tensor_size[tensor] * links.microseconds_per_byte
                if z.taken[maker] > z.met[source * links.devices + device]:
                    start = max(start, z.clock[source])
        start += cost
        if start >= least:
            continue
        elsewhere = np.inf
        if not forced and cost > 0.0:
            for other in range(links.devices):
                if has_bit(z.where[op], other):
                    elsewhere = min(elsewhere, z.clock[other] + patience * (z.work[other] - g.runtime[op]))
        if start <= elsewhere:
            chosen, least = at, start
    return chosen


@inlined
def _meet(g: GraphArrays, s: State, z: Lazy, op: int, device: int, taken: int, devices: int) -> None:
    """Synchronise a device with those that hold inputs of an op, made since they last met."""
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        maker = g.producer[g.inputs[i]]
        source = s.placement[maker]
        if _is_far(g, s, z, g.inputs[i], device) and z.taken[maker] > z.met[source * devices + device]:
            now = max(z.clock[source], z.clock[device])
            z.clock[source] = now
            z.clock[device] = now
            z.met[source * devices + device] = taken
            z.met[device * devices + source] = taken


@inlined
def _run(g: GraphArrays, s: State, z: Lazy, op: int, device: int, links: Links) -> None:
    """Send an op what it lacks and run it; no device is parked any more."""
    for other in range(links.devices):
        z.parked[other] = False
        if has_bit(z.where[op], other):
            z.work[other] -= g.runtime[op]
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        if _is_far(g, s, z, tensor, device):
            z.due.sent[tensor] |= bit_of(device)
            cost = links.latency + g.tensor_size[tensor] * links.microseconds_per_byte
            z.clock[s.placement[g.producer[tensor]]] += cost
            z.clock[device] += cost
    z.clock[device] += g.runtime[op]
    s.placement[op] = device


@kernel
def arrange(g: GraphArrays, s: State, z: Lazy, keys: Any, links: Links) -> None:
    """Fill `z.order` and `s.placement` from `ops + 1` keys: one per op, and the patience.

    The device whose clock lags takes the most urgent ready op whose inputs are all on it. If there is none it
    synchronises with the devices that hold the inputs of the op that could start first; from then on all that
    these had made counts as sent. If every such op had better stay where it is, the device is parked until
    the next op is taken; when all are parked, the one that lags takes the op that could start first.
    """
    ops, devices = g.runtime.size, links.devices
    patience = np.float64(keys[ops])
    z.clock[:] = 0.0
    z.work[:] = 0.0
    z.met[:] = 0
    z.parked[:] = False
    z.where[:] = 0
    z.due.sent[:] = 0
    size = 0
    for op in range(ops):
        z.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
        if z.pending[op] == 0:
            _find(g, s, z, op, devices)
            size = _insert(z, keys, size, op)
    taken = 0
    while taken < ops:
        device = _next_device(z, devices, False)
        forced = device < 0
        if forced:
            device = _next_device(z, devices, True)
        chosen = _choose_near(z, size, device)
        if chosen < 0:
            chosen = _choose_far(g, s, z, size, device, patience, forced, links)
            if chosen < 0:
                z.parked[device] = True
                continue
            _meet(g, s, z, z.ready[chosen], device, taken, devices)
            for at in range(size):
                _find(g, s, z, z.ready[at], devices)
        op = z.ready[chosen]
        size -= 1
        for at in range(chosen, size):
            z.ready[at] = z.ready[at + 1]
        _run(g, s, z, op, device, links)
        z.order[taken] = op
        taken += 1
        z.taken[op] = taken
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                consumer = g.consumers[at]
                z.pending[consumer] -= 1
                if z.pending[consumer] == 0:
                    _find(g, s, z, consumer, devices)
                    size = _insert(z, keys, size, consumer)
