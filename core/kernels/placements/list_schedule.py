"""A list schedule of identical devices, in a time that grows with ops and edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IndexArray, IntArray
from ..bits import bit_of, has_bit
from ..cost_model import Steps, new_steps
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel


class Listed(NamedTuple):
    """What has been scheduled: where each op ran and when it ended, and which devices were sent each tensor."""

    placement: IndexArray
    end: FloatArray
    clock: FloatArray
    sent: NDArray[np.uint64]
    held: IntArray
    steps: Steps


def new_listed(g: GraphArrays, devices: int) -> Listed:
    """Allocate a schedule in which nothing ran yet."""
    return Listed(
        placement=np.zeros(len(g.runtime), np.int32),
        end=np.zeros(len(g.runtime)),
        clock=np.zeros(devices),
        sent=np.zeros(len(g.tensor_size), np.uint64),
        held=np.zeros(devices, np.int64),
        steps=new_steps(g, devices),
    )


@inlined
def _is_missing(g: GraphArrays, s: Listed, tensor: int, here: int) -> bool:
    is_missing: bool = s.placement[g.producer[tensor]] != here and not has_bit(s.sent[tensor], here)
    return is_missing


@inlined
def _start(g: GraphArrays, s: Listed, op: int, here: int, sending: FloatArray) -> float:
    """Return when an op could start on a device, what it lacks there sent when it was made."""
    start: float = s.clock[here]
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        if _is_missing(g, s, tensor, here):
            start = max(start, s.end[g.producer[tensor]] + sending[tensor])
    return start


@inlined
def _choose(g: GraphArrays, s: Listed, op: int, sending: FloatArray) -> int:
    """Return the device that is free first, or the one that holds most of what the op reads if it starts as early."""
    s.held[:] = 0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        s.held[s.placement[g.producer[tensor]]] += g.tensor_size[tensor]
    free, near = 0, 0
    for device in range(1, s.clock.size):
        if s.clock[device] < s.clock[free]:
            free = device
        if s.held[device] > s.held[near]:
            near = device
    return free if _start(g, s, op, free, sending) < _start(g, s, op, near, sending) else near


@kernel
def list_ops(g: GraphArrays, s: Listed, order: IndexArray, sending: FloatArray, step: int) -> int:
    """Schedule some ops more, in this order; writes steps from `step` on, and returns the next.

    `sending` has what each tensor takes to be sent, microseconds.
    """
    for op in order:
        here = _choose(g, s, op, sending)
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            tensor = g.inputs[at]
            if _is_missing(g, s, tensor, here):
                source = s.placement[g.producer[tensor]]
                s.sent[tensor] |= bit_of(here)
                s.steps.items[step] = ~tensor
                s.steps.targets[step] = here
                step += 1
                s.clock[source] = max(s.clock[source], s.clock[here]) + sending[tensor]
                s.clock[here] = s.clock[source]
        s.steps.items[step] = op
        s.steps.targets[step] = here
        step += 1
        s.placement[op] = here
        s.clock[here] += g.runtime[op]
        s.end[op] = s.clock[here]
    return step
