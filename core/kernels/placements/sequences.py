"""Sequences: a placement and one total order of the ops, whose transfers are sent as late as possible; and moves.

*Just in time* sends missing inputs right before the op. *Together* also sends all due tensors between the two devices,
both ways, whenever they synchronise anyway: fewer waits, more memory (`docs/methods/several-devices.md`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, csr
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays, State, Steps, reached, start, step_op, step_transfer, write_step
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, is_better

LEAST_EXCESS = 0.001


class Due(NamedTuple):
    """Transfers not yet sent."""

    sent: Any  # per tensor a bit per device
    # What is due from one device to another is a chain, the newest first; -1 at the end
    head: IndexArray  # per pair of devices
    following: IndexArray  # per `tensor * devices + target`


class Sequence(NamedTuple):
    """A placement and an order."""

    order: IndexArray
    position: IndexArray  # the place of each op
    placement: IndexArray
    late: BoolArray  # per `tensor * devices + target`: whether it is sent late, for the peak alone


class Objective(NamedTuple):
    """The objective of annealing: `scale * makespan + sum over steps of a penalty`; see `step_penalty`."""

    is_peak: bool
    size: FloatArray  # per device: what bytes are compared to for the peak, else the memory limit
    scale: float  # what a microsecond counts
    weight: float  # of an excess; a thousandth of it besides, so that a few bytes above a limit do not pay
    memory: bool  # whether memory is counted at all
    together: bool  # whether all that is due between two devices is sent at once


def new_due(g: GraphArrays, devices: int) -> Due:
    """Allocate the chains."""
    tensors = len(g.tensor_size)
    head, following = (np.empty(cells, np.int32) for cells in (devices * devices, tensors * devices))
    return Due(np.empty(tensors, np.uint64), head, following)


@inlined
def sending(g: GraphArrays, m: MachineArrays, tensor: int, source: int, target: int) -> float:
    """Return the microseconds that a transfer takes."""
    return float(m.latency[source, target] + g.tensor_size[tensor] * m.per_byte[source, target])


@inlined
def peak_penalty(ratio: float) -> float:
    """Return `ratio ** 16`."""
    ratio *= ratio
    ratio *= ratio
    ratio *= ratio
    return ratio * ratio


@inlined
def step_penalty(aim: Objective, device: int, memory: int) -> float:
    """Return the penalty of a step that takes so many bytes of a device."""
    ratio = memory / aim.size[device]
    if aim.is_peak:
        return peak_penalty(ratio)
    return (ratio - 1.0 + LEAST_EXCESS) * aim.weight if ratio > 1.0 else 0.0


@kernel
def run_sequence(
    g: GraphArrays, s: State, due: Due, order: Any, aim: Objective, m: MachineArrays, bar: float, steps: Steps
) -> tuple[int, float, int, int, float]:
    """Run `order`, placed as `s` says, until the penalties exceed `bar`; steps are written if they are asked for."""
    devices, memory = s.clock.size, aim.memory
    start(g, m, s, memory)
    due.sent[:] = 0
    due.head[:] = -1
    step, excess, peak, penalty = 0, 0, 0, 0.0
    for device in range(devices):
        peak, excess = reached(m, s.peak, device, peak, excess)
    for op in order:
        device = s.placement[op]
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            source = s.placement[g.producer[tensor]]
            if source == device or has_bit(due.sent[tensor], device) or m.everywhere[tensor]:
                continue
            for is_back in range(2 if aim.together else 1):
                cell = tensor * devices + device
                if aim.together:
                    pair = device * devices + source if is_back else source * devices + device
                    cell = due.head[pair]
                    due.head[pair] = -1
                while cell >= 0:
                    item, target = divmod(cell, devices)
                    due.sent[item] |= bit_of(target)
                    s.peak[target] = 0
                    step_transfer(g, m, s, item, target, memory)
                    step = write_step(steps, step, ~item, target)
                    if memory:
                        peak, excess = reached(m, s.peak, target, peak, excess)
                        penalty += step_penalty(aim, target, s.peak[target])
                    cell = due.following[cell] if aim.together else -1
        s.peak[device] = 0
        _, transfers = step_op(g, m, s, op, memory)
        step = write_step(steps, step, op, device)
        if memory:
            peak, excess = reached(m, s.peak, device, peak, excess)
            penalty += step_penalty(aim, device, s.peak[device])
            if penalty > bar:
                return step, np.inf, excess, peak, 0.0
        if aim.together:
            for at in range(transfers):
                cell = s.transfers[at]
                pair = device * devices + cell % devices
                due.following[cell] = due.head[pair]
                due.head[pair] = cell
    runtime = 0.0
    for device in range(devices):
        runtime = max(runtime, s.clock[device])
    return step, penalty + aim.scale * runtime, excess, peak, runtime


@inlined
def room_of(g: GraphArrays, position: Any, op: int, first: int, last: int) -> Any:
    """Return from where to before where an op may be: after those that it waits for, and before its readers."""
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        first = max(first, position[g.producer[g.inputs[at]]] + 1)
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            last = min(last, position[g.consumers[at]])
    return first, last


@inlined
def place_within(g: GraphArrays, position: Any, op: int, draw: float, homes: int) -> int:
    """Return a place for an op, drawn uniformly, between those that it waits for, residents too, and its readers."""
    first, last = room_of(g, position, op, homes, position.size)
    return int(first + int(draw * (last - first)))


@inlined
def note_best(walk: Walk, aim: Objective, excess: int, peak: int, runtime: float, order: Any, placement: Any) -> bool:
    """Keep an order and a placement that are better than the best that a walk met; returns whether they are."""
    better = is_better(walk, excess, np.float64(peak) if aim.is_peak else runtime)
    if better:
        for at in range(order.size):
            walk.kept[0][at] = order[at]
            walk.kept[1][at] = placement[at]
    return better


class Groups(NamedTuple):
    """Groups of ops that go to another device together, each a stretch of `ops`: where it begins, and its end."""

    ops: IndexArray
    first: IndexArray
    last: IndexArray


NO_GROUPS = Groups(*np.empty((3, 0), np.int32))


class Places(NamedTuple):
    """Where ops may be, and which move together."""

    group: IndexArray  # per op the first of those that the rules keep on one device
    member_ptr: IndexArray  # CSR: that op -> all of them, and the devices on which they may be
    members: IndexArray
    device_ptr: IndexArray
    devices: IndexArray
    allowed: BoolArray  # shape `(ops, devices)`: the same once more
    groups: Groups  # moved together though they need not be on one device, in a `share` of the moves of sequences
    share: float
    changed: IndexArray  # scratch, shape `(2 * ops,)`: ops that a move has changed, and the devices that they had
    before: IndexArray


def places_of(group: IndexArray, allowed: BoolArray, groups: Groups = NO_GROUPS, share: float = 0.1) -> Places:
    """Return the possible places of ops, given the first op of each one's group, and the homes that move with it."""
    ops = len(group)
    first, device = np.nonzero(allowed & (group == np.arange(ops))[:, None])
    members = csr(group, np.arange(ops), ops)
    return Places(group, *members, *csr(first, device, ops), allowed, groups, share, *np.empty((2, 2 * ops), np.int32))


@inlined
def drawn_device(places: Places, op: int, before: int, draw: float) -> Any:
    """Return a device other than the one before, or the next one where the op may be; the one before if it is alone."""
    devices = places.allowed.shape[1]
    device = (before + 1 + int(draw * (devices - 1))) % devices
    while device != before and not places.allowed[op, device]:
        device = device + 1 if device + 1 < devices else 0
    return device


@inlined
def put(places: Places, op: int, device: int, placement: Any, changes: int) -> int:
    """Give a device to an op and to all that is with it, if they may be there; returns how many have changed so far."""
    if placement[op] != device and places.allowed[op, device]:
        first = places.group[op]
        for at in range(places.member_ptr[first], places.member_ptr[first + 1]):
            member = places.members[at]
            places.changed[changes] = member
            places.before[changes] = placement[member]
            placement[member] = device
            changes += 1
    return changes


@inlined
def swap(places: Places, op: int, other: int, placement: Any) -> int:
    """Give two ops each other's device, if they may be there; returns how many have changed."""
    changes, device = 0, placement[op]
    if places.allowed[op, placement[other]] and places.allowed[other, device]:
        changes = put(places, op, placement[other], placement, 0)
        changes = put(places, other, device, placement, changes)
    return changes


@inlined
def put_group(places: Places, first: int, last: int, device: int, placement: Any) -> int:
    """Give a device to the ops of a stretch of the groups; returns how many have changed."""
    changes = 0
    for at in range(first, last):
        changes = put(places, places.groups.ops[at], device, placement, changes)
    return changes


@inlined
def put_back(places: Places, changes: int, placement: Any) -> None:
    """Give the ops that a move has changed the devices that they had."""
    for at in range(changes - 1, -1, -1):
        placement[places.changed[at]] = places.before[at]
