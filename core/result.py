"""What solving a problem gives: a verified schedule and how good it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .costs.simulator import Simulation, simulate
from .problem import Problem
from .schedule import Schedule


@dataclass(frozen=True, eq=False)
class Result:
    """A verified schedule and how good it is.

    Parameters
    ----------
    problem, schedule, simulation
        What was solved, the best schedule found, and what it costs.
    method, found_by
        What was asked for, and what produced the schedule.
    status
        `optimal` (value equals the bound), `feasible`, `infeasible` (no schedule kept the memory limit; this
        is the one of least excess) or `interrupted`.
    lower_bound
        Bytes or microseconds that no schedule can beat.
    evaluations
        Complete schedules priced.
    seconds
        Wall time from the graph loaded and the kernels compiled.
    seed
        Of every random choice.
    is_repeatable
        Whether the same call gives the same schedule: not if time ended or steered the search.
    notes
        What the method has to say about the run, a sentence each.
    """

    problem: Problem
    schedule: Schedule
    simulation: Simulation
    method: str
    found_by: str
    status: str
    lower_bound: float
    evaluations: float
    seconds: float
    seed: int
    is_repeatable: bool
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """What the task minimises: peak bytes or makespan in microseconds."""
        return self.problem.value(self.simulation.peak, self.simulation.runtime)

    @property
    def gap(self) -> float:
        """Relative distance from the lower bound: 0 is optimal."""
        return self.value / self.lower_bound - 1 if self.lower_bound else math.inf if self.value else 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether the schedule keeps the memory limit."""
        return self.problem.is_feasible(self.simulation.peak)


def reference_value(problem: Problem) -> float:
    """Return the value of the input order with all ops on device 0."""
    simulation = simulate(problem, Schedule.single_device(problem.graph.input_order))
    return problem.value(simulation.peak, simulation.runtime)
