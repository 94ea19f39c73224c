"""A list schedule in a time that grows with ops and edges, for graphs too large for decoders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...kernels.cost_model import machine_arrays
from ...kernels.placements.list_schedule import list_ops, new_listed
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from .lazy_keys import bottom_levels
from .random_keys import as_schedule

CHUNK = 20_000
"""Ops between two looks at the clock."""
_SECONDS_PER_READ = 2.5e-7


def seconds_to_list(problem: Problem) -> float:
    """Return about how long a list schedule takes to be made and priced."""
    return _SECONDS_PER_READ * (problem.graph.num_ops + len(problem.graph.inputs[1]))


def list_schedule(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Schedule | None:
    """Return the ops by bottom level, the longest first, each on one of two devices: that on which it starts first.

    These are the device that is free first and the one that holds most bytes of what the op reads. As with HEFT what it
    lacks could have been sent when it was made; but it is sent just before the first op that reads it there, which
    takes both devices. On different devices that counts on which it ends first. None if something cannot be sent.
    """
    graph = problem.graph
    arrays, machine = machine_arrays(problem)
    listed = new_listed(arrays, problem.rules.allowed, problem.rules.group)
    place = np.argsort(graph.input_order)
    order = np.lexsort((place, -bottom_levels(graph))).astype(np.int32)
    order = order[order < machine.first_home]
    count = 0
    for first in range(0, len(order), CHUNK):
        if stop():
            return None
        count = list_ops(arrays, machine, listed, order[first : first + CHUNK], count)
        if count < 0:
            return None
    steps = listed.steps
    return as_schedule(arrays.producer, listed.placement, steps.items[:count], steps.targets[:count])
