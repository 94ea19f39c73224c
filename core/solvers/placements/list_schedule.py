"""A list schedule in a time that grows with ops and edges, for graphs too large for decoders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...base.speed import seconds_for
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search.plans import Plans
from .lazy_keys import bottom_levels
from .ranks import mean_times

READ = 5.0  # numbers sorted in the time of listing an op, or one of its inputs


def seconds_to_list(problem: Problem) -> float:
    """Return about how long a list schedule takes to be made and priced."""
    return seconds_for(READ * (problem.graph.num_ops + len(problem.graph.inputs[1])))


def list_schedule(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Schedule | None:
    """Return the ops by bottom level, the longest first, each on one of two devices: that on which it ends first.

    These are the device that is free first and the one that holds most bytes of what the op reads. As with HEFT what it
    lacks could have been sent when it was made; but it is sent just before the first op that reads it there. None if
    something cannot be sent, or if told to stop.
    """
    plans = Plans(problem)
    place = np.argsort(problem.graph.input_order)
    order = np.lexsort((place, -bottom_levels(problem.graph, mean_times(problem))))
    return None if plans.place_along(order, is_quick=True, stop=stop) is None else plans.listed_schedule()
