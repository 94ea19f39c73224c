"""Annealing of a sequence for its peak on several devices, each move priced by the lifetimes that it changes.

A sequence here says of each transfer, too, whether it is early or late: sent as soon as its home has read the tensor
for the last time, or right before it is read on the target. If its home still reads it then, it is sent right before.

Each copy of a tensor begins and ends right before an op's step, or right after it. So an op that moves in the order
changes nothing of the tensors that it neither makes nor reads, but for the bases of views among those, and the sequence
is priced anew only from the first place to the last where bytes changed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..cost_model import MachineArrays, weighed
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of, is_better
from ..orders.order_memory import shift
from .sequences import Places, Sequence, drawn_device, peak_penalty, place_within, put, put_back

MOST_MOVES = 2**30  # moves between two sequences that are priced whole: they are numbered by 31 bits
TURNED = 0.1  # of the moves, those that turn a transfer


class Scale(NamedTuple):
    """The price of bytes: the penalty of a step of `m` is `((m - base) / (size - base)) ** 16`, 0 below the base."""

    base: float  # the nearer to the size, the more the fullest places alone count
    size: float
    weight: FloatArray  # per device: what a byte counts, more where there is less room; empty where all count alike


class Course(NamedTuple):
    """Bytes of each place of an order."""

    memory: IntArray  # shape `(ops * devices,)`: bytes on each device during the step, without the workspace
    # Shape `(ops,)`: the most bytes of the device that runs and of those where bytes came, and their penalties
    most: IntArray
    penalty: FloatArray


class Changes(NamedTuple):
    """Bytes that change right before (row `2 * op`) and after each op's step; the last row: bytes never freed."""

    amount: IntArray  # shape `((2 * ops + 1) * devices,)`
    stamp: IndexArray  # the move that changed each last
    clock: IntArray  # the present move, which has changed a `number` of `cells` that were so much `before`
    cells: IntArray
    before: IntArray
    number: IntArray


class Lifetimes(NamedTuple):
    """The lifetimes of a sequence: the places of changes, the bytes of its places and those of another, and scratch."""

    changes: Changes
    present: Course
    other: Course
    persistent: IntArray  # per device: bytes that stay
    first_resident: int  # from this tensor on they take no further bytes at home
    everywhere: BoolArray  # per tensor: whether it is on each device that reads it from the start
    end: IndexArray  # per tensor, if the graph has views: the row at which its home lets go of it
    resident: IntArray  # per device: bytes at one place
    first: IndexArray  # per device, of one tensor: where it is read first and last, and the row to which views hold it
    last: IndexArray
    held: IndexArray
    stamp: IndexArray  # per tensor: the move by which it was touched last
    touched: IndexArray  # tensors that the present move has touched, and their ends before
    end_before: IndexArray


def new_lifetimes(g: GraphArrays, m: MachineArrays) -> Lifetimes:
    """Allocate the arrays that `price_lifetimes` fills."""
    ops, tensors, devices = len(g.runtime), len(g.tensor_size), len(m.limits)
    rows = (2 * ops + 1) * devices
    views = tensors if (g.alias_of >= 0).any() else 0

    long: Any = partial(np.empty, dtype=np.int64)
    short: Any = partial(np.empty, dtype=np.int32)
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
def _add(c: Changes, cell: int, amount: int) -> None:
    """Change a row on a device, and remember its value before the present move."""
    if c.stamp[cell] != c.clock[0]:
        c.stamp[cell] = c.clock[0]
        c.cells[c.number[0]], c.before[c.number[0]] = cell, c.amount[cell]
        c.number[0] += 1
    c.amount[cell] += amount


@kernel
def mark(g: GraphArrays, z: Lifetimes, q: Sequence, tensor: np.int32, sign: np.int64) -> None:
    """Add the bytes of a tensor's copies (sign 1), which sets its end, or take them away (sign -1)."""
    # The ends of its views must be known. Numbers are typed, as a kernel is compiled for each type and each constant.
    ops, devices, c = q.order.size, z.first.size, z.changes
    maker = g.producer[tensor]
    home, size = q.placement[maker], sign * g.tensor_size[tensor]
    find_uses(g, z, q, tensor)
    has_views = z.end.size > 0
    if has_views:  # fill `z.held` from the ends of its views
        z.held[:] = -1
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            reader = g.consumers[at]
            for view in range(g.output_ptr[reader], g.output_ptr[reader + 1]):
                if g.alias_of[view] == tensor:
                    where = q.placement[reader]
                    z.held[where] = _later(q, z.held[where], z.end[view])
    if tensor >= z.first_resident and z.everywhere[tensor]:
        for device in range(devices):
            if device != home and z.last[device] >= 0:
                _add(c, 2 * q.order[0] * devices + device, size)
                _add(c, 2 * ops * devices + device, -size)
        return
    end = 2 * ops if g.is_final[tensor] else 2 * q.order[z.last[home]] + 1
    for device in range(devices):
        if device != home and z.last[device] >= 0:
            is_late = q.late[tensor * devices + device] or z.first[device] <= z.last[home]
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
    """Fill `z.other` from one place to another; return all penalties, infinite above `bar`, and the most bytes."""
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
                memory = weighed(scale.weight, device, memory)
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
    """Make the bytes of the places from one to another present."""
    devices = z.first.size
    for here in range(first, last + 1):
        z.present.most[here], z.present.penalty[here] = z.other.most[here], z.other.penalty[here]
    for cell in range(first * devices, (last + 1) * devices):
        z.present.memory[cell] = z.other.memory[cell]


@kernel
def price_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, scale: Scale) -> tuple[float, int]:
    """Fill `z` for a sequence, and return its penalties and its peak in bytes."""
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
def find_transfers(g: GraphArrays, z: Lifetimes, q: Sequence, cells: Any, early: Any, late: Any) -> int:
    """List a sequence's transfers, `tensor * devices + target`, and after which place each is sent early, and late."""
    count, devices = 0, z.first.size
    for op in q.order:
        home = q.placement[op]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            if z.everywhere[tensor]:
                continue
            find_uses(g, z, q, tensor)
            for device in range(devices):
                if device != home and z.last[device] >= 0:
                    cells[count], early[count] = tensor * devices + device, z.last[home]
                    late[count] = z.first[device] - 1
                    count += 1
    return count


class Move(NamedTuple):
    """A move: the transfer that it turns, -1 for none, or the device and the place that it gives an op."""

    cell: int
    op: int
    device: int
    place: int


@inlined
def _touch(g: GraphArrays, z: Lifetimes, tensor: int, count: int) -> int:
    """List a tensor and its base, unless they are listed; return how many are."""
    while tensor >= 0 and z.stamp[tensor] != z.changes.clock[0]:
        z.stamp[tensor] = z.changes.clock[0]
        if not g.is_control[tensor]:
            z.touched[count] = tensor
            count += 1
        tensor = g.alias_of[tensor]
    return count


@kernel
def _touch_all(g: GraphArrays, z: Lifetimes, places: Places, move: Move) -> int:
    """Begin a move: list the tensors that it may change, and their bases, and return how many they are."""
    z.changes.clock[0] += 1
    z.changes.number[0] = 0
    if move.cell >= 0:
        return _touch(g, z, move.cell // z.first.size, 0)
    count, first = 0, places.group[move.op]
    for at in range(places.member_ptr[first], places.member_ptr[first + 1]):
        op = places.members[at]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            count = _touch(g, z, tensor, count)
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            count = _touch(g, z, g.inputs[i], count)
    return count


@inlined
def _take(z: Lifetimes, first: int, last: int, peak: int, reached: int) -> int:
    """Make places present that reach so many bytes, and return the peak of the sequence, given the one before."""
    before = 0
    for here in range(first, last + 1):
        before = max(before, z.present.most[here])
    take_places(z, first, last)
    if before < peak or reached >= peak:
        return max(reached, peak)
    peak = 0
    for most in z.present.most:
        peak = max(peak, most)
    return peak


@inlined
def _drawn_move(g: GraphArrays, q: Sequence, places: Places, first_home: int, draws: Any, devices: int) -> Move:
    """Return the move that a row of draws stands for."""
    op = int(draws[0] * q.order.size)
    device, place, is_home, cell = q.placement[op], q.position[op], op >= first_home, -1
    outputs = g.output_ptr[op + 1] - g.output_ptr[op]
    if devices > 1 and draws[5] < TURNED and outputs > 0:
        tensor = g.output_ptr[op] + int(draws[5] / TURNED * outputs)
        cell = tensor * devices + (device + 1 + int(draws[2] * (devices - 1))) % devices
    else:
        if devices > 1 and (draws[1] < 0.5 or is_home):
            device = drawn_device(places, op, device, draws[2])
        if (devices == 1 or draws[1] >= 0.1) and not is_home:
            place = place_within(g, q.position, op, draws[3], q.order.size - first_home)
    return Move(cell, op, device, place)


@inlined
def _make(g: GraphArrays, z: Lifetimes, q: Sequence, places: Places, move: Move, count: int) -> int:
    """Make a move, which may change the copies of the tensors listed; return how many ops it has moved elsewhere."""
    if z.end.size > 0:
        for listed in range(1, count):  # views come before their bases: the last made first
            at, tensor = listed, z.touched[listed]
            place = q.position[g.producer[tensor]]
            while at > 0 and q.position[g.producer[z.touched[at - 1]]] < place:
                z.touched[at] = z.touched[at - 1]
                at -= 1
            z.touched[at] = tensor
        for at in range(count):
            z.end_before[at] = z.end[z.touched[at]]
    for at in range(count):
        mark(g, z, q, z.touched[at], np.int64(-1))
    changes = 0
    if move.cell >= 0:
        q.late[move.cell] = not q.late[move.cell]
    else:
        changes = put(places, move.op, move.device, q.placement, 0)
        _move_persistent(g, z, q, places, changes, 1)
        shift(q.order, q.position, q.position[move.op], move.place)
    for at in range(count):
        mark(g, z, q, z.touched[at], np.int64(1))
    return changes


@inlined
def _move_persistent(g: GraphArrays, z: Lifetimes, q: Sequence, places: Places, changes: int, sign: int) -> None:
    """Move the bytes that stay with the ops that a move has changed there (sign 1) or back (sign -1)."""
    for at in range(changes):
        op = places.changed[at]
        size = sign * g.persistent[op]
        z.persistent[places.before[at]] -= size
        z.persistent[q.placement[op]] += size


@inlined
def _undo(g: GraphArrays, z: Lifetimes, q: Sequence, places: Places, before: Move, count: int, changes: int) -> None:
    """Undo a move of the tensors listed, given the one that puts its op back, and how many ops it moved elsewhere."""
    c = z.changes
    for at in range(c.number[0]):
        c.amount[c.cells[at]] = c.before[at]
    if z.end.size > 0:
        for at in range(count):
            z.end[z.touched[at]] = z.end_before[at]
    if before.cell >= 0:
        q.late[before.cell] = not q.late[before.cell]
    else:
        _move_persistent(g, z, q, places, changes, -1)
        put_back(places, changes, q.placement)
        shift(q.order, q.position, q.position[before.op], before.place)


@kernel
def _changed_places(
    g: GraphArrays, z: Lifetimes, q: Sequence, changed: IndexArray, move: Move, before: Move, changes: int
) -> tuple[int, int]:
    """Return the first place and the last that a move may have changed; an empty range if there is none."""
    c, devices, last_place = z.changes, z.first.size, q.order.size - 1
    first, last = q.order.size, -1
    if move.cell < 0:
        first, last = min(move.place, before.place), max(move.place, before.place)
    if first < last:  # what comes right after the op at the last place is otherwise priced one further
        last = min(last + 1, last_place)
    for at in range(changes):
        op = changed[at]
        if g.persistent[op]:
            return 0, last_place
        # a place's penalty is that of the device that runs
        first, last = min(first, q.position[op]), max(last, q.position[op])
    for at in range(c.number[0]):
        cell = c.cells[at]
        if c.amount[cell] != c.before[at]:
            place = min(place_of(q, cell // devices), last_place)
            first, last = min(first, place), max(last, place)
    return first, last


@kernel
def anneal_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, scale: Scale, first_home: int, walk: Walk) -> None:
    """Anneal, given from which op on they hold residents, which come first; the value is the peak in bytes."""
    energy, present, places = 0.0, 0, walk.places
    for here in range(q.order.size):
        energy += z.present.penalty[here]
        present = max(present, z.present.most[here])
    for row in range(walk.draws.shape[0]):
        move = _drawn_move(g, q, places, first_home, walk.draws[row], z.first.size)
        before = Move(move.cell, move.op, q.placement[move.op], q.position[move.op])
        if move.cell < 0 and move.device == before.device and move.place == before.place:
            continue
        touched = _touch_all(g, z, places, move)
        changes = _make(g, z, q, places, move, touched)
        first, last = _changed_places(g, z, q, places.changed, move, before, changes)
        bar = bar_of(energy, walk.temperature, walk.draws[row, 4])
        rest = energy
        for here in range(first, last + 1):
            rest -= z.present.penalty[here]
        new, reached = price_places(g, z, q, scale, first, last, max(0.0, rest), bar)
        if new > bar:
            _undo(g, z, q, places, before, touched, changes)
            continue
        energy, present = new, _take(z, first, last, present, reached)
        if is_better(walk, 0, np.float64(present)):
            for at in range(q.order.size):
                walk.kept.order[at], walk.kept.placement[at] = q.order[at], q.placement[at]
            for at in range(q.late.size):
                walk.kept.late[at] = q.late[at]
