"""Annealing of sequences for the makespan, priced from the first change on, and given up as early as can be.

But for its memory a sequence (see `sequences`) is fully told by a few numbers per place in its order, which are kept at
every few places: so another is priced from the last of these before it differs, until an op's longest path, or the time
that devices have lost so far, shows that the makespan will exceed a bar. The rest under a limit is run whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays, State, Steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, bar_of
from ..orders.order_memory import shift
from . import sequences
from .heads import path_ends
from .sequences import Due, Objective, Sequence

STRIDE = 4  # places between two rows: more take longer to go on from, fewer to be written
MOST_CELLS = 2**22  # numbers in all rows: beyond it they are farther apart
ROUNDING = 1.0 + 1e-12
MOST_READERS = 32  # of the tensor that an op reads, on average
SWAPPED = 0.3  # of the moves that leave an op's device, where transfers are free: two ops swap theirs instead
ROUNDING_OF_SUMS = 1e-9  # of a bar: penalties are added in another order than they are compared


class Course(NamedTuple):
    """Facts of a graph, and the state of its present sequence and another at every `stride`-th place."""

    # CSR: op -> ops whose tensors it reads, in the order of its inputs, each once; residents only where they are sent
    before_ptr: IndexArray
    before: IndexArray
    # Microseconds: of each op where it takes least, of the longest path after it, and of all together
    least: FloatArray
    tail: FloatArray
    work: float
    stride: int
    # A row per stride, and `now`: the clocks, the time lost, when each pair of devices last met, what is due
    present: FloatArray
    other: FloatArray
    now: FloatArray
    has_hubs: bool  # tensors have so many readers that sequences just in time are run as fast as they are priced
    costs: bool  # transfers take time
    due: Due  # scratch of whole runs


def new_course(g: GraphArrays, order: IndexArray, m: MachineArrays) -> Course:
    """Collect the predecessors of ops, given any topological order, and allocate the rows."""
    (ops, devices), least = m.times.shape, m.times.min(axis=1)
    readers = np.diff(g.consumer_ptr).astype(np.float64)
    reader = np.repeat(np.arange(ops), np.diff(g.input_ptr))
    is_sent = ~m.everywhere[g.inputs]
    maker, reader = g.producer[g.inputs].astype(np.int64)[is_sent], reader[is_sent]
    _, first = np.unique(reader * ops + maker, return_index=True)
    first.sort()
    before, reader = maker[first].astype(np.int32), reader[first]
    by_maker = np.argsort(before, kind="stable")
    after = reader[by_maker].astype(np.int32)
    after_ptr = np.searchsorted(before[by_maker], np.arange(ops + 1)).astype(np.int32)
    cells = devices + 1 + devices * (devices - 1)
    stride = max(STRIDE, -(-ops * cells // MOST_CELLS))
    return Course(
        before_ptr=np.searchsorted(reader, np.arange(ops + 1)).astype(np.int32),
        before=before,
        least=least,
        tail=path_ends(order[::-1], after_ptr, after, least) - least,
        work=float(least.sum()),
        stride=stride,
        present=np.zeros((-(-ops // stride), cells)),
        other=np.zeros((-(-ops // stride), cells)),
        now=np.zeros(cells),
        has_hubs=bool((readers**2).sum() > MOST_READERS * readers.sum()),
        costs=bool(m.latency.any() or m.per_byte.any()),
        due=sequences.new_due(g, devices),
    )


@inlined
def _pair(one: int, two: int) -> int:
    """Return the number of a pair of devices."""
    low, high = min(one, two), max(one, two)
    return high * (high - 1) // 2 + low


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


@kernel
def _send_missing(g: GraphArrays, q: Sequence, now: Any, op: int, m: MachineArrays) -> None:
    """Send an op its missing inputs, one tensor after the other, right before it."""
    device, devices = q.placement[op], m.limits.size
    for i in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[i]
        source = q.placement[g.producer[tensor]]
        is_missing = source != device and not m.everywhere[tensor]
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1] if is_missing else 0):
            other = g.consumers[at]
            if q.placement[other] == device and q.position[other] < q.position[op]:
                is_missing = False
                break
        if is_missing:
            cost = sequences.sending(g, m, tensor, source, device)
            now[devices] += abs(now[device] - now[source]) + 2 * cost
            end = max(now[device], now[source]) + cost
            now[device] = end
            now[source] = end


@kernel
def makespan_of(g: GraphArrays, c: Course, q: Sequence, first: Any, aim: Objective, m: MachineArrays, bar: Any) -> Any:
    """Price a sequence whose first places are as in the present rows; write the others' rows."""
    if c.has_hubs and not aim.together:
        return 0.0
    devices, now = m.limits.size, c.now
    has_dues, due = aim.together and c.costs, devices + 1 + devices * (devices - 1) // 2
    begin = first // c.stride
    for cell in range(now.size):
        now[cell] = c.present[begin, cell]
    bar = bar * ROUNDING
    most_lost = (devices * bar - c.work) * ROUNDING + 1e-9 * c.work
    until_row = 0
    for at in range(begin * c.stride, q.order.size):
        if until_row == 0:
            row = at // c.stride
            for cell in range(now.size):
                c.other[row, cell] = now[cell]
            until_row = c.stride
        until_row -= 1
        op = q.order[at]
        device = q.placement[op]
        if not aim.together:
            _send_missing(g, q, now, op, m)
        else:
            for i in range(c.before_ptr[op], c.before_ptr[op + 1]):
                maker = c.before[i]
                source = q.placement[maker]
                if source != device and now[devices + 1 + _pair(device, source)] <= q.position[maker]:
                    _meet(now, device, source, at, devices)
        now[device] += m.times[op, device]
        now[devices] += m.times[op, device] - c.least[op]
        if now[device] + c.tail[op] > bar or now[devices] > most_lost:
            return np.inf
        for tensor in range(g.output_ptr[op], g.output_ptr[op + 1] if has_dues else 0):
            if op >= m.first_home and m.everywhere[tensor]:
                continue
            targets = np.uint64(0)
            for reading in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
                target = q.placement[g.consumers[reading]]
                if target != device and not has_bit(targets, target):
                    targets |= bit_of(target)
                    now[due + _pair(device, target)] += sequences.sending(g, m, tensor, device, target)
    end = 0.0
    for device in range(devices):
        end = max(end, now[device])
    return end


@inlined
def keep_rows(c: Course, first: int) -> None:
    """Let the rows written last be the present ones."""
    for row in range(first // c.stride, c.present.shape[0]):
        for cell in range(c.now.size):
            c.present[row, cell] = c.other[row, cell]


@kernel
def anneal_sequence(
    g: GraphArrays, s: State, c: Course, q: Sequence, aim: Objective, m: MachineArrays, energy: float, walk: Walk
) -> float:
    """Anneal over sequences whose placement `s` holds: single ops, swaps if free, with a sixth draw per move groups."""
    places, groups, devices, draws = walk.places, walk.places.groups, m.limits.size, walk.draws
    swapped, nothing = 0.0 if c.costs else SWAPPED, Steps(q.order[:0], q.order[:0])
    makespan_of(g, c, q, np.int64(0), aim, m, np.inf)
    keep_rows(c, 0)
    for move in range(draws.shape[0]):
        op = int(draws[move, 0] * q.order.size)
        kind = draws[move, 1] if devices > 1 else 1.0
        if op >= m.first_home:
            kind = 0.0
        here = q.position[op]
        there, changes, first = here, 0, here
        if draws.shape[1] > 5 and draws[move, 5] < places.share:
            group = int(draws[move, 5] / places.share * groups.first.size)
            to = int(draws[move, 3] * devices)
            changes = sequences.put_group(places, groups.first[group], groups.last[group], to, q.placement)
            first = q.order.size
        else:
            if kind < 0.5:
                device = sequences.drawn_device(places, op, q.placement[op], draws[move, 2])
                changes = sequences.put(places, op, device, q.placement, 0)
            if kind >= 0.5 and draws[move, 2] < swapped:
                changes = sequences.swap(places, op, int(draws[move, 3] * q.order.size), q.placement)
            elif kind >= 0.1:
                there = sequences.place_within(g, q.position, op, draws[move, 3], q.order.size - m.first_home)
                shift(q.order, q.position, here, there)
                first = min(here, there)
        if there == here and changes == 0:
            continue
        for changed in range(changes):  # the first place that changes; if transfers take time, where inputs are made
            op = places.changed[changed]
            first = min(first, q.position[op])
            for at in range(c.before_ptr[op], c.before_ptr[op + 1] if c.costs else 0):
                first = min(first, q.position[c.before[at]])
        bar = bar_of(energy, walk.temperature, draws[move, 4])
        runtime = makespan_of(g, c, q, first, aim, m, bar / aim.scale)
        new, excess, peak = aim.scale * runtime, 0, 0
        if aim.memory and new <= bar:
            left = bar - new + ROUNDING_OF_SUMS * bar
            _, new, excess, peak, runtime = sequences.run_sequence(g, s, c.due, q.order, aim, m, left, nothing)
        if new > bar:
            sequences.put_back(places, changes, q.placement)
            shift(q.order, q.position, there, here)
            continue
        energy = new
        keep_rows(c, first)
        sequences.note_best(walk, aim, excess, peak, runtime, q.order, q.placement)
    return energy
