"""What a result is compared with: the input order on one device."""

from __future__ import annotations

from .costs.simulator import simulate
from .problem import Problem
from .schedule import Schedule
from .search.plans import Plans


def reference_value(problem: Problem) -> float:
    """Return the value of the input order with all ops on device 0."""
    if not problem.is_plain:
        found = [simulate(problem, s) for s in Plans(problem).schedules_along(problem.graph.input_order)]
        return min(problem.value(costs.peak, costs.runtime) for costs in found)
    simulation = simulate(problem, Schedule.single_device(problem.graph.input_order))
    return problem.value(simulation.peak, problem.time_of(problem.graph.num_ops, simulation.runtime))
