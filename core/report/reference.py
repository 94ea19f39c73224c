"""What a result is compared with: the input order on one device."""

from __future__ import annotations

import math

from ..model.simulator import Simulation, simulate
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..search.plans import Plans


def reference_value(problem: Problem) -> float:
    """Return the value of the input order on one device: the first, or on a machine the best."""
    return min(_value(problem, costs) for costs in _costs(problem))


def feasible_reference_value(problem: Problem) -> float:
    """Return the value of the input order on one device whose memory limit it keeps; infinite where there is none."""
    kept = (costs for costs in _costs(problem) if problem.is_feasible(costs.peak_per_device.tolist(), costs.runtime))
    return min((_value(problem, costs) for costs in kept), default=math.inf)


def _costs(problem: Problem) -> list[Simulation]:
    order = problem.graph.input_order
    schedules = [Schedule.single_device(order)] if problem.machine.is_equal else Plans(problem).schedules_along(order)
    return [simulate(problem, schedule) for schedule in schedules]


def _value(problem: Problem, costs: Simulation) -> float:
    return problem.value(costs.peak, problem.time_of(problem.graph.num_ops, costs.runtime))
