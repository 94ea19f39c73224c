"""Features of a graph for REGAL's networks: its costs, and what a short search found for it (REGAL A.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...core.base.arrays import FloatArray, IndexArray
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem, Task
from ...core.problem.schedule import Schedule
from ...core.search.search import Cancelled, Search
from ...core.solvers.placements import brkga
from ...core.solvers.placements.brkga import GeneDistribution, evolve
from ...core.solvers.placements.chromosomes import Chromosomes, Population
from ...core.solvers.placements.list_schedulers import mean_times
from .ratios import ratios

Features = NDArray[np.float32]
EDGE_FEATURES = 3
EVALUATIONS = 400  # of the search whose results are features


def node_features(task: Task, devices: int) -> int:
    """Return how many features an op has: 11 for the makespan on two devices."""
    return (8 if task == "runtime" else 4) + devices + 1


@dataclass(frozen=True, eq=False)
class SearchedGraph:
    """What a network sees of a problem, and what the search for it found."""

    problem: Problem  # the graph, the task and the devices
    nodes: Features  # features of the ops, shape `(ops, node_features(task, devices))`; see `searched_graph`
    edges: Features  # features of the edges, shape `(edges, EDGE_FEATURES)`
    # ops that each edge leads from and to, shape `(edges,)`: an edge per op, tensor that it makes, and op that reads it
    producers: IndexArray
    consumers: IndexArray
    best: Schedule  # the best schedule that the search found
    value: float  # what that costs, in bytes or microseconds
    evaluations: float  # number of evaluations that the search spent

    @cached_property
    def ratios(self) -> Features:
        """See `ratios`; shape `(ops, number_of_ratios(task))`."""
        return ratios(self.problem, self.value).astype(np.float32)


def searched_graph(search: Search, evaluations: int = EVALUATIONS, until: float = math.inf) -> SearchedGraph:
    """Run plain BRKGA for a few evaluations and return the features of the graph (A.2)."""
    # Of an op: its costs, see `_costs`, its share of the last population on each device, and its mean place, from 0 to
    # 1.
    before = search.evaluations
    with search.part(evaluations=evaluations, until=until):
        (evolved,) = evolve(search, brkga.Parameters(), GeneDistribution())
    if search.interrupt.is_set():
        raise Cancelled
    population = evolved.priced()
    assert search.best is not None
    graph = search.problem.graph
    pointers, consumers = graph.consumers
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(pointers))
    nodes, edges = _costs(search.problem, tensors)
    return SearchedGraph(
        search.problem,
        np.hstack((nodes, _expectation(search, population))).astype(np.float32),
        edges.astype(np.float32),
        graph.tensor_producer[tensors],
        consumers,
        search.best,
        search.best_value,
        search.evaluations - before,
    )


def _costs(problem: Problem, tensors: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Return the features of nodes and edges that no search is needed for; `tensors` has one entry per edge."""
    # Bytes count against the largest number of bytes among all features, times against the longest runtime. An input
    # read twice counts once, and a view as many bytes as it shows.
    graph, ops = problem.graph, problem.graph.num_ops
    read = graph.tensor_size[tensors]
    memory = np.column_stack(
        (
            np.bincount(graph.consumers[1], read, ops),
            np.bincount(graph.tensor_producer, graph.tensor_size, ops),
            graph.workspace + graph.persistent,  # its own; persistent bytes are not in the paper's model
        )
    )
    most = memory.max()  # no tensor is larger than what its producer writes
    columns = [memory / max(most, 1), _is_op(graph, replace(problem, task="memory").fixed_op)]
    if problem.task == "runtime":
        sources, targets = graph.edges
        runtime = mean_times(problem)
        before, after = np.bincount(targets, runtime[sources], ops), np.bincount(sources, runtime[targets], ops)
        times = np.column_stack((before, after, runtime))
        longest = runtime.max()
        columns += [times / (longest if longest > 0 else 1.0), _is_op(graph, problem.fixed_op)]
    index = tensors / max(graph.num_tensors - 1, 1)
    return np.column_stack(columns), np.column_stack((read / max(most, 1), graph.is_control[tensors], index))


def _is_op(graph: CostGraph, op: int) -> FloatArray:
    is_op: FloatArray = (np.arange(graph.num_ops) == op).astype(np.float64)
    return is_op


def _expectation(search: Search, population: Population) -> FloatArray:
    """Return each op's share of schedules per device and its mean place in the order, shape `(ops, devices + 1)`."""
    graph, devices = search.problem.graph, search.problem.devices
    places = np.arange(graph.num_ops) / max(graph.num_ops - 1, 1)
    found = np.zeros((graph.num_ops, devices + 1))
    with Chromosomes(search) as chromosomes:
        for chromosome in population:
            schedule = chromosomes.decode(chromosome)
            is_op = schedule.items >= 0
            ops = schedule.items[is_op]
            found[ops, schedule.targets[is_op]] += 1
            found[ops, devices] += places
    return found / len(population)
