"""A beam over the placements of an order's ops under a limit: the copies that do not fit are dropped or moved.

The order is fixed, so all states at a step agree on which ops have run. A state says where each tensor that
is still needed has copies. They stay while there is room. When a device lacks room it drops copies that another
device has too, then sends away tensors that it alone has (a transfer made early). So a limit decides what is
kept twice, and a state dies only when nothing that could go makes room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray, IntArray
from ..bits import has_bit
from ..cost_model import Steps
from ..graph_arrays import GraphArrays
from ..hash_table import slot_of
from ..heap import pop, push
from ..jit import inlined, kernel
from .placing import Limits, Placed, may_read, need_of, place_op, retire
from .routes import NOBODY, Route, begin_step, end_step, start_route


class States(NamedTuple):
    """States of two steps, the present and the next, a row each: those of even steps are the first.

    Per state what `Placed` has, its `hash`, the largest need so far in bytes (`peak`), and how many devices are
    `used`.
    """

    copies: Any
    sent: Any
    home: Any
    resident: IntArray
    persistent: IntArray
    top: IntArray
    hash: Any
    peak: IntArray
    used: IndexArray


class Choices(NamedTuple):
    """A step's successors, `state * devices + device`, and what led to those kept.

    Per successor its `need` in bytes and a random `tie`; a `heap` of them. A hash `table` of the successors kept.
    Per step and state the `parent` and the `device` that it came by. Eight random odd `numbers`, for hashes and ties.
    """

    need: IntArray
    tie: Any
    heap: IndexArray
    table: IndexArray
    parent: IndexArray
    device: Any
    numbers: Any


def new_states(size: int, slots: int, devices: int) -> States:
    """Allocate two steps of a beam."""
    return States(
        copies=np.empty((2, size, slots), np.uint64),
        sent=np.empty((2, size, slots), np.uint64),
        home=np.empty((2, size, slots), np.uint8),
        resident=np.empty((2, size, devices), np.int64),
        persistent=np.empty((2, size, devices), np.int64),
        top=np.empty((2, size, devices), np.int64),
        hash=np.empty((2, size), np.uint64),
        peak=np.empty((2, size), np.int64),
        used=np.empty((2, size), np.int32),
    )


def new_choices(size: int, ops: int, devices: int) -> Choices:
    """Allocate the heap, the table and the links back; the random numbers are to be drawn."""
    return Choices(
        need=np.empty(size * devices, np.int64),
        tie=np.empty(size * devices, np.uint64),
        heap=np.empty(size * devices, np.int32),
        table=np.empty(1 << (2 * size).bit_length(), np.int32),
        parent=np.empty((ops, size), np.int32),
        device=np.empty((ops, size), np.uint8),
        numbers=np.empty(8, np.uint64),
    )


@inlined
def _placed(s: States, level: int, row: int) -> Placed:
    """Return a state."""
    return Placed(
        s.copies[level, row],
        s.sent[level, row],
        s.home[level, row],
        s.resident[level, row],
        s.persistent[level, row],
        s.top[level, row],
    )


@inlined
def _copy(state: Placed, to: Placed) -> None:
    """Copy a state."""
    for slot in range(state.copies.size):
        to.copies[slot] = state.copies[slot]
        to.sent[slot] = state.sent[slot]
        to.home[slot] = state.home[slot]
    for device in range(state.resident.size):
        to.resident[device] = state.resident[device]
        to.persistent[device] = state.persistent[device]
        to.top[device] = state.top[device]


@inlined
def _hash(p: Placed, numbers: Any) -> Any:
    """Hash where everything that is needed is, and the persistent bytes."""
    total = np.uint64(0)
    for slot in range(p.copies.size):
        if p.copies[slot] != 0:
            mixed = (p.copies[slot] + numbers[0]) * numbers[1] ^ (p.sent[slot] + numbers[2]) * numbers[3]
            mixed = (mixed + np.uint64(p.home[slot]) + np.uint64(slot) * numbers[4]) * numbers[5]
            mixed ^= mixed >> np.uint64(29)
            total += mixed * numbers[6]
    for device in range(p.persistent.size):
        mixed = (np.uint64(p.persistent[device]) + np.uint64(device) * numbers[1]) * numbers[5]
        total += (mixed ^ (mixed >> np.uint64(29))) * numbers[6]
    return total ^ (total >> np.uint64(31))


@inlined
def _needs_less(c: Choices, one: int, two: int) -> bool:
    """Order successors for the heap."""
    is_first: bool = c.need[one] < c.need[two] or (c.need[one] == c.need[two] and c.tie[one] < c.tie[two])
    return is_first


@inlined
def _is_possible(g: GraphArrays, route: Route, op: int, device: int, p: Placed) -> bool:
    """Whether an op's inputs are all on a device or may be sent there."""
    possible = True
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        slot = route.slot[g.inputs[at]]
        possible = possible and has_bit(may_read(p.copies[slot], p.sent[slot], p.home[slot]), device)
    return possible


@kernel
def _offer_choices(g: GraphArrays, route: Route, s: States, c: Choices, step: int, count: int, limits: Limits) -> int:
    """Put every state's possible devices for a step's op on the heap; devices that nothing is on yet are alike."""
    op, now, devices = route.order[step], step & 1, s.resident.shape[2]
    entries = 0
    for state in range(count):
        p = _placed(s, now, state)
        for device in range(min(devices, s.used[now, state] + 1) if limits.are_alike else devices):
            if _is_possible(g, route, op, device, p):
                fixed = max(p.persistent[device] + g.persistent[op], limits.share)
                need = p.resident[device] + fixed + need_of(g, route, op, device, p.copies)
                choice = state * devices + device
                c.need[choice] = max(need, s.peak[now, state])
                c.tie[choice] = (s.hash[now, state] + np.uint64(device)) * c.numbers[7]
                entries = push(c.heap, entries, choice, c, _needs_less)
    return entries


@kernel
def start_beam(g: GraphArrays, route: Route, s: States) -> None:
    """Begin with the one state in which no op has run."""
    start_route(g, route)
    route.held[:] = NOBODY
    s.copies[0, 0] = 0
    s.resident[0, 0] = 0
    s.persistent[0, 0] = 0
    s.top[0, 0] = 0
    s.hash[0, 0] = 0
    s.peak[0, 0] = 0
    s.used[0, 0] = 0


@kernel
def _extend(
    g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, step: int, count: int, dying: int
) -> int:
    """Fill the states of the next step from the `count` of this one; returns how many there are."""
    now, devices = step & 1, s.resident.shape[2]
    following = 1 - now
    nothing = Steps(route.dead[:0], route.dead[:0])
    none_written: Any = np.int64(0)  # of one type with what `trace_beam` gives, so that `place_op` is compiled once
    entries = _offer_choices(g, route, s, c, step, count, limits)
    c.table[:] = -1
    kept = 0
    while entries > 0 and kept < limits.size:
        state, device = divmod(c.heap[0], devices)
        entries = pop(c.heap, entries, c, _needs_less)
        p = _placed(s, following, kept)
        _copy(_placed(s, now, state), p)
        need, _ = place_op(g, route, step, device, limits, p, nothing, none_written)
        if need < 0:
            continue
        retire(g, route, dying, p)
        key = _hash(p, c.numbers)
        slot = slot_of(c.table, s.hash[following], key)
        if c.table[slot] >= 0:
            continue
        c.table[slot] = kept
        s.hash[following, kept] = key
        s.peak[following, kept] = max(s.peak[now, state], need)
        s.used[following, kept] = max(s.used[now, state], device + 1)
        c.parent[step, kept] = state
        c.device[step, kept] = device
        kept += 1
    return kept


@kernel
def extend_beam(
    g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, first: int, last: int, count: int
) -> tuple[int, int]:
    """Place the ops of the steps `first` to `last - 1` so that no device exceeds the limit.

    At each step every state takes the op to each device. Successors are ranked by the largest need so far,
    before anything makes room for it, ties at random; equal ones are collapsed and the first of them kept.
    """
    expanded = 0
    for step in range(first, last):
        expanded += count
        dying = begin_step(g, route, step)
        count = _extend(g, route, s, c, limits, step, count, dying)
        if count == 0:
            break
        end_step(route, dying)
    return count, expanded


@kernel
def trace_beam(g: GraphArrays, route: Route, s: States, c: Choices, limits: Limits, count: int, steps: Steps) -> int:
    """Write the steps of the final state of least peak; returns how many there are."""
    ops = g.runtime.size
    now = ops & 1
    least = 0
    for state in range(count):
        if s.peak[now, state] < s.peak[now, least]:
            least = state
    for step in range(ops - 1, -1, -1):
        before = c.parent[step, least]
        c.parent[step, 0] = c.device[step, least]
        least = before
    start_beam(g, route, s)
    p = _placed(s, 0, 0)
    written: Any = np.int64(0)
    for step in range(ops):
        dying = begin_step(g, route, step)
        device: Any = np.int64(c.parent[step, 0])
        _, written = place_op(g, route, step, device, limits, p, steps, written)
        retire(g, route, dying, p)
        end_step(route, dying)
    return int(written)
