"""A memory-aware greedy sequence on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph_arrays import GraphArrays
from ..jit import kernel


@kernel
def spread(
    g: GraphArrays,
    keys: Any,
    noise: float,
    devices: int,
    pending: Any,
    left: Any,
    copies: Any,
    resident: Any,
    ready: Any,
    order: Any,
    placement: Any,
) -> None:
    """Fill `order` and `placement`: the ready op and device that raise the peak least, then grow memory least.

    A tensor counts on every device that it was brought to until all its readers have run, a view counts
    nothing. Among the choices that raise the peak equally, the one of least bytes added, less the op's key
    times `noise` of the largest tensor; then the first ready, then the first device. Scratch arrays:
    `pending` and `ready` (per op), `left` (readers, per tensor), `copies` (bit per device, per tensor),
    `resident` (per device).
    """
    ops = g.runtime.size
    count = 0
    resident[:] = 0
    copies[:] = 0
    largest = 0
    for tensor in range(g.tensor_size.size):
        largest = max(largest, g.tensor_size[tensor])
        left[tensor] = g.consumer_ptr[tensor + 1] - g.consumer_ptr[tensor]
    for op in range(ops):
        pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
        if pending[op] == 0:
            ready[count] = op
            count += 1
    peak = 0
    for step in range(ops):
        chosen, where, least_peak, least = -1, 0, 0, 0.0
        for at in range(count):
            op = ready[at]
            made = g.persistent[op]
            for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
                if g.alias_of[tensor] < 0:
                    made += g.tensor_size[tensor]
            for device in range(devices):
                bit = np.uint64(1) << np.uint64(device)
                brought, freed = 0, 0
                for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
                    tensor = g.inputs[i]
                    size = g.tensor_size[tensor] if g.alias_of[tensor] < 0 else 0
                    if copies[tensor] & bit == 0:
                        brought += g.tensor_size[tensor]
                    if left[tensor] == 1 and not g.is_final[tensor]:
                        freed += size
                reached = max(peak, resident[device] + brought + made + g.workspace[op])
                grown = np.float64(brought + made - freed) - np.float64(noise) * np.float64(keys[op]) * largest
                if chosen < 0 or reached < least_peak or (reached == least_peak and grown < least):
                    chosen, where, least_peak, least = at, device, reached, grown
        op = ready[chosen]
        count -= 1
        for at in range(chosen, count):
            ready[at] = ready[at + 1]
        order[step] = op
        placement[op] = where
        peak = least_peak
        bit = np.uint64(1) << np.uint64(where)
        resident[where] += g.persistent[op]
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[i]
            size = g.tensor_size[tensor] if g.alias_of[tensor] < 0 else 0
            if copies[tensor] & bit == 0:
                copies[tensor] |= bit
                resident[where] += size
            left[tensor] -= 1
            if left[tensor] == 0 and not g.is_final[tensor]:
                for device in range(devices):
                    if (copies[tensor] >> np.uint64(device)) & np.uint64(1):
                        resident[device] -= size
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if g.alias_of[tensor] < 0 and (left[tensor] > 0 or g.is_final[tensor]):
                resident[where] += g.tensor_size[tensor]
            copies[tensor] |= bit
            for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                consumer = g.consumers[at]
                pending[consumer] -= 1
                if pending[consumer] == 0:
                    ready[count] = consumer
                    count += 1
