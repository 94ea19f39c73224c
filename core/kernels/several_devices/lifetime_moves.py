"""Annealing of a sequence for its peak: each move is priced by the lifetimes that it changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...arrays import FloatArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .group_moves import GroupMoves
from .lifetimes import Lifetimes, Sequence, mark, price_places, take_places
from .sequences import drawn_device, place_within, shift

MOST_MOVES = 2**30
"""Moves between two sequences that are priced whole: they are numbered by 31 bits."""
TURNED, GROUPED = 0.1, 0.1
"""Of the moves: those that turn a transfer, and those of groups."""


class PeakWalk(NamedTuple):
    """Moves of an annealing.

    Parameters
    ----------
    size
        Bytes that count as 1 in the penalties.
    temperature
        A move is kept if the penalties stay under their present sum times `u ** -temperature`.
    draws
        Shape `(moves, 6)`, uniform: a row per move, each of which is one evaluation.
    moves
        Groups of ops that go together.
    """

    size: float
    temperature: float
    draws: FloatArray
    moves: GroupMoves


class Move(NamedTuple):
    """A move: the transfer that it turns, or the group or the op that it moves, -1 for none, to a device and a place.
    """

    cell: int
    group: int
    op: int
    device: int
    there: int


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


@inlined
def _touch_op(g: GraphArrays, z: Lifetimes, op: int, count: int) -> int:
    """List the tensors that an op makes or reads, and what they are views of."""
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        count = _touch(g, z, tensor, count)
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        count = _touch(g, z, g.inputs[at], count)
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
def _take_away(g: GraphArrays, z: Lifetimes, q: Sequence, count: int) -> None:
    """Take away the copies of the tensors listed, before a move."""
    if z.end.size > 0:
        _sort_touched(g, z, q, count)
        for at in range(count):
            z.end_before[at] = z.end[z.touched[at]]
    for at in range(count):
        mark(g, z, q, z.touched[at], -1)


@inlined
def _restore(z: Lifetimes, count: int) -> None:
    """Restore what the present move has changed."""
    c = z.changes
    for at in range(c.count[0]):
        c.amount[c.cells[at]] = c.before[at]
    if z.end.size > 0:
        for at in range(count):
            z.end[z.touched[at]] = z.end_before[at]


@kernel
def _changed_places(z: Lifetimes, q: Sequence, first: int, last: int) -> tuple[int, int]:
    """Extend a range of places to those where bytes change otherwise than before the present move."""
    c, devices, ops = z.changes, z.first.size, q.order.size
    for at in range(c.count[0]):
        cell = c.cells[at]
        if c.amount[cell] != c.before[at]:
            row = cell // devices
            place = ops - 1 if row == 2 * ops else min(ops - 1, q.position[row >> 1] + (row & 1))
            first, last = min(first, place), max(last, place)
    return first, last


@inlined
def _put(g: GraphArrays, z: Lifetimes, q: Sequence, op: int, device: int, there: int) -> None:
    """Give an op a device and a place."""
    z.persistent[q.placement[op]] -= g.persistent[op]
    z.persistent[device] += g.persistent[op]
    q.placement[op] = device
    shift(q.order, q.position, q.position[op], there)


@inlined
def _rest_of(z: Lifetimes, energy: float, first: int, last: int) -> float:
    """Return the penalties of all places but those from one to another."""
    for here in range(first, last + 1):
        energy -= z.present.penalty[here]
    return max(0.0, energy)


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
    return tensor * devices + drawn_device(q.placement[op], draws[2], devices)


@inlined
def _drawn_group(moves: GroupMoves, draws: Any) -> Any:
    """Return the group that a row of draws moves, -1 for none."""
    share = (draws[5] - TURNED) / GROUPED
    return int(share * moves.groups.first.size) if 0 <= share < 1 and moves.groups.first.size > 0 else -1


@kernel
def _drawn_move(g: GraphArrays, q: Sequence, moves: GroupMoves, draws: Any, devices: int) -> Move:
    """Return the move that a row of draws stands for."""
    op = int(draws[0] * q.order.size)
    device, there = q.placement[op], q.position[op]
    cell = _drawn_transfer(g, q, op, draws, devices)
    group = _drawn_group(moves, draws) if devices > 1 else -1
    if group >= 0:
        device = int(draws[3] * devices)
    elif cell < 0:
        if devices > 1 and draws[1] < 0.5:
            device = drawn_device(device, draws[2], devices)
        if devices == 1 or draws[1] >= 0.1:
            there = place_within(g, q.position, op, draws[3])
    return Move(cell, group, op, device, there)


@kernel
def _touch_all(g: GraphArrays, z: Lifetimes, moves: GroupMoves, move: Move) -> int:
    """Begin a move: list the tensors whose copies it may change, and return how many they are."""
    z.changes.clock[0] += 1
    z.changes.count[0] = 0
    if move.cell >= 0:
        return _touch(g, z, move.cell // z.first.size, 0)
    if move.group < 0:
        return _touch_op(g, z, move.op, 0)
    count = 0
    for at in range(moves.groups.first[move.group], moves.groups.last[move.group]):
        count = _touch_op(g, z, moves.groups.ops[at], count)
    return count


@kernel
def _make(g: GraphArrays, z: Lifetimes, q: Sequence, moves: GroupMoves, move: Move) -> tuple[int, int]:
    """Make a move, and return between which places it changes what runs where."""
    ops, op, here = q.order.size, move.op, q.position[move.op]
    if move.cell >= 0:
        q.late[move.cell] = not q.late[move.cell]
        return ops, -1
    first, last = ops, -1
    if move.group >= 0:
        for at in range(moves.groups.first[move.group], moves.groups.last[move.group]):
            op = moves.groups.ops[at]
            moves.before[at] = q.placement[op]
            if q.placement[op] != move.device:
                first, last = min(first, q.position[op]), max(last, q.position[op])
                if g.persistent[op]:
                    first, last = 0, ops - 1
                _put(g, z, q, op, move.device, q.position[op])
        return first, last
    if move.device == q.placement[op] and move.there == here:
        return ops, -1
    first, last = min(here, move.there), max(here, move.there)
    if move.there != here:
        last = min(ops - 1, last + 1)
    if move.device != q.placement[op] and g.persistent[op]:
        first, last = 0, ops - 1
    _put(g, z, q, op, move.device, move.there)
    return first, last


@kernel
def _undo(g: GraphArrays, z: Lifetimes, q: Sequence, moves: GroupMoves, move: Move, device: int, here: int) -> None:
    """Undo a move, given where the op that it is of was."""
    if move.cell >= 0:
        q.late[move.cell] = not q.late[move.cell]
    elif move.group >= 0:
        for at in range(moves.groups.first[move.group], moves.groups.last[move.group]):
            op = moves.groups.ops[at]
            _put(g, z, q, op, moves.before[at], q.position[op])
    else:
        _put(g, z, q, move.op, device, here)


@kernel
def anneal_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, walk: PeakWalk, peak: int, best: Sequence) -> int:
    """Anneal, and return the least peak known after the moves, in bytes.

    A move turns a transfer from early to late or back (one of ten), gives a group of ops one device (one of ten, if
    there are groups), or gives an op another device, another place between those that it waits for and those that wait
    for it, or both.

    Parameters
    ----------
    g, z
        The graph, and the lifetimes of the present sequence, which `price_lifetimes` filled at most `MOST_MOVES` ago.
    q, best
        The present sequence, which moves change; receives that of least peak, without positions.
    walk
        What decides the moves.
    peak
        The least peak known, in bytes.
    """
    moves, devices = walk.moves, z.first.size
    energy, present = 0.0, 0
    for here in range(q.order.size):
        energy += z.present.penalty[here]
        present = max(present, z.present.most[here])
    for row in range(walk.draws.shape[0]):
        move = _drawn_move(g, q, moves, walk.draws[row], devices)
        device, here = q.placement[move.op], q.position[move.op]
        if move.cell < 0 and move.group < 0 and move.device == device and move.there == here:
            continue
        touched = _touch_all(g, z, moves, move)
        _take_away(g, z, q, touched)
        first, last = _make(g, z, q, moves, move)
        for at in range(touched):
            mark(g, z, q, z.touched[at], 1)
        first, last = _changed_places(z, q, first, last)
        bar = energy * (1.0 - walk.draws[row, 4]) ** -walk.temperature
        rest = _rest_of(z, energy, first, last)
        new, reached = price_places(g, z, q, walk.size, first, last, rest, bar)
        if new > bar:
            _restore(z, touched)
            _undo(g, z, q, moves, move, device, here)
            continue
        energy, present = new, _take(z, first, last, present, reached)
        if present < peak:
            peak = present
            _copy(q, best)
    return peak
