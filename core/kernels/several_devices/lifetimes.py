"""Peak memory of a sequence on several devices by its tensors' lifetimes, and its annealing.

A sequence here is an order of the ops, a device for each, and a delay for each transfer: 0 sends a tensor as
soon as its home has read it for the last time, 1 right before it is read on the target, and what is between lies
between. A tensor that its home still reads when the target does is sent right before that. The peak follows
from where in the order each copy begins and ends, without stepping through a schedule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import IndexArray, IntArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .sequences import drawn_device, peak_penalty, shift, shift_within


class Sequence(NamedTuple):
    """A sequence.

    Parameters
    ----------
    order, position
        Shape `(ops,)`: the ops in their order, and the place of each.
    placement
        Shape `(ops,)`: the device of each op.
    delay
        Shape `(tensors * devices,)`: that of the transfer of each tensor to each device.
    """

    order: IndexArray
    position: IndexArray
    placement: IndexArray
    delay: Any


class Lifetimes(NamedTuple):
    """Scratch: bytes that `change` on a device before each place of the order, `(ops + 1) * devices`.

    Per device: the `first` and `last` place where a tensor is read, and the bytes `resident`. Per tensor and
    device, if the graph has views, the last place where a view holds the tensor's buffer (`held`).
    """

    change: IntArray
    first: IndexArray
    last: IndexArray
    resident: IntArray
    held: IndexArray


def new_lifetimes(g: GraphArrays, devices: int) -> Lifetimes:
    """Allocate the scratch."""
    ops, tensors = len(g.runtime), len(g.tensor_size)
    return Lifetimes(
        np.empty((ops + 1) * devices, np.int64),
        np.empty(devices, np.int32),
        np.empty(devices, np.int32),
        np.empty(devices, np.int64),
        np.empty(tensors * devices if (g.alias_of >= 0).any() else 0, np.int32),
    )


@inlined
def _find_uses(g: GraphArrays, z: Lifetimes, q: Sequence, tensor: int) -> None:
    """Fill `z.first` and `z.last` for a tensor; a device that neither made nor reads it has `last` -1."""
    for device in range(z.first.size):
        z.first[device] = q.order.size
        z.last[device] = -1
    maker = g.producer[tensor]
    z.last[q.placement[maker]] = q.position[maker]
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        reader = g.consumers[at]
        device, place = q.placement[reader], q.position[reader]
        z.first[device] = min(z.first[device], place)
        z.last[device] = max(z.last[device], place)


@inlined
def sent_after(z: Lifetimes, home: int, target: int, delay: float) -> Any:
    """Return the place in the order after which a tensor is sent, once its uses are known."""
    latest = z.first[target] - 1
    if latest <= z.last[home]:
        return latest
    return z.last[home] + int(delay * (latest - z.last[home]) + 0.5)


@inlined
def _find_changes(g: GraphArrays, z: Lifetimes, q: Sequence) -> None:
    """Fill `z.change`: backwards, so that a view's uses are known before those of what it is a view of."""
    ops, devices = q.order.size, z.first.size
    z.change[:] = 0
    z.held[:] = -1
    for here in range(ops - 1, -1, -1):
        op = q.order[here]
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if g.is_control[tensor]:
                continue
            _find_uses(g, z, q, tensor)
            end = ops - 1 if g.is_final[tensor] else z.last[home]
            for device in range(devices):
                if device != home and z.last[device] >= 0:
                    sent = sent_after(z, home, device, q.delay[tensor * devices + device])
                    end = max(end, sent)
                    until = z.last[device]
                    if z.held.size > 0:
                        until = max(until, z.held[tensor * devices + device])
                    z.change[(sent + 1) * devices + device] += g.tensor_size[tensor]
                    z.change[(until + 1) * devices + device] -= g.tensor_size[tensor]
            if z.held.size > 0:
                end = max(end, z.held[tensor * devices + home])
            if g.alias_of[tensor] >= 0:
                cell = g.alias_of[tensor] * devices + home
                z.held[cell] = max(z.held[cell], end)
            else:
                z.change[here * devices + home] += g.tensor_size[tensor]
                z.change[(end + 1) * devices + home] -= g.tensor_size[tensor]


@kernel
def price_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, size: float, bar: float) -> tuple[float, int]:
    """Return the penalties of a sequence, and its peak in bytes.

    The penalty of a step of `m` bytes is `(m / size) ** 16`, a smooth stand-in for the peak. Gives up, with an
    infinite penalty, as soon as the sum exceeds `bar`.
    """
    ops, devices = q.order.size, z.first.size
    _find_changes(g, z, q)
    z.resident[:] = 0
    for op in range(ops):
        z.resident[q.placement[op]] += g.persistent[op]
    peak, total = 0, 0.0
    for here in range(ops):
        op = q.order[here]
        for device in range(devices):
            change = z.change[here * devices + device]
            z.resident[device] += change
            runs = q.placement[op] == device
            if runs or change > 0:
                memory = z.resident[device] + (g.workspace[op] if runs else 0)
                peak = max(peak, memory)
                total += peak_penalty(memory / size)
        if total > bar:
            return np.inf, peak
    return total, peak


@inlined
def _drawn_transfer(g: GraphArrays, q: Sequence, op: int, draws: Any, devices: int) -> Any:
    """Return which transfer of an op's outputs a move delays anew, as `tensor * devices + target`, or -1 for none."""
    outputs = g.output_ptr[op + 1] - g.output_ptr[op]
    if devices == 1 or draws[5] >= 0.1 or outputs == 0:
        return -1
    tensor = g.output_ptr[op] + int(draws[5] * 10.0 * outputs)
    return tensor * devices + drawn_device(q.placement[op], draws[2], devices)


@inlined
def _copy(q: Sequence, to: Sequence) -> None:
    """Copy a sequence, all but its positions."""
    for at in range(q.order.size):
        to.order[at] = q.order[at]
        to.placement[at] = q.placement[at]
    for at in range(q.delay.size):
        to.delay[at] = q.delay[at]


@kernel
def anneal_lifetimes(
    g: GraphArrays,
    z: Lifetimes,
    q: Sequence,
    size: float,
    temperature: float,
    draws: Any,
    cost: tuple[float, int],
    best: Sequence,
) -> tuple[float, int]:
    """Anneal: each row of `draws` (uniform, 6 columns) is one move and one evaluation.

    A move redraws a delay (one move of ten), or gives an op another device, another place between those that it
    waits for and those that wait for it, or both. It is kept if the penalties stay under their present sum times
    `u ** -temperature`.

    Parameters
    ----------
    g, z
        The graph, and scratch.
    q, best
        The present sequence, which moves change; receives that of least peak, without positions.
    size
        Bytes that count as 1 in the penalties.
    temperature, draws
        What decides the moves.
    cost
        The penalties of the present sequence, and the least peak known, in bytes.

    Returns
    -------
    tuple
        Both after the moves.
    """
    devices, (energy, peak) = z.first.size, cost
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * q.order.size)
        before, here = q.placement[op], q.position[op]
        cell = _drawn_transfer(g, q, op, draws[move], devices)
        old_delay = q.delay[cell] if cell >= 0 else np.float32(0.0)
        if cell >= 0:
            q.delay[cell] = min(1.0, max(0.0, 2.0 * draws[move, 3] - 0.5))
        else:
            if devices > 1 and draws[move, 1] < 0.5:
                q.placement[op] = drawn_device(before, draws[move, 2], devices)
            if devices == 1 or draws[move, 1] >= 0.1:
                shift_within(g, q.order, q.position, op, draws[move, 3])
        bar = energy * (1.0 - draws[move, 4]) ** -temperature
        new, reached = price_lifetimes(g, z, q, size, bar)
        if new > bar:
            if cell >= 0:
                q.delay[cell] = old_delay
            q.placement[op] = before
            shift(q.order, q.position, q.position[op], here)
            continue
        energy = new
        if reached < peak:
            peak = reached
            _copy(q, best)
    return energy, peak


@kernel
def write_transfers(g: GraphArrays, z: Lifetimes, q: Sequence, cells: Any, after: Any) -> int:
    """List a sequence's transfers: `tensor * devices + target`, and the place after which each is sent."""
    count, devices = 0, z.first.size
    for op in q.order:
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            _find_uses(g, z, q, tensor)
            for device in range(devices):
                if device != home and z.last[device] >= 0:
                    cells[count] = tensor * devices + device
                    after[count] = sent_after(z, home, device, q.delay[tensor * devices + device])
                    count += 1
    return count


@kernel
def read_delays(g: GraphArrays, z: Lifetimes, q: Sequence, after: Any) -> None:
    """Fill `q.delay` from the place after which each tensor is sent to each device."""
    devices = z.first.size
    for op in q.order:
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            _find_uses(g, z, q, tensor)
            for device in range(devices):
                cell = tensor * devices + device
                earliest, latest = z.last[home], z.first[device] - 1
                q.delay[cell] = 1.0
                if device != home and z.last[device] >= 0 and latest > earliest:
                    share = (after[cell] - earliest) / (latest - earliest)
                    q.delay[cell] = min(1.0, max(0.0, share))
