"""A list schedule, in a time that grows with ops and edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..bits import bit_of, has_bit
from ..cost_model import MachineArrays, Steps, new_steps, write_step
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from .sequences import sending

NOWHERE = -1


class Listed(NamedTuple):
    """What has been scheduled: where each op ran and when it ended, and which devices were sent each tensor.

    `allowed` and `group` are those of `PlacementRules`; `chosen` has the device of each group.
    """

    allowed: BoolArray
    group: IndexArray
    chosen: IndexArray
    placement: IndexArray
    end: FloatArray
    clock: FloatArray
    sent: NDArray[np.uint64]
    held: IntArray
    steps: Steps


def new_listed(g: GraphArrays, allowed: BoolArray, group: IndexArray) -> Listed:
    """Allocate a schedule in which nothing ran yet."""
    ops, devices = allowed.shape
    return Listed(
        allowed,
        group,
        chosen=np.full(ops, NOWHERE, np.int32),
        placement=np.full(ops, NOWHERE, np.int32),
        end=np.zeros(ops),
        clock=np.zeros(devices),
        sent=np.zeros(len(g.tensor_size), np.uint64),
        held=np.zeros(devices, np.int64),
        steps=new_steps(g, devices),
    )


@inlined
def _may_be(s: Listed, op: int, device: int) -> bool:
    chosen = s.chosen[s.group[op]]
    may_be: bool = s.allowed[op, device] and chosen in (NOWHERE, device)
    return may_be


@inlined
def _is_missing(g: GraphArrays, m: MachineArrays, s: Listed, tensor: int, here: int) -> bool:
    source = s.placement[g.producer[tensor]]
    is_there = source in (here, NOWHERE) or m.everywhere[tensor] or has_bit(s.sent[tensor], here)
    return not is_there


@inlined
def _start(g: GraphArrays, m: MachineArrays, s: Listed, op: int, here: int) -> float:
    """Return when an op could start on a device, what it lacks there sent when it was made; infinite if unlinked."""
    start: float = s.clock[here]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        if _is_missing(g, m, s, tensor, here):
            source = s.placement[g.producer[tensor]]
            if m.latency[source, here] == np.inf:
                start = np.inf
            else:
                start = max(start, s.end[g.producer[tensor]] + sending(g, m, tensor, source, here))
    return start


@inlined
def _choose(g: GraphArrays, m: MachineArrays, s: Listed, op: int) -> int:
    """Return the device that is free first, or the one that holds most of what the op reads if it ends as early."""
    s.held[:] = 0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        if s.placement[g.producer[tensor]] != NOWHERE:
            s.held[s.placement[g.producer[tensor]]] += g.tensor_size[tensor]
    free, near = NOWHERE, NOWHERE
    for device in range(s.clock.size):
        if _may_be(s, op, device):
            if free == NOWHERE or s.clock[device] < s.clock[free]:
                free = device
            if near == NOWHERE or s.held[device] > s.held[near]:
                near = device
    first, other = _start(g, m, s, op, free), _start(g, m, s, op, near)
    end, other_end = first + m.times[op, free], other + m.times[op, near]
    return free if end < other_end or (end == other_end and first < other) else near


@inlined
def _put(s: Listed, op: int, here: int, step: int) -> int:
    s.placement[op] = here
    s.chosen[s.group[op]] = here
    return write_step(s.steps, step, op, here)


@inlined
def _home(m: MachineArrays, s: Listed, op: int, reader: int) -> int:
    """Return where a resident has its home: with its first reader if it may, else where a link to it is."""
    home = NOWHERE
    for device in range(s.clock.size):
        if _may_be(s, op, device) and (home == NOWHERE or device == reader or m.latency[home, reader] == np.inf):
            home = device
        if home == reader:
            break
    return home


@kernel
def list_ops(g: GraphArrays, m: MachineArrays, s: Listed, order: IndexArray, step: int) -> int:
    """Schedule some ops more, in this order; writes steps from `step` on, and returns the next, -1 if unlinked."""
    for op in order:
        here = _choose(g, m, s, op)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            maker = g.producer[tensor]
            if s.placement[maker] == NOWHERE:
                step = _put(s, maker, _home(m, s, maker, here), step)
            if _is_missing(g, m, s, tensor, here):
                source = s.placement[maker]
                if m.latency[source, here] == np.inf:
                    return -1
                s.sent[tensor] |= bit_of(here)
                step = write_step(s.steps, step, ~tensor, here)
                s.clock[source] = max(s.clock[source], s.clock[here]) + sending(g, m, tensor, source, here)
                s.clock[here] = s.clock[source]
        step = _put(s, op, here, step)
        s.clock[here] += m.times[op, here]
        s.end[op] = s.clock[here]
    return step
