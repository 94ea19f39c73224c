"""Peak memory of a sequence on several devices by its tensors' lifetimes.

A sequence here is an order of the ops, a device for each, and whether each transfer is early or late: an early one is
sent as soon as its home has read the tensor for the last time, a late one right before it is read on the target. A
tensor that its home still reads when the target does is sent right before that. The peak follows from where in the
order each copy begins and ends, without stepping through a schedule.

Each beginning and end stays with an op: it is right before the op's step, or right after it. So an op that moves in the
order changes nothing of the tensors that it neither makes nor reads, but for the bases of views among those, and the
sequence is priced anew only from the first place to the last where bytes changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..cost_model import MachineArrays
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .sequences import peak_penalty


class Sequence(NamedTuple):
    """Ops in their order, the place and device of each, and per `tensor * devices + target` whether it is sent late."""

    order: IndexArray
    position: IndexArray
    placement: IndexArray
    late: BoolArray


class Scale(NamedTuple):
    """What bytes count in the penalties: nothing up to `base`, and 1 at `size`.

    The nearer the base is to the size, the more the fullest places alone count. `weight`, shape `(devices,)`, is what a
    byte of each device counts: more where there is less room; empty where all count alike.
    """

    base: float
    size: float
    weight: FloatArray


class Course(NamedTuple):
    """What each place of an order takes.

    Shape `(ops * devices,)`: bytes on each device during the step, without the workspace. Shape `(ops,)`: the most
    bytes of the device that runs and of those where bytes came, and their penalties.
    """

    memory: IntArray
    most: IntArray
    penalty: FloatArray


class Changes(NamedTuple):
    """Bytes that change right before and right after each op's step, and what a move has changed of them.

    Each `amount` has shape `((2 * ops + 1) * devices,)`: a row for right before each op, `2 * op`, one for right after
    it, and a last one for what is never freed. Its `stamp` is the move that changed it last, `clock` the present move.
    That has changed a `number` of `cells`, which were so much `before`.
    """

    amount: IntArray
    stamp: IndexArray
    clock: IntArray
    cells: IntArray
    before: IntArray
    number: IntArray


class Lifetimes(NamedTuple):
    """The lifetimes of a sequence: where its bytes change, what its places take and those of an other one, and scratch.

    Residents, from `first_resident` on, take no further bytes at home; some are `everywhere` that reads them from the
    start. Per device: bytes that stay (`persistent`), those at one place (`resident`), and of one tensor where it is
    read `first` and `last`, and the row to which views hold it (`held`). Per tensor, if the graph has views: the row at
    which its home lets go of it (`end`). The move by which each was touched last (`stamp`), the tensors that the
    present one has `touched`, and their ends before.
    """

    changes: Changes
    present: Course
    other: Course
    persistent: IntArray
    first_resident: int
    everywhere: BoolArray
    end: IndexArray
    resident: IntArray
    first: IndexArray
    last: IndexArray
    held: IndexArray
    stamp: IndexArray
    touched: IndexArray
    end_before: IndexArray


def new_lifetimes(g: GraphArrays, m: MachineArrays) -> Lifetimes:
    """Allocate what `price_lifetimes` fills."""
    ops, tensors, devices = len(g.runtime), len(g.tensor_size), len(m.limits)
    rows = (2 * ops + 1) * devices
    views = tensors if (g.alias_of >= 0).any() else 0

    def long(count: int) -> IntArray:
        return np.empty(count, np.int64)

    def short(count: int) -> IndexArray:
        return np.empty(count, np.int32)

    present, other = (Course(long(ops * devices), long(ops), np.empty(ops)) for _ in range(2))
    return Lifetimes(
        changes=Changes(long(rows), short(rows), long(1), long(rows), long(rows), long(1)),
        present=present,
        other=other,
        persistent=long(devices),
        first_resident=m.first_resident,
        everywhere=m.everywhere,
        end=short(views),
        resident=long(devices),
        first=short(devices),
        last=short(devices),
        held=short(devices),
        stamp=short(tensors),
        touched=short(tensors),
        end_before=short(views),
    )


@inlined
def find_uses(g: GraphArrays, z: Lifetimes, q: Sequence, tensor: Any) -> None:
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
def _is_sent_late(z: Lifetimes, q: Sequence, cell: Any, home: int, target: int) -> Any:
    """Whether a tensor is sent right before it is read on the target, once its uses are known."""
    return q.late[cell] or z.first[target] <= z.last[home]


@inlined
def place_of(q: Sequence, row: int) -> int:
    """Return the place before whose step bytes change, given the row of the changes; past the end if they never do."""
    return q.order.size if row == 2 * q.order.size else q.position[row >> 1] + (row & 1)


@inlined
def _later(q: Sequence, row: int, other: int) -> Any:
    """Return the later of two rows, -1 being none."""
    if row < 0 or other < 0:
        return max(row, other)
    place, other_place = place_of(q, row), place_of(q, other)
    return row if place > other_place or (place == other_place and row & 1 == 0) else other


@inlined
def _find_held(g: GraphArrays, z: Lifetimes, q: Sequence, tensor: Any) -> None:
    """Fill `z.held` for a tensor from the ends of its views, which must be known."""
    z.held[:] = -1
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        reader = g.consumers[at]
        for view in range(g.output_ptr[reader], g.output_ptr[reader + 1]):
            if g.alias_of[view] == tensor:
                device = q.placement[reader]
                z.held[device] = _later(q, z.held[device], z.end[view])


@inlined
def _add(c: Changes, cell: int, amount: int) -> None:
    """Change what changes in a row on a device, and remember what it was before the present move."""
    if c.stamp[cell] != c.clock[0]:
        c.stamp[cell] = c.clock[0]
        c.cells[c.number[0]], c.before[c.number[0]] = cell, c.amount[cell]
        c.number[0] += 1
    c.amount[cell] += amount


@kernel
def mark(g: GraphArrays, z: Lifetimes, q: Sequence, tensor: np.int32, sign: np.int64) -> None:
    """Add the bytes of a tensor's copies (sign 1), which sets its end, or take them away (sign -1).

    The ends of its views must be known. Numbers are typed, as a kernel is compiled for each type and each constant.
    """
    ops, devices, c = q.order.size, z.first.size, z.changes
    maker = g.producer[tensor]
    home, size = q.placement[maker], sign * g.tensor_size[tensor]
    find_uses(g, z, q, tensor)
    has_views = z.end.size > 0
    if has_views:
        _find_held(g, z, q, tensor)
    if tensor >= z.first_resident and z.everywhere[tensor]:
        for device in range(devices):
            if device != home and z.last[device] >= 0:
                _add(c, 2 * q.order[0] * devices + device, size)
                _add(c, 2 * ops * devices + device, -size)
        return
    end = 2 * ops if g.is_final[tensor] else 2 * q.order[z.last[home]] + 1
    for device in range(devices):
        if device != home and z.last[device] >= 0:
            is_late = _is_sent_late(z, q, tensor * devices + device, home, device)
            sent = 2 * q.order[z.first[device]] if is_late else 2 * q.order[z.last[home]] + 1
            until = 2 * q.order[z.last[device]] + 1
            if has_views:
                until = _later(q, until, z.held[device])
            end = _later(q, end, sent)
            _add(c, sent * devices + device, size)
            _add(c, until * devices + device, -size)
    if has_views:
        end = _later(q, end, z.held[home])
        if sign > 0:
            z.end[tensor] = end
    if g.alias_of[tensor] < 0 and tensor < z.first_resident:
        _add(c, 2 * maker * devices + home, size)
        _add(c, end * devices + home, -size)


@kernel
def price_places(
    g: GraphArrays, z: Lifetimes, q: Sequence, scale: Scale, first: Any, last: int, rest: float, bar: float
) -> tuple[float, int]:
    """Fill `z.other` from one place to another; return all penalties, the rest included, and the most weighed bytes.

    Gives up, with infinite penalties, as soon as they exceed `bar`.
    """
    devices, factor = z.first.size, 1.0 / (scale.size - scale.base)
    for device in range(devices):
        z.resident[device] = z.present.memory[(first - 1) * devices + device] if first else z.persistent[device]
    total, peak = rest, 0
    for here in range(first, last + 1):
        op = q.order[here]
        before = 2 * op * devices
        after = (2 * q.order[here - 1] + 1) * devices if here else -1
        most, penalty = 0, 0.0
        for device in range(devices):
            change = z.changes.amount[before + device]
            if here:
                change += z.changes.amount[after + device]
            z.resident[device] += change
            z.other.memory[here * devices + device] = z.resident[device]
            runs = q.placement[op] == device
            if runs or change > 0:
                memory = z.resident[device] + (g.workspace[op] if runs else 0)
                if scale.weight.size > 0:
                    memory = int(memory * scale.weight[device])
                most = max(most, memory)
                penalty += peak_penalty(max(0.0, memory - scale.base) * factor)
        z.other.most[here], z.other.penalty[here] = most, penalty
        peak = max(peak, most)
        total += penalty
        if total > bar:
            return np.inf, peak
    return total, peak


@inlined
def take_places(z: Lifetimes, first: int, last: int) -> None:
    """Make what the places from one to another take present."""
    devices = z.first.size
    for here in range(first, last + 1):
        z.present.most[here], z.present.penalty[here] = z.other.most[here], z.other.penalty[here]
    for cell in range(first * devices, (last + 1) * devices):
        z.present.memory[cell] = z.other.memory[cell]


@kernel
def price_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, scale: Scale) -> tuple[float, int]:
    """Fill `z` for a sequence, and return its penalties and its peak in bytes.

    The penalty of a step of `m` bytes is `((m - base) / (size - base)) ** 16`, and 0 below the base: a smooth stand-in
    for the peak.
    """
    ops = q.order.size
    z.changes.amount[:] = 0
    z.changes.stamp[:] = 0
    z.stamp[:] = 0
    z.changes.clock[0], z.changes.number[0] = 1, 0
    z.persistent[:] = 0
    for here in range(ops - 1, -1, -1):
        op = q.order[here]
        z.persistent[q.placement[op]] += g.persistent[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if not g.is_control[tensor]:
                mark(g, z, q, np.int32(tensor), np.int64(1))
    cost = price_places(g, z, q, scale, np.int64(0), ops - 1, 0.0, np.inf)
    take_places(z, 0, ops - 1)
    return cost


@kernel
def write_transfers(g: GraphArrays, z: Lifetimes, q: Sequence, cells: Any, after: Any) -> int:
    """List a sequence's transfers: `tensor * devices + target`, and the place after which each is sent."""
    count, devices = 0, z.first.size
    for op in q.order:
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if z.everywhere[tensor]:
                continue
            find_uses(g, z, q, tensor)
            for device in range(devices):
                if device != home and z.last[device] >= 0:
                    cell = tensor * devices + device
                    cells[count] = cell
                    is_late = _is_sent_late(z, q, cell, home, device)
                    after[count] = z.first[device] - 1 if is_late else z.last[home]
                    count += 1
    return count


@kernel
def read_transfers(g: GraphArrays, z: Lifetimes, q: Sequence, after: Any) -> None:
    """Fill `q.late` from the place after which each tensor is sent to each device, nearer to one end or the other."""
    devices = z.first.size
    for op in q.order:
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            find_uses(g, z, q, tensor)
            for device in range(devices):
                cell = tensor * devices + device
                is_sent = device != home and z.last[device] >= 0
                q.late[cell] = not is_sent or 2 * after[cell] >= z.last[home] + z.first[device] - 1
