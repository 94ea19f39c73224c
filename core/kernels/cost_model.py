"""The cost model, one step at a time (REGAL A.4): shared by the simulator and by every decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import FloatArray, IndexArray, IntArray
from .bits import bit_of, has_bit
from .graph_arrays import GraphArrays, most_transfers
from .jit import inlined, kernel
from .links import Links


class State(NamedTuple):
    """What changes while a schedule is stepped through.

    A tensor on a device is the index `tensor * devices + device`; so is a buffer, named after the tensor
    that started it there. `ready` and `transfers` receive what one step made possible.
    """

    placement: IndexArray
    pending: IndexArray
    clock: FloatArray
    resident: IntArray
    peak: IntArray
    buffer: IndexArray
    uses: IndexArray
    ready: IndexArray
    transfers: IndexArray


def new_state(g: GraphArrays, devices: int, memory: bool) -> State:
    """Allocate a state; without memory accounting the per-device tensor arrays stay empty."""
    ops = len(g.runtime)
    cells = len(g.tensor_size) * devices if memory else 0
    read = g.consumer_ptr[g.output_ptr]
    most_consumers = int(np.diff(read).max())
    return State(
        placement=np.empty(ops, np.int32),
        pending=np.empty(ops, np.int32),
        clock=np.empty(devices),
        resident=np.empty(devices, np.int64),
        peak=np.empty(devices, np.int64),
        buffer=np.empty(cells, np.int32),
        uses=np.empty(cells, np.int32),
        ready=np.empty(ops, np.int32),
        transfers=np.empty(most_consumers, np.int32),
    )


class Steps(NamedTuple):
    """Steps of a schedule as in `Schedule`, for kernels that write them; empty arrays ask for none.

    Parameters
    ----------
    items
        Shape `(steps,)`: an op, or `~tensor` for its transfer.
    targets
        Shape `(steps,)`: the device that runs the op, or receives the tensor.
    """

    items: IndexArray
    targets: IndexArray


def new_steps(g: GraphArrays, devices: int) -> Steps:
    """Allocate room for the steps of any schedule."""
    most = len(g.runtime) + most_transfers(g, devices)
    return Steps(np.empty(most, np.int32), np.empty(most, np.int32))


def no_steps() -> Steps:
    """Return what asks for no steps."""
    return Steps(np.empty(0, np.int32), np.empty(0, np.int32))


@inlined
def write_step(steps: Steps, at: int, item: int, target: int) -> int:
    """Write a step at a place, if steps are asked for; returns the next place."""
    if steps.items.size > 0:
        steps.items[at] = item
        steps.targets[at] = target
    return at + 1


@inlined
def reset(g: GraphArrays, s: State, memory: bool) -> None:
    """Start a schedule with the placement that `s` holds."""
    for op in range(g.runtime.size):
        s.pending[op] = g.input_ptr[op + 1] - g.input_ptr[op]
    for device in range(s.clock.size):
        s.clock[device] = 0.0
        s.resident[device] = 0
    if memory:
        for op in range(g.runtime.size):
            s.resident[s.placement[op]] += g.persistent[op]
    for device in range(s.clock.size):
        s.peak[device] = s.resident[device]


@inlined
def _release(g: GraphArrays, s: State, cell: int, device: int, devices: int) -> None:
    """One consumer of the tensor in `cell` has run; the last one frees its buffer."""
    buffer = s.buffer[cell]
    s.uses[buffer] -= 1
    if s.uses[buffer] == 0:
        s.resident[device] -= g.tensor_size[buffer // devices]


@inlined
def run_op(g: GraphArrays, s: State, op: int, devices: int, memory: bool) -> tuple[int, int]:
    """Run an op on its device; returns how many ops became ready and how many transfers became due."""
    device = s.placement[op]
    s.clock[device] += g.runtime[op]
    ready = 0
    transfers = 0
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        uses = 0
        targets = np.uint64(0)
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            consumer = g.consumers[at]
            where = s.placement[consumer]
            if where == device:
                uses += 1
                s.pending[consumer] -= 1
                if s.pending[consumer] == 0:
                    s.ready[ready] = consumer
                    ready += 1
            else:
                if targets & bit_of(where) == 0:
                    targets |= bit_of(where)
                    uses += 1
                    s.transfers[transfers] = tensor * devices + where
                    transfers += 1
        if memory and not g.is_control[tensor]:
            cell = tensor * devices + device
            if g.alias_of[tensor] >= 0:
                s.buffer[cell] = s.buffer[g.alias_of[tensor] * devices + device]
            else:
                s.buffer[cell] = cell
                s.uses[cell] = 0
                s.resident[device] += g.tensor_size[tensor]
            s.uses[s.buffer[cell]] += uses + (1 if g.is_final[tensor] else 0)
    if memory:
        s.peak[device] = max(s.peak[device], s.resident[device] + g.workspace[op])
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if not g.is_control[tensor]:
                _release(g, s, tensor * devices + device, device, devices)
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            unused = g.alias_of[tensor] < 0 and not g.is_control[tensor]
            if unused and s.uses[tensor * devices + device] == 0:
                s.resident[device] -= g.tensor_size[tensor]
    return ready, transfers


@inlined
def run_transfer(g: GraphArrays, s: State, tensor: int, target: int, links: Links, memory: bool) -> int:
    """Copy a tensor from its producer's device to another; returns how many ops became ready."""
    devices = links.devices
    source = s.placement[g.producer[tensor]]
    start = max(s.clock[source], s.clock[target])
    end = start + links.latency + g.tensor_size[tensor] * links.microseconds_per_byte
    s.clock[source] = end
    s.clock[target] = end
    ready = 0
    uses = 0
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        consumer = g.consumers[at]
        if s.placement[consumer] == target:
            uses += 1
            s.pending[consumer] -= 1
            if s.pending[consumer] == 0:
                s.ready[ready] = consumer
                ready += 1
    if memory and not g.is_control[tensor]:
        cell = tensor * devices + target
        s.buffer[cell] = cell
        s.uses[cell] = uses
        s.resident[target] += g.tensor_size[tensor]
        _release(g, s, tensor * devices + source, source, devices)
    if memory:
        s.peak[target] = max(s.peak[target], s.resident[target])
    return ready


@kernel
def step_through(g: GraphArrays, s: State, steps: Steps, links: Links, step_memory: Any, step_end: Any) -> int:
    """Simulate a schedule; returns the first step whose inputs are not there, or -1.

    `step_memory` receives each step's memory in bytes on its (target) device, `step_end` the clock after it.
    """
    reset(g, s, True)
    for step in range(steps.items.size):
        item = steps.items[step]
        device = steps.targets[step]
        before = s.peak[device]
        s.peak[device] = 0
        if item >= 0:
            if s.pending[item] != 0:
                return step
            run_op(g, s, item, links.devices, True)
            s.pending[item] = -1
        else:
            tensor = ~item
            if s.pending[g.producer[tensor]] != -1:
                return step
            run_transfer(g, s, tensor, device, links, True)
        step_memory[step] = s.peak[device]
        step_end[step] = s.clock[device]
        s.peak[device] = max(before, s.peak[device])
    return -1


@kernel
def find_receivers(
    consumer_ptr: IndexArray,
    consumers: IndexArray,
    producer: IndexArray,
    placement: IndexArray,
    receivers: NDArray[np.uint64],
) -> None:
    """Write for each tensor the set of devices that a placement has it sent to."""
    for tensor in range(producer.size):
        home = placement[producer[tensor]]
        devices = np.uint64(0)
        for at in range(consumer_ptr[tensor], consumer_ptr[tensor + 1]):
            device = placement[consumers[at]]
            if device != home:
                devices |= bit_of(device)
        receivers[tensor] = devices


@kernel
def strike_out_sent(items: IndexArray, targets: IndexArray, receivers: NDArray[np.uint64]) -> bool:
    """Take the receiver of each transfer out of its tensor's set; returns whether all were in it."""
    for step in range(items.size):
        if items[step] < 0:
            tensor = ~items[step]
            if tensor >= receivers.size or not has_bit(receivers[tensor], targets[step]):
                return False
            receivers[tensor] ^= bit_of(targets[step])
    return True
