"""Clocks along a sequence, without its memory, kept at some places, so that another is priced from the first change.

But for its memory a sequence (see `sequences`) is fully told by a few numbers per place in its order: the clocks, when
each pair of devices last met, and what is due between them. They are kept at every few places, so that another sequence
is priced from the last of these before it differs. It is given up as soon as an op's longest path, or the time that
devices have lost so far, shows that the makespan will exceed a bar.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .heads import path_ends
from .sequences import Objective, sending

STRIDE = 4
"""Places between two rows: more take longer to go on from, fewer to be written."""
MOST_CELLS = 2**22
"""Numbers in all rows: beyond it they are farther apart."""
ROUNDING = 1.0 + 1e-12
MOST_READERS = 32
"""Of the tensor that an op reads, on average."""


class Waits(NamedTuple):
    """What ops wait for, and what they cost.

    CSR op -> ops whose tensors it reads, in the order of its inputs, each once; residents only where they are sent.
    Microseconds: `least`, on the device where an op takes least; of these the longest path after each op (`tail`), and
    all together (`work`).
    """

    before_ptr: IndexArray
    before: IndexArray
    least: FloatArray
    tail: FloatArray
    work: float


class Rows(NamedTuple):
    """How a sequence stands at every `stride`-th place: its clocks, the time lost, when pairs met, what is due.

    A row per stride of the `present` sequence, and of the `other` one that is being priced; `now` is where that stands.
    """

    stride: int
    present: FloatArray
    other: FloatArray
    now: FloatArray


class Course(NamedTuple):
    """What is known of a graph and of its present sequence.

    `has_hubs` says whether tensors have so many readers that sequences just in time are run as fast as they are priced,
    `costs` whether transfers take any time, `differs` whether ops take longer on some devices.
    """

    waits: Waits
    rows: Rows
    has_hubs: bool
    costs: bool
    differs: bool


class Sequence(NamedTuple):
    """Ops in their order, the place of each, and its device; shape `(ops,)` each."""

    order: IndexArray
    position: IndexArray
    placement: IndexArray


def new_course(g: GraphArrays, order: IndexArray, m: MachineArrays) -> Course:
    """Collect what ops wait for, given any topological order, and allocate the rows."""
    readers = np.diff(g.consumer_ptr).astype(np.float64)
    has_hubs = bool((readers**2).sum() > MOST_READERS * readers.sum())
    costs = bool(m.latency.any() or m.per_byte.any())
    differs = bool((m.times != m.times[:, :1]).any())
    return Course(_waits(g, order, m), _new_rows(*m.times.shape), has_hubs, costs, differs)


def _waits(g: GraphArrays, order: IndexArray, m: MachineArrays) -> Waits:
    ops, least = len(g.runtime), m.times.min(axis=1)
    reader = np.repeat(np.arange(ops), np.diff(g.input_ptr))
    is_sent = ~m.everywhere[g.inputs]
    maker, reader = g.producer[g.inputs].astype(np.int64)[is_sent], reader[is_sent]
    _, first = np.unique(reader * ops + maker, return_index=True)
    first.sort()
    before, reader = maker[first].astype(np.int32), reader[first]
    before_ptr = np.searchsorted(reader, np.arange(ops + 1)).astype(np.int32)
    by_maker = np.argsort(before, kind="stable")
    after = reader[by_maker].astype(np.int32)
    after_ptr = np.searchsorted(before[by_maker], np.arange(ops + 1)).astype(np.int32)
    levels = path_ends(order[::-1], after_ptr, after, least)
    return Waits(before_ptr, before, least, levels - least, float(least.sum()))


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
def _add_due(g: GraphArrays, q: Sequence, now: Any, op: int, m: MachineArrays) -> None:
    """Add what an op has made for other devices to what is due between them and its own."""
    devices = m.limits.size
    device = q.placement[op]
    due = devices + 1 + devices * (devices - 1) // 2
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        if op >= m.first_home and m.everywhere[tensor]:
            continue
        targets = np.uint64(0)
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            target = q.placement[g.consumers[at]]
            if target != device and not has_bit(targets, target):
                targets |= bit_of(target)
                now[due + _pair(device, target)] += sending(g, m, tensor, device, target)


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


@kernel
def _send_missing(g: GraphArrays, q: Sequence, now: Any, op: int, m: MachineArrays) -> None:
    """Send an op what it lacks, one tensor after the other, right before it."""
    device, devices = q.placement[op], m.limits.size
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        source = q.placement[g.producer[tensor]]
        if source != device and not m.everywhere[tensor] and _is_first_reader(g, q, tensor, op):
            cost = sending(g, m, tensor, source, device)
            now[devices] += abs(now[device] - now[source]) + 2 * cost
            end = max(now[device], now[source]) + cost
            now[device] = end
            now[source] = end


@kernel
def makespan_of(
    g: GraphArrays, course: Course, q: Sequence, first: Any, aim: Objective, m: MachineArrays, bar: float
) -> Any:
    """Price a sequence whose first places are as in the present rows; write the others' rows."""
    w, rows, has_hubs, costs, differs = course
    if has_hubs and not aim.together:
        return 0.0
    devices, now, stride = m.limits.size, rows.now, rows.stride
    has_dues = aim.together and costs
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
        if not aim.together:
            _send_missing(g, q, now, op, m)
        else:
            for i in range(w.before_ptr[op], w.before_ptr[op + 1]):
                maker = w.before[i]
                source = q.placement[maker]
                if source != device and now[devices + 1 + _pair(device, source)] <= q.position[maker]:
                    _meet(now, device, source, at, devices)
        now[device] += m.times[op, device]
        if differs:
            now[devices] += m.times[op, device] - w.least[op]
        if now[device] + w.tail[op] > bar or now[devices] > most_lost:
            return np.inf
        if has_dues:
            _add_due(g, q, now, op, m)
    end = 0.0
    for device in range(devices):
        end = max(end, now[device])
    return end


@inlined
def keep_rows(rows: Rows, first: int) -> None:
    """Let the rows written last be the present ones."""
    for row in range(first // rows.stride, rows.present.shape[0]):
        for cell in range(rows.now.size):
            rows.present[row, cell] = rows.other[row, cell]
