"""A memory-aware greedy sequence on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bits import bit_of, has_bit
from ..cost_model import State
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .lazy_decoder import Lazy


@inlined
def _own_bytes(g: GraphArrays, tensor: int) -> Any:
    """Return what a tensor counts: a view nothing."""
    return g.tensor_size[tensor] if g.alias_of[tensor] < 0 else 0


@inlined
def _made_bytes(g: GraphArrays, op: int) -> Any:
    """Return what an op adds to its device for good or for its readers."""
    made = g.persistent[op]
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        made += _own_bytes(g, tensor)
    return made


@inlined
def _brought_and_freed(g: GraphArrays, z: Lazy, op: int, device: int) -> tuple[int, int]:
    """Return the bytes that an op's inputs bring to a device, and those that it is the last to read."""
    brought, freed = 0, 0
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        if not has_bit(z.due.sent[tensor], device):
            brought += g.tensor_size[tensor]
        if z.left[tensor] == 1 and not g.is_final[tensor]:
            freed += _own_bytes(g, tensor)
    return brought, freed


@inlined
def _read(g: GraphArrays, z: Lazy, op: int, device: int) -> None:
    """Bring an op's inputs to its device, and drop everywhere what it is the last to read."""
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        size = _own_bytes(g, tensor)
        if not has_bit(z.due.sent[tensor], device):
            z.due.sent[tensor] |= bit_of(device)
            z.resident[device] += size
        z.left[tensor] -= 1
        if z.left[tensor] == 0 and not g.is_final[tensor]:
            for other in range(z.resident.size):
                if has_bit(z.due.sent[tensor], other):
                    z.resident[other] -= size


@inlined
def _make(g: GraphArrays, z: Lazy, op: int, device: int, count: int) -> int:
    """Put an op's outputs on its device and append the ops that this makes ready; returns how many there are."""
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        if z.left[tensor] > 0 or g.is_final[tensor]:
            z.resident[device] += _own_bytes(g, tensor)
        z.due.sent[tensor] |= bit_of(device)
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            consumer = g.consumers[at]
            z.pending[consumer] -= 1
            if z.pending[consumer] == 0:
                z.ready[count] = consumer
                count += 1
    return count


@kernel
def decode_for_peak(g: GraphArrays, s: State, z: Lazy, keys: Any) -> None:
    """Fill `z.order` and `s.placement`: the ready op and device that raise the peak least, then grow memory least.

    A tensor counts on every device that it was brought to until all its readers have run, a view counts
    nothing. Among the choices that raise the peak equally, the one of least bytes added, less the op's key
    times the last key (the noise) of the largest tensor; then the first ready, then the first device.
    """
    ops, noise, devices = g.runtime.size, np.float64(keys[g.runtime.size]), z.clock.size
    count, peak, largest = 0, 0, 0
    z.resident[:] = 0
    z.due.sent[:] = 0
    for tensor in range(g.tensor_size.size):
        largest = max(largest, g.tensor_size[tensor])
        z.left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor]
    for op in range(ops):
        z.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
        if z.pending[op] == 0:
            z.ready[count] = op
            count += 1
    for step in range(ops):
        chosen, where, least_peak, least = -1, 0, 0, 0.0
        for at in range(count):
            op = z.ready[at]
            made = _made_bytes(g, op)
            for device in range(devices):
                brought, freed = _brought_and_freed(g, z, op, device)
                reached = max(peak, z.resident[device] + brought + made + g.workspace[op])
                grown = np.float64(brought + made - freed) - noise * np.float64(keys[op]) * largest
                if chosen < 0 or reached < least_peak or (reached == least_peak and grown < least):
                    chosen, where, least_peak, least = at, device, reached, grown
        op = z.ready[chosen]
        count -= 1
        for at in range(chosen, count):
            z.ready[at] = z.ready[at + 1]
        z.order[step] = op
        s.placement[op] = where
        peak = least_peak
        z.resident[where] += g.persistent[op]
        _read(g, z, op, where)
        count = _make(g, z, op, where, count)
