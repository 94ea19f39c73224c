"""A list schedule of identical devices in a time that grows with ops and edges, for graphs too large for decoders."""

from __future__ import annotations

import numpy as np

from ...problem import Problem
from ...schedule import Schedule
from ..one_device.sequences import Heed
from .lazy_keys import bottom_levels


def list_schedule(problem: Problem, heed: Heed = iter) -> Schedule:
    """Return the ops by bottom level, the longest first, each on one of two devices: that on which it starts first.

    These are the device that is free first and the one that holds most bytes of what the op reads. As with HEFT what it
    lacks could have been sent when it was made; but it is sent just before the first op that reads it there, which
    takes both devices.

    Parameters
    ----------
    problem
        With identical devices.
    heed
        Goes through the ops, and may raise `Stopped`.
    """
    graph = problem.graph
    producer, size, runtime = graph.tensor_producer.tolist(), graph.tensor_size.tolist(), graph.runtime.tolist()
    pointers, inputs = (a.tolist() for a in graph.inputs)
    place = np.argsort(graph.input_order)
    sending: list[float] = (problem.latency + graph.tensor_size * problem.microseconds_per_byte).tolist()
    device, end = [0] * graph.num_ops, [0.0] * graph.num_ops
    clock = [0.0] * problem.devices
    sent: set[tuple[int, int]] = set()
    steps: list[tuple[int, int, int]] = []

    def missing(tensors: list[int], here: int) -> list[int]:
        return [t for t in tensors if device[producer[t]] != here and (t, here) not in sent]

    def start(tensors: list[int], here: int) -> float:
        earliest: float = max([clock[here], *(end[producer[t]] + sending[t] for t in missing(tensors, here))])
        return earliest

    for op in heed(np.lexsort((place, -bottom_levels(graph))).tolist()):
        tensors = inputs[pointers[op] : pointers[op + 1]]
        held = [0] * problem.devices
        for tensor in tensors:
            held[device[producer[tensor]]] += size[tensor]
        free, near = clock.index(min(clock)), held.index(max(held))
        here = free if start(tensors, free) < start(tensors, near) else near
        for tensor in missing(tensors, here):
            source = device[producer[tensor]]
            sent.add((tensor, here))
            steps.append((~tensor, source, here))
            clock[source] = clock[here] = max(clock[source], clock[here]) + sending[tensor]
        steps.append((op, here, here))
        device[op], clock[here] = here, clock[here] + runtime[op]
        end[op] = clock[here]
    return Schedule.from_steps(*zip(*steps, strict=True))
