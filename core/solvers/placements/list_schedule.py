"""A list schedule of identical devices in a time that grows with ops and edges, for graphs too large for decoders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...base.arrays import FloatArray
from ...kernels.graph_arrays import graph_arrays
from ...kernels.placements.list_schedule import list_ops, new_listed
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from .lazy_keys import as_schedule, bottom_levels

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
    takes both devices.

    Parameters
    ----------
    problem
        With identical devices.
    stop
        Whether to give up and return None, asked now and then; by default it never does.
    """
    graph = problem.graph
    arrays = graph_arrays(graph, problem.devices)
    listed = new_listed(arrays, problem.devices)
    sending: FloatArray = np.array(problem.latency + graph.tensor_size * problem.microseconds_per_byte, np.float64)
    place = np.argsort(graph.input_order)
    order = np.lexsort((place, -bottom_levels(graph))).astype(np.int32)
    count = 0
    for first in range(0, graph.num_ops, CHUNK):
        if stop():
            return None
        count = list_ops(arrays, listed, order[first : first + CHUNK], sending, count)
    steps = listed.steps
    return as_schedule(arrays.producer, listed.placement, steps.items[:count], steps.targets[:count])
