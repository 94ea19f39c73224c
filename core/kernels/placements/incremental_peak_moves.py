"""Annealing of a sequence for its peak: each move is priced by the lifetimes that it changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of, is_better
from .group_moves import Places, drawn_device, put, put_back
from .incremental_peak import Lifetimes, Scale, Sequence, mark, place_of, price_places, take_places
from .sequences import place_within, shift

MOST_MOVES = 2**30
"""Moves between two sequences that are priced whole: they are numbered by 31 bits."""
TURNED = 0.1
"""Of the moves, those that turn a transfer."""


class Move(NamedTuple):
    """A move: the transfer that it turns, -1 for none, or the device and the place that it gives an op."""

    cell: int
    op: int
    device: int
    place: int


@inlined
def _touch(g: GraphArrays, z: Lifetimes, tensor: int, count: int) -> int:
    """List a tensor and what it is a view of, unless they are listed; return how many are."""
    while tensor >= 0 and z.stamp[tensor] != z.changes.clock[0]:
        z.stamp[tensor] = z.changes.clock[0]
        if not g.is_control[tensor]:
            z.touched[count] = tensor
            count += 1
        tensor = g.alias_of[tensor]
    return count


@kernel
def _touch_all(
    g: GraphArrays, z: Lifetimes, group: IndexArray, member_ptr: IndexArray, members: IndexArray, move: Move
) -> int:
    """Begin a move: list the tensors that it may change, and what they are views of, and return how many they are."""
    z.changes.clock[0] += 1
    z.changes.number[0] = 0
    if move.cell >= 0:
        return _touch(g, z, move.cell // z.first.size, 0)
    count, first = 0, group[move.op]
    for at in range(member_ptr[first], member_ptr[first + 1]):
        op = members[at]
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
            count = _touch(g, z, tensor, count)
        for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
            count = _touch(g, z, g.inputs[i], count)
    return count


@inlined
def _sort_touched(g: GraphArrays, z: Lifetimes, q: Sequence, count: int) -> None:
    """Sort the tensors listed so that views come before what they are views of: the last made first."""
    for at in range(1, count):
        tensor = z.touched[at]
        place = q.position[g.producer[tensor]]
        while at > 0 and q.position[g.producer[z.touched[at - 1]]] < place:
            z.touched[at] = z.touched[at - 1]
            at -= 1
        z.touched[at] = tensor


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
def _copy(q: Sequence, to: Sequence) -> None:
    """Copy a sequence, all but its positions."""
    for at in range(q.order.size):
        to.order[at] = q.order[at]
        to.placement[at] = q.placement[at]
    for at in range(q.late.size):
        to.late[at] = q.late[at]


@inlined
def _drawn_transfer(g: GraphArrays, q: Sequence, op: int, draws: Any, devices: int) -> Any:
    """Return which transfer of an op's outputs a move turns, as `tensor * devices + target`, or -1 for none."""
    outputs = g.output_ptr[op + 1] - g.output_ptr[op]
    if devices == 1 or draws[5] >= TURNED or outputs == 0:
        return -1
    tensor = g.output_ptr[op] + int(draws[5] / TURNED * outputs)
    return tensor * devices + (q.placement[op] + 1 + int(draws[2] * (devices - 1))) % devices


@inlined
def _drawn_move(g: GraphArrays, q: Sequence, places: Places, first_home: int, draws: Any, devices: int) -> Move:
    """Return the move that a row of draws stands for."""
    op = int(draws[0] * q.order.size)
    device, place, is_home = q.placement[op], q.position[op], op >= first_home
    cell = _drawn_transfer(g, q, op, draws, devices)
    if cell < 0:
        if devices > 1 and (draws[1] < 0.5 or is_home):
            device = drawn_device(places, op, device, draws[2])
        if (devices == 1 or draws[1] >= 0.1) and not is_home:
            place = place_within(g, q.position, op, draws[3], q.order.size - first_home)
    return Move(cell, op, device, place)


@inlined
def _make(g: GraphArrays, z: Lifetimes, q: Sequence, places: Places, move: Move, count: int) -> int:
    """Make a move, which may change the copies of the tensors listed; return how many ops it has moved elsewhere."""
    if z.end.size > 0:
        _sort_touched(g, z, q, count)
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
    """Anneal, given from which op on they hold residents, which come first; the value of a walk is the peak in bytes.

    A move turns a transfer from early to late or back (one of ten), or gives an op another device, another place
    between those that it waits for and those that wait for it, or both.
    """
    energy, present, places = 0.0, 0, walk.places
    for here in range(q.order.size):
        energy += z.present.penalty[here]
        present = max(present, z.present.most[here])
    for row in range(walk.draws.shape[0]):
        move = _drawn_move(g, q, places, first_home, walk.draws[row], z.first.size)
        before = Move(move.cell, move.op, q.placement[move.op], q.position[move.op])
        if move.cell < 0 and move.device == before.device and move.place == before.place:
            continue
        touched = _touch_all(g, z, places.group, places.member_ptr, places.members, move)
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
            _copy(q, walk.kept)
