"""Price a schedule given as an order of ops and a placement: each tensor is sent just before its first reader."""

from __future__ import annotations

from typing import Any

from .arrays import GraphArrays
from .cost_model import State, reset, run_op, run_transfer
from .jit import kernel


@kernel
def run_sequence(
    g: GraphArrays,
    s: State,
    order: Any,
    sent: Any,
    devices: int,
    memory: bool,
    latency: float,
    microseconds_per_byte: float,
    items: Any,
    targets: Any,
) -> Any:
    """Step through the ops of `order` on the devices that `s.placement` holds, and the transfers they need.

    Parameters
    ----------
    g, s
        The graph, and a state with the placement.
    order
        Shape `(ops,)`: a topological order.
    sent
        Scratch, shape `(tensors * devices,)`, all false; left so.
    devices, memory, latency, microseconds_per_byte
        The problem; whether to account for memory.
    items, targets
        Receive the steps as in `Schedule`.

    Returns
    -------
    tuple
        The number of steps; the peak in bytes, 0 without memory accounting; the makespan in microseconds.
    """
    reset(g, s, memory)
    step = 0
    for at in range(order.size):
        op = order[at]
        device = s.placement[op]
        for read in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[read]
            cell = tensor * devices + device
            if s.placement[g.producer[tensor]] != device and not sent[cell]:
                sent[cell] = True
                run_transfer(g, s, tensor, device, devices, memory, latency, microseconds_per_byte)
                items[step] = ~tensor
                targets[step] = device
                step += 1
        run_op(g, s, op, devices, memory)
        items[step] = op
        targets[step] = device
        step += 1
    peak, runtime = 0, 0.0
    for device in range(devices):
        peak = max(peak, s.peak[device])
        runtime = max(runtime, s.clock[device])
    for at in range(step):
        if items[at] < 0:
            sent[~items[at] * devices + targets[at]] = False
    return step, peak, runtime
