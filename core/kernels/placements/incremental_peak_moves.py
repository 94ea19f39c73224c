"""Annealing of a sequence for its peak: each move is priced by the lifetimes that it changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .incremental_peak import Lifetimes, Scale, Sequence, mark, place_of, price_places, take_places
from .sequences import drawn_device, place_within, shift

MOST_MOVES = 2**30
"""Moves between two sequences that are priced whole: they are numbered by 31 bits."""
TURNED = 0.1
"""Of the moves, those that turn a transfer."""


class PeakWalk(NamedTuple):
    """Moves of an annealing.

    Parameters
    ----------
    scale
        What bytes count in the penalties.
    temperature
        A move is kept if the penalties stay under their present sum times `u ** -temperature`.
    draws
        Shape `(moves, 6)`, uniform: a row per move, each of which is one evaluation.
    """

    scale: Scale
    temperature: float
    draws: FloatArray


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
def _touch_all(g: GraphArrays, z: Lifetimes, move: Move) -> int:
    """Begin a move: list the tensors that it may change, and what they are views of, and return how many they are.

    Those are the tensor that is sent, or those that the op makes or reads.
    """
    z.changes.clock[0] += 1
    z.changes.number[0] = 0
    if move.cell >= 0:
        return _touch(g, z, move.cell // z.first.size, 0)
    count = 0
    for tensor in range(g.output_ptr[move.op], g.output_ptr[move.op + 1]):
        count = _touch(g, z, tensor, count)
    for at in range(g.input_ptr[move.op], g.input_ptr[move.op + 1]):
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


@kernel
def _drawn_move(g: GraphArrays, q: Sequence, draws: Any, devices: int) -> Move:
    """Return the move that a row of draws stands for."""
    op = int(draws[0] * q.order.size)
    device, place = q.placement[op], q.position[op]
    cell = _drawn_transfer(g, q, op, draws, devices)
    if cell < 0:
        if devices > 1 and draws[1] < 0.5:
            device = drawn_device(device, draws[2], devices)
        if devices == 1 or draws[1] >= 0.1:
            place = place_within(g, q.position, op, draws[3])
    return Move(cell, op, device, place)


@kernel
def _make(g: GraphArrays, z: Lifetimes, q: Sequence, move: Move, count: int) -> None:
    """Make a move, which may change the copies of the tensors listed."""
    if z.end.size > 0:
        _sort_touched(g, z, q, count)
        for at in range(count):
            z.end_before[at] = z.end[z.touched[at]]
    for at in range(count):
        mark(g, z, q, z.touched[at], np.int64(-1))
    _put(g, z, q, move)
    for at in range(count):
        mark(g, z, q, z.touched[at], np.int64(1))


@inlined
def _put(g: GraphArrays, z: Lifetimes, q: Sequence, move: Move) -> None:
    """Turn the transfer of a move, or give its op its device and place."""
    if move.cell >= 0:
        q.late[move.cell] = not q.late[move.cell]
        return
    z.persistent[q.placement[move.op]] -= g.persistent[move.op]
    z.persistent[move.device] += g.persistent[move.op]
    q.placement[move.op] = move.device
    shift(q.order, q.position, q.position[move.op], move.place)


@kernel
def _undo(g: GraphArrays, z: Lifetimes, q: Sequence, before: Move, count: int) -> None:
    """Undo a move of the tensors listed, given the one that puts its op back."""
    c = z.changes
    for at in range(c.number[0]):
        c.amount[c.cells[at]] = c.before[at]
    if z.end.size > 0:
        for at in range(count):
            z.end[z.touched[at]] = z.end_before[at]
    _put(g, z, q, before)


@kernel
def _changed_places(g: GraphArrays, z: Lifetimes, q: Sequence, move: Move, before: Move) -> tuple[int, int]:
    """Return the first place and the last that a move may have changed; an empty range if there is none."""
    c, devices, last_place = z.changes, z.first.size, q.order.size - 1
    first, last = q.order.size, -1
    if move.cell < 0:
        first, last = min(move.place, before.place), max(move.place, before.place)
    if first < last:  # what comes right after the op at the last place is otherwise priced one further
        last = min(last + 1, last_place)
    if move.device != before.device and g.persistent[move.op]:
        return 0, last_place
    for at in range(c.number[0]):
        cell = c.cells[at]
        if c.amount[cell] != c.before[at]:
            place = min(place_of(q, cell // devices), last_place)
            first, last = min(first, place), max(last, place)
    return first, last


@kernel
def anneal_lifetimes(g: GraphArrays, z: Lifetimes, q: Sequence, walk: PeakWalk, peak: int, best: Sequence) -> int:
    """Anneal, and return the least peak known after the moves, in bytes.

    A move turns a transfer from early to late or back (one of ten), or gives an op another device, another place
    between those that it waits for and those that wait for it, or both.

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
    energy, present = 0.0, 0
    for here in range(q.order.size):
        energy += z.present.penalty[here]
        present = max(present, z.present.most[here])
    for row in range(walk.draws.shape[0]):
        move = _drawn_move(g, q, walk.draws[row], z.first.size)
        before = Move(move.cell, move.op, q.placement[move.op], q.position[move.op])
        if move.cell < 0 and move.device == before.device and move.place == before.place:
            continue
        touched = _touch_all(g, z, move)
        _make(g, z, q, move, touched)
        first, last = _changed_places(g, z, q, move, before)
        bar = energy * (1.0 - walk.draws[row, 4]) ** -walk.temperature
        rest = _rest_of(z, energy, first, last)
        new, reached = price_places(g, z, q, walk.scale, first, last, rest, bar)
        if new > bar:
            _undo(g, z, q, before, touched)
            continue
        energy, present = new, _take(z, first, last, present, reached)
        if present < peak:
            peak = present
            _copy(q, best)
    return peak
