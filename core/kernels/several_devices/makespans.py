"""Annealing of sequences for the makespan: priced from the first change on, and given up as early as can be.

But for its memory a sequence (see `sequences`) is fully told by a few numbers per place in its order: the clocks, when
each pair of devices last met, and what is due between them. They are kept at every few places, so that a move is priced
from the last of these before it. It is given up as soon as an op's longest path, or the time that devices have lost so
far, shows that the makespan will exceed the bar. Under a memory limit what is left is run as a whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..links import Links
from ..paths import path_ends
from .group_moves import GroupMoves, drawn_group, put_back, put_group
from .sequences import Aim, Due, Walk, drawn_device, note_best, run_sequence, shift

STRIDE = 4
"""Places between two rows: more take longer to go on from, fewer to be written."""
MOST_CELLS = 2**22
"""Numbers in all rows: beyond it they are farther apart."""
ROUNDING = 1.0 + 1e-12
SWAPPED = 0.3
"""Of the moves that leave an op's device, where transfers are free: two ops swap theirs instead."""


class Waits(NamedTuple):
    """What ops wait for, and what they cost.

    Parameters
    ----------
    before_ptr, before
        CSR op -> ops whose tensors it reads, in the order of its inputs, each once.
    after_ptr, after
        CSR op -> ops that read its tensors.
    runtime
        Of each op, microseconds, shape `(ops,)`.
    tail
        The longest path after each op, microseconds, shape `(ops,)`.
    work
        All runtimes together.
    """

    before_ptr: IndexArray
    before: IndexArray
    after_ptr: IndexArray
    after: IndexArray
    runtime: FloatArray
    tail: FloatArray
    work: float


class Rows(NamedTuple):
    """How a sequence stands at every `stride`-th place: its clocks, the time lost, when pairs met, what is due.

    Parameters
    ----------
    stride
        Places from one row to the next.
    present, other
        Shape `(rows, cells)`: of the present sequence, and of that which is being priced.
    now
        Shape `(cells,)`: how things stand at the place that is being priced.
    """

    stride: int
    present: FloatArray
    other: FloatArray
    now: FloatArray


class Course(NamedTuple):
    """What is known of a graph and of its present sequence."""

    waits: Waits
    rows: Rows


class Sequence(NamedTuple):
    """Ops in their order, the place of each, and its device; shape `(ops,)` each."""

    order: IndexArray
    position: IndexArray
    placement: IndexArray


def new_course(g: GraphArrays, order: IndexArray, links: Links) -> Course:
    """Collect what ops wait for, given any topological order, and allocate the rows."""
    return Course(_waits(g, order), _new_rows(len(g.runtime), links.devices))


def _waits(g: GraphArrays, order: IndexArray) -> Waits:
    ops = len(g.runtime)
    maker = g.producer[g.inputs].astype(np.int64)
    reader = np.repeat(np.arange(ops), np.diff(g.input_ptr))
    _, first = np.unique(reader * ops + maker, return_index=True)
    first.sort()
    before, reader = maker[first].astype(np.int32), reader[first]
    before_ptr = np.searchsorted(reader, np.arange(ops + 1)).astype(np.int32)
    by_maker = np.argsort(before, kind="stable")
    after = reader[by_maker].astype(np.int32)
    after_ptr = np.searchsorted(before[by_maker], np.arange(ops + 1)).astype(np.int32)
    levels = path_ends(np.ascontiguousarray(order[::-1], np.int32), after_ptr, after, g.runtime)
    return Waits(before_ptr, before, after_ptr, after, g.runtime, levels - g.runtime, float(g.runtime.sum()))


def _new_rows(ops: int, devices: int) -> Rows:
    cells = devices + 1 + devices * (devices - 1)
    stride = max(STRIDE, -(-ops * cells // MOST_CELLS))
    shape = -(-ops // stride), cells
    return Rows(stride, np.zeros(shape), np.zeros(shape), np.zeros(cells))


@inlined
def _pair(one: int, two: int) -> int:
    """Return the number of a pair of devices."""
    low, high = min(one, two), max(one, two)
    return high * (high - 1) // 2 + low


@inlined
def _add_due(g: GraphArrays, q: Sequence, now: Any, op: int, links: Links) -> None:
    """Add what an op has made for other devices to what is due between them and its own."""
    devices = links.devices
    device = q.placement[op]
    due = devices + 1 + devices * (devices - 1) // 2
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        targets = np.uint64(0)
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            target = q.placement[g.consumers[at]]
            if target != device and not has_bit(targets, target):
                targets |= bit_of(target)
                now[due + _pair(device, target)] += links.latency + g.tensor_size[tensor] * links.microseconds_per_byte


@inlined
def _meet(now: Any, device: int, source: int, at: int, devices: int) -> None:
    """Let two devices wait for each other and send all that is due between them."""
    met = devices + 1 + _pair(device, source)
    due = met + devices * (devices - 1) // 2
    now[devices] += abs(now[device] - now[source]) + 2 * now[due]
    end = max(now[device], now[source]) + now[due]
    now[device] = end
    now[source] = end
    now[met] = at
    now[due] = 0.0


@inlined
def _is_first_reader(g: GraphArrays, q: Sequence, tensor: Any, op: Any) -> Any:
    """Whether an op is the first to read a tensor on its device."""
    for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
        other = g.consumers[at]
        if q.placement[other] == q.placement[op] and q.position[other] < q.position[op]:
            return False
    return True


@inlined
def _send_missing(g: GraphArrays, q: Sequence, now: Any, op: int, links: Links) -> None:
    """Send an op what it lacks, one tensor after the other, right before it."""
    device, devices = q.placement[op], links.devices
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        source = q.placement[g.producer[tensor]]
        if source != device and _is_first_reader(g, q, tensor, op):
            cost = links.latency + g.tensor_size[tensor] * links.microseconds_per_byte
            now[devices] += abs(now[device] - now[source]) + 2 * cost
            end = max(now[device], now[source]) + cost
            now[device] = end
            now[source] = end


@kernel
def _makespan_from(
    g: GraphArrays, w: Waits, q: Sequence, rows: Rows, first: int, bar: float, links: Links, together: bool
) -> Any:
    """Price a sequence whose first places are as in the present rows; write the others' rows.

    Returns
    -------
    float
        The makespan in microseconds, infinite if it is sure to exceed the bar.
    """
    devices, now, stride = links.devices, rows.now, rows.stride
    is_free = links.latency == 0.0 and links.microseconds_per_byte == 0.0
    begin = first // stride
    for cell in range(now.size):
        now[cell] = rows.present[begin, cell]
    bar = bar * ROUNDING
    most_lost = (devices * bar - w.work) * ROUNDING + 1e-9 * w.work
    until_row = 0
    for at in range(begin * stride, q.order.size):
        if until_row == 0:
            row = at // stride
            for cell in range(now.size):
                rows.other[row, cell] = now[cell]
            until_row = stride
        until_row -= 1
        op = q.order[at]
        device = q.placement[op]
        if together:
            for i in range(w.before_ptr[op], w.before_ptr[op + 1]):
                maker = w.before[i]
                source = q.placement[maker]
                if source != device and now[devices + 1 + _pair(device, source)] <= q.position[maker]:
                    _meet(now, device, source, at, devices)
        else:
            _send_missing(g, q, now, op, links)
        now[device] += w.runtime[op]
        if now[device] + w.tail[op] > bar or now[devices] > most_lost:
            return np.inf
        if together and not is_free:
            _add_due(g, q, now, op, links)
    end = 0.0
    for device in range(devices):
        end = max(end, now[device])
    return end


@inlined
def _keep_rows(rows: Rows, first: int) -> None:
    """Let the rows written last be the present ones."""
    for row in range(first // rows.stride, rows.present.shape[0]):
        for cell in range(rows.now.size):
            rows.present[row, cell] = rows.other[row, cell]


@inlined
def _move_within(w: Waits, q: Sequence, op: int, draw: float) -> int:
    """Move an op to a place, drawn uniformly, between those that it waits for and those that wait for it."""
    first, last = 0, q.order.size - 1
    for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
        first = max(first, q.position[w.before[at]] + 1)
    for at in range(w.after_ptr[op], w.after_ptr[op + 1]):
        last = min(last, q.position[w.after[at]] - 1)
    there = first + int(draw * (last - first + 1))
    shift(q.order, q.position, q.position[op], there)
    return there


@inlined
def _first_change(w: Waits, q: Sequence, op: int, place: int) -> int:
    """Return the first place at which another device of an op changes anything: where what it reads is made."""
    for at in range(w.before_ptr[op], w.before_ptr[op + 1]):
        place = min(place, q.position[w.before[at]])
    return place


@inlined
def _first_change_of_group(w: Waits, q: Sequence, moves: GroupMoves, group: int) -> int:
    """Return the first place at which another device of a group's ops changes anything."""
    first = q.order.size
    for at in range(moves.groups.first[group], moves.groups.last[group]):
        op = moves.groups.ops[at]
        if q.placement[op] != moves.before[at]:
            first = _first_change(w, q, op, min(first, q.position[op]))
    return first


@inlined
def _price(
    g: GraphArrays, s: State, scratch: tuple[Due, Course], q: Sequence, first: int, aim: Aim, links: Links, bar: float
) -> tuple[float, int, float]:
    """Return what a sequence costs, its peak and makespan, given the first place where it is not the present one.

    Costs are above the bar if the makespan alone is; the peak is 0 without memory accounting.
    """
    due, (w, rows) = scratch
    runtime, peak = _makespan_from(g, w, q, rows, first, bar / aim.scale, links, aim.together), 0
    cost = aim.scale * runtime
    if aim.memory and cost <= bar:
        _, cost, peak, runtime = run_sequence(g, s, due, q.order, aim, links, bar, Steps(q.order[:0], q.order[:0]))
    return cost, peak, runtime


@kernel
def anneal_sequence(
    g: GraphArrays, s: State, scratch: tuple[Due, Course], order: Any, position: Any, aim: Aim, links: Links, walk: Walk
) -> float:
    """Anneal over sequences, 5 draws a move.

    A move gives an op another device (half of the time), another place between those that it waits for and those that
    wait for it, or both. Where transfers are free it may swap two ops' devices instead: else that breaks up what
    belongs together. With 6 draws, a tenth of the moves give a group of ops one device.

    Returns
    -------
    float
        What the present sequence, in `order` and `s`, costs then.
    """
    w, rows = scratch[1]
    q = Sequence(order, position, s.placement)
    draws, energy = walk.draws, walk.energy
    is_free = links.latency == 0.0 and links.microseconds_per_byte == 0.0
    swapped = SWAPPED if is_free else 0.0
    _makespan_from(g, w, q, rows, 0, np.inf, links, aim.together)
    _keep_rows(rows, 0)
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * order.size)
        group, kind = drawn_group(walk.moves, draws[move]), draws[move, 1] if links.devices > 1 else 1.0
        before, here = q.placement[op], position[op]
        other, there = op, here
        if group >= 0:
            if not put_group(walk.moves, group, int(draws[move, 3] * links.devices), q.placement):
                continue
            first = _first_change_of_group(w, q, walk.moves, group)
        else:
            if kind < 0.5:
                q.placement[op] = drawn_device(before, draws[move, 2], links.devices)
            if kind >= 0.5 and draws[move, 2] < swapped:
                other = int(draws[move, 3] * order.size)
                q.placement[op] = q.placement[other]
                q.placement[other] = before
            elif kind >= 0.1:
                there = _move_within(w, q, op, draws[move, 3])
            if there == here and q.placement[op] == before:
                continue
            first = min(here, there, position[other])
            if not is_free and q.placement[op] != before:
                first = _first_change(w, q, op, first)
        bar = energy * (1.0 - draws[move, 4]) ** -walk.temperature
        new, peak, runtime = _price(g, s, scratch, q, first, aim, links, bar)
        if new > bar:
            if group >= 0:
                put_back(walk.moves, group, q.placement)
            else:
                q.placement[other] = q.placement[op]
                q.placement[op] = before
                shift(order, position, there, here)
            continue
        energy = new
        _keep_rows(rows, first)
        note_best(walk, aim, peak, runtime, order, q.placement)
    return energy
