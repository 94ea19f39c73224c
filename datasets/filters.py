"""Filters: which graphs are worth keeping in a data set (REGAL A.1.2 and A.1.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.graph.graph import CostGraph
from ..core.problem.problem import Problem, Task

FEW_EVALUATIONS, MANY_EVALUATIONS = 1_000, 10_000


def has_room(task: Task, devices: int, graph: CostGraph) -> bool:
    """Whether the file's order on device 0 does not meet the lower bound that needs no search (A.1.2)."""
    from ..core.bounds.bounds import is_met, lower_bound
    from ..core.report.result import reference_value

    problem = Problem(graph, task=task, devices=devices)
    if devices == 1 and has_single_order(graph):
        return False
    return not is_met(reference_value(problem), lower_bound(problem))


def has_single_order(graph: CostGraph) -> bool:
    """Whether the ops can run in one order only: each waits for the one before it."""
    order = graph.input_order
    sources, targets = graph.edges
    place = np.empty(graph.num_ops, np.int64)
    place[order] = np.arange(graph.num_ops)
    return int(np.sum(place[targets] - place[sources] == 1)) == graph.num_ops - 1


@dataclass(frozen=True)
class KeepWithRoom:
    """Keeps graphs that have room, see `has_room`; filters are dataclasses: a recipe's `repr` tells them apart."""

    task: Task
    devices: int

    def __call__(self, graph: CostGraph, rng: np.random.Generator) -> bool:
        """Whether to keep the graph; no random number is drawn."""
        return has_room(self.task, self.devices, graph)


@dataclass(frozen=True)
class KeepImproving:
    """Keeps graphs whose makespan BRKGA improves by this fraction from 1,000 to 10,000 evaluations (A.1.4)."""

    fraction: float

    def __call__(self, graph: CostGraph, rng: np.random.Generator) -> bool:
        """Whether to keep the graph; the generator gives the seed of both searches."""
        from ..core.solve.solve import solve

        problem = Problem(graph, task="runtime", devices=2)
        seed = int(rng.integers(2**31))
        few = solve(problem, "brkga", evaluations=FEW_EVALUATIONS, seed=seed).value
        many = solve(problem, "brkga", evaluations=MANY_EVALUATIONS, seed=seed).value
        return few > 0 and (few - many) / few >= self.fraction
