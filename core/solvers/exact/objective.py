"""The objective of the CP-SAT model: the peak of the fullest device, or the makespan."""

from __future__ import annotations

import math

from .redundant import devices_work_within
from .variables import Variables


def minimise_peak(v: Variables) -> None:
    """Minimise the peak of the fullest device, down to what is known to be the least, or to the limit."""
    known = v.search.lower_bound if v.problem.task == "memory" else v.problem.memory_limits[0] or 0
    v.model.add(v.peak >= min(int(known) // v.units.bytes, v.most))
    v.model.minimize(v.peak)


def minimise_makespan(v: Variables) -> None:
    """Minimise the end of the last op, no later than in the hint if that is feasible; what is sent is read later."""
    bound = math.floor(v.search.lower_bound / v.units.microseconds * (1 - 1e-12))
    low = min(max(0, bound) * v.units.steps, v.units.horizon)
    high = v.units.horizon if v.search.best_fitness[0] else max(low, v.hint.makespan)
    makespan = v.number(low, high, v.hint.makespan)
    devices_work_within(v, makespan)
    for step in v.ops:
        v.model.add(makespan >= step.end)
    v.model.minimize(makespan)
