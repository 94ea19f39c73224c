"""Annealing of placements alone: the transfers, and the balance of each window of time; no order is run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..cost_model import MachineArrays
from ..graph_arrays import GraphArrays
from ..jit import inlined, kernel
from ..metropolis import Walk, tolerated
from .sequences import sending


class Cuts(NamedTuple):
    """A placement by its costs."""

    placement: IndexArray
    readers: IndexArray  # shape `(tensors, devices)`: how many ops on each device read each tensor
    load: FloatArray  # shape `(windows, devices)`: microseconds that the ops of each window take on each device
    window: IndexArray  # of each op


def new_cuts(g: GraphArrays, m: MachineArrays, placement: IndexArray, window: IndexArray) -> Cuts:
    """Count the readers and the load of a placement, which is written to from then on."""
    devices = len(m.limits)
    readers = np.zeros((len(g.tensor_size), devices), np.int32)
    load = np.zeros((int(window.max(initial=0)) + 1, devices))
    np.add.at(load, (window, placement), m.times[np.arange(len(placement)), placement])
    tensors = np.repeat(np.arange(len(g.tensor_size)), np.diff(g.consumer_ptr))
    np.add.at(readers, (tensors, placement[g.consumers]), 1)
    return Cuts(placement, readers, load, window)


@inlined
def _sent_less(g: GraphArrays, m: MachineArrays, c: Cuts, op: int, here: int, there: int) -> float:
    """Return how much less is sent once an op is there and not here, microseconds."""
    less = 0.0
    for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
        tensor = g.inputs[at]
        home = c.placement[g.producer[tensor]]
        if tensor >= m.first_resident and m.everywhere[tensor]:
            continue
        if here != home and c.readers[tensor, here] == 1:
            less += sending(g, m, tensor, home, here)
        if there != home and c.readers[tensor, there] == 0:
            less -= sending(g, m, tensor, home, there)
    for tensor in range(g.output_ptr[op], g.output_ptr[op + 1]):
        if tensor >= m.first_resident and m.everywhere[tensor]:
            continue
        if c.readers[tensor, there] > 0:
            less += sending(g, m, tensor, here, there)
        if c.readers[tensor, here] > 0:
            less -= sending(g, m, tensor, there, here)
        for other in range(c.readers.shape[1]):
            if other != here and other != there and c.readers[tensor, other] > 0:
                less += sending(g, m, tensor, here, other) - sending(g, m, tensor, there, other)
    return less


@kernel
def anneal_cuts(g: GraphArrays, m: MachineArrays, c: Cuts, walk: Walk) -> None:
    """Move single ops at one temperature, microseconds: less to send, and even work in each window."""
    draws, allowed = walk.draws, walk.places.allowed
    ops, devices = len(c.placement), c.load.shape[1]
    for move in range(len(draws)):
        op = int(draws[move, 0] * ops)
        here = c.placement[op]
        there = (here + 1 + int(draws[move, 1] * (devices - 1))) % devices
        if not allowed[op, there]:
            continue
        window, before, after = c.window[op], 0.0, 0.0  # for how long its fullest device works
        for device in range(devices):
            load = c.load[window, device]
            before = max(before, load)
            if device == here:
                load -= m.times[op, device]
            elif device == there:
                load += m.times[op, device]
            after = max(after, load)
        worse = after - before - _sent_less(g, m, c, op, here, there)
        if worse > 0.0 and worse >= tolerated(walk.temperature, draws[move, 2]):
            continue
        c.placement[op] = there
        c.load[window, here] -= m.times[op, here]
        c.load[window, there] += m.times[op, there]
        for at in range(g.input_ptr[op], g.input_ptr[op + 1]):
            c.readers[g.inputs[at], here] -= 1
            c.readers[g.inputs[at], there] += 1


@kernel
def weigh_moves(g: GraphArrays, m: MachineArrays, c: Cuts, mean: float, weights: Any) -> None:
    """Fill `weights`, `(ops, devices)`: 1 at home, else `(1 + less / mean) ** 2`, or its inverse if more is sent."""
    devices = weights.shape[1]
    c.readers[:] = 0
    for tensor in range(len(g.consumer_ptr) - 1):
        for at in range(g.consumer_ptr[tensor], g.consumer_ptr[tensor + 1]):
            c.readers[tensor, c.placement[g.consumers[at]]] += 1
    for op in range(len(c.placement)):
        here = c.placement[op]
        for there in range(devices):
            less = _sent_less(g, m, c, op, here, there) if there != here else 0.0
            ratio = 1.0 + abs(less) / mean
            weights[op, there] = ratio * ratio if less > 0.0 else 1.0 / (ratio * ratio)
