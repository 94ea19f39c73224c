"""Problems to train on: graphs with devices and links drawn for each, and a teacher's plan of each, kept on disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.base.arrays import IndexArray
from ...core.base.parallel import map_in_order
from ...core.bounds.bounds import lower_bound
from ...core.files.costgraph import graph_hash
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem
from ...core.solve.solve import solve
from ..training.kept_orders import kept_orders
from .features import Seen, seen
from .training_settings import TrainingParameters

HELD_OUT = 2**31
_STREAM = 31  # keeps the graphs apart from those of `schedopt gen`, whatever the seed


@dataclass(frozen=True, eq=False)
class Case:
    """A problem to train or to validate on."""

    problem: Problem  # the problem
    seen: Seen  # what the network sees of it
    bound: float  # what no schedule can beat, at least 1
    order: Any = None  # the teacher's order, shape `(ops,)`; None where none was asked for

    @functools.cached_property
    def place(self) -> Any:
        """The place of each op in the teacher's order, shape `(ops,)`."""
        return np.argsort(self.order)


def make_case(parameters: TrainingParameters, first: int, graphs: Sequence[CostGraph], number: int) -> Case:
    """Return the case of a number: the same one for the same numbers, in any process."""
    # Where transfers take time and the settings do not say how much, sending the mean tensor takes between a thousandth
    # and all of an op's mean runtime, and in half of these cases as much again is latency.
    rng = np.random.default_rng([parameters.seed, _STREAM, first + number])
    graph = graphs[number] if graphs else parameters.synthetic.draw(number, rng)
    task = parameters.network.task
    devices = int(rng.choice(parameters.devices))
    bandwidth, latency = None, 0.0
    if task == "runtime" and rng.random() < parameters.paid and graph.num_data_tensors:
        bandwidth, latency = _links(parameters, graph, rng)
    problem = Problem(graph, task, devices=devices, bandwidth=bandwidth, latency=latency)
    return Case(problem, seen(problem), max(lower_bound(problem), 1.0))


def _links(parameters: TrainingParameters, graph: CostGraph, rng: np.random.Generator) -> tuple[float | None, float]:
    if parameters.bandwidth:
        return parameters.bandwidth, parameters.latency
    sending = float(graph.runtime.mean()) * 10 ** rng.uniform(-3, 0)  # microseconds
    size = float(graph.tensor_size.sum()) / graph.num_data_tensors
    if sending <= 0 or size <= 0:
        return None, 0.0
    return size / sending * 1e6, sending if rng.random() < 0.5 else 0.0


def make_cases(
    parameters: TrainingParameters, first: int, count: int, graphs: Sequence[CostGraph], jobs: int
) -> list[Case]:
    """Return the cases of given graphs, or of `count` synthetic ones."""
    numbers = range(len(graphs) or count)
    return list(map_in_order(partial(make_case, parameters, first, tuple(graphs)), numbers, jobs))


def taught(
    cases: Sequence[Case],
    path: str | Path,
    parameters: TrainingParameters,
    jobs: int = 1,
    on_plan: Callable[[int], None] = lambda count: None,
    must_stop: Callable[[], bool] = lambda: False,
) -> list[Case] | None:
    """Return the cases with the order of the teacher's plan, or None if told to stop; none is searched for twice."""
    keys = [_key(case.problem, parameters) for case in cases]
    problems = {key: case.problem for key, case in zip(keys, cases, strict=True)}
    orders = kept_orders(problems, path, "plan", partial(_plan, parameters), jobs, on_plan, must_stop)
    if orders is None:
        return None
    return [replace(case, order=orders[key]) for key, case in zip(keys, cases, strict=True)]


def _key(problem: Problem, p: TrainingParameters) -> str:
    links = f"{problem.devices}-{problem.bandwidth}-{problem.latency}"
    return f"{graph_hash(problem.graph)}-{problem.task}-{links}-{p.teacher}-{p.teacher_evaluations}"


def _plan(parameters: TrainingParameters, problem: Problem) -> IndexArray:
    found = solve(problem, parameters.teacher, evaluations=parameters.teacher_evaluations, seed=parameters.seed)
    return found.schedule.op_order()
