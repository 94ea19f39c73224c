"""Features for REGAL's networks: costs, results of a short search (REGAL A.2), and ratios alike in all graphs."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...core.base.arrays import BoolArray, FloatArray, IndexArray, places_in
from ...core.bounds.bounds import memory_bound, op_needs
from ...core.graph.graph import CostGraph
from ...core.kernels.placements.heads import path_ends
from ...core.problem.problem import Problem, Task
from ...core.problem.schedule import Schedule
from ...core.search.search import Cancelled, Search
from ...core.solvers.placements import brkga
from ...core.solvers.placements.brkga import GeneDistribution, evolve
from ...core.solvers.placements.chromosomes import Chromosomes, Population
from ...core.solvers.placements.list_schedulers import mean_times

Features = NDArray[np.float32]
EDGE_FEATURES = 3
EVALUATIONS = 400  # of the search whose results are features


def node_features(task: Task, devices: int) -> int:
    """Return how many features an op has: 11 for the makespan on two devices."""
    return (8 if task == "runtime" else 4) + devices + 1


@dataclass(frozen=True, eq=False)
class SearchedGraph:
    """A network's view of a problem, and the results of the search for it."""

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
    if search.interrupt.is_set() or search.best is None:  # no plan that it drew has the links it needs
        raise Cancelled
    population = evolved.priced()
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
    columns = [memory / max(most, 1), np.arange(ops) == replace(problem, task="memory").fixed_op]
    if problem.task == "runtime":
        sources, targets = graph.edges
        runtime = mean_times(problem)
        before, after = np.bincount(targets, runtime[sources], ops), np.bincount(sources, runtime[targets], ops)
        times = np.column_stack((before, after, runtime))
        longest = runtime.max()
        columns += [times / (longest if longest > 0 else 1.0), np.arange(ops) == problem.fixed_op]
    index = tensors / max(graph.num_tensors - 1, 1)
    return np.column_stack(columns), np.column_stack((read / max(most, 1), graph.is_control[tensors], index))


def _expectation(search: Search, population: Population) -> FloatArray:
    """Return each op's share of schedules per device and its mean place in the order, shape `(ops, devices + 1)`."""
    graph, devices = search.problem.graph, search.problem.devices
    places = np.arange(graph.num_ops) / max(graph.num_ops - 1, 1)
    found = np.zeros((graph.num_ops, devices + 1))
    with Chromosomes(search) as chromosomes:
        for chromosome in population:
            schedule = chromosomes.decode(chromosome)
            ops = schedule.items[is_op := schedule.items >= 0]
            found[ops, schedule.targets[is_op]] += 1
            found[ops, devices] += places
    return found / len(population)


LARGE = 1 / 2  # of what the largest op writes: an op of which this is written is a large one
TINY = 1e-300


def number_of_ratios(task: Task) -> int:
    """Return how many ratios an op has."""
    return 22 if task == "memory" else 18


def ratios(problem: Problem, found: float) -> FloatArray:
    """Return the ratios beyond the paper's features, shape `(ops, number_of_ratios(task))`; most from 0 to 1."""
    of_ops, of_graph = (_memory_ratios if problem.task == "memory" else _runtime_ratios)(problem, found)
    ops = problem.graph.num_ops
    return np.column_stack([*of_ops, *(np.full(ops, value) for value in (*of_graph, np.log(ops) / 8))])


def _memory_ratios(problem: Problem, found: float) -> tuple[list[FloatArray], list[float]]:
    graph, found = problem.graph, max(found, 1.0)
    need = (op_needs(graph, problem.devices) + graph.persistent).astype(np.float64)
    written = graph.buffers.own.astype(np.float64)
    largest = max(float(written.max()), 1.0)
    is_large = written >= LARGE * largest
    alive = _alive(graph, np.ones(graph.num_ops, np.bool_)) + graph.workspace + int(graph.persistent.sum())
    large = _alive(graph, is_large)  # of what large ops write alone
    place = places_in(graph.input_order)
    sources, targets = graph.edges
    last = place.copy()
    np.maximum.at(last, sources, place[targets])
    of_ops = [  # bytes against the largest op's, the most alive, and the peak found
        written / largest,
        np.maximum(1 + np.log2(np.maximum(written, 1) / largest) / 8, 0),
        is_large.astype(np.float64),
        need / max(float(need.max()), 1.0),
        need / found,
        written / found,
        alive / max(float(alive.max()), 1.0),
        np.minimum(alive / found, 3) / 2,
        np.minimum(large / found, 2),
        np.minimum((alive - large) / found, 2),
        last - place,  # how long its outputs stay
        place,
        np.minimum(graph.persistent / found, 1),
    ]
    final = float(graph.tensor_size[graph.is_final & (graph.alias_of < 0)].sum())
    of_graph = [
        memory_bound(problem) / found,
        min(float(graph.persistent.sum()) / problem.devices / found, 1),
        min(final / problem.devices / found, 1),
        float(need.max()) / found,
        min(float(alive.max()) / found, 4) / 2,
        min(float(large.max()) / found, 2),
        min(float((alive - large).max()) / found, 2),
        float(is_large.mean()),
    ]
    return of_ops, of_graph


def _alive(graph: CostGraph, makes: BoolArray) -> FloatArray:
    """Return how many bytes that some ops allocated are alive when each op runs, in the input order on one device."""
    b, ops = graph.buffers, graph.num_ops
    step = np.empty(ops, np.int64)
    step[graph.input_order] = np.arange(ops)
    last = step[b.producer].copy()
    np.maximum.at(last, np.repeat(np.arange(len(b.size)), np.diff(b.user_ptr)), step[b.users])
    last[b.is_final] = ops - 1
    size = np.where(makes[b.producer], b.size, 0).astype(np.float64)
    change = np.bincount(step[b.producer], size, ops + 1) - np.bincount(last + 1, size, ops + 1)
    alive: FloatArray = np.cumsum(change)[step]
    return alive


def _runtime_ratios(problem: Problem, found: float) -> tuple[list[FloatArray], list[float]]:
    graph, ops = problem.graph, problem.graph.num_ops
    runtime = mean_times(problem)
    mean, total = float(runtime.mean()) or 1.0, float(runtime.sum()) or 1.0
    share = total / problem.devices
    latency, per_byte = problem.machine.mean_link
    sending = np.asarray(graph.tensor_size * per_byte + latency, np.float64)  # microseconds, 0 without links
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(graph.consumers[0]))
    sent = np.bincount(graph.tensor_producer, sending, ops)
    got = np.bincount(graph.consumers[1], sending[tensors], ops)
    order = graph.input_order
    end = path_ends(order, *graph.predecessors, runtime)
    ahead = path_ends(order[::-1], *graph.successors, runtime)
    path = float(end.max()) or 1.0
    slack = np.maximum(path - (end - runtime + ahead), 0)
    middle = end - runtime / 2
    beside = np.searchsorted(np.sort(end - runtime), middle, "right") - np.searchsorted(np.sort(end), middle, "right")
    of_ops = [  # times of sending and running, against each other, the mean runtime, and a device's share of all
        sent / (sent + runtime + TINY),
        got / (got + runtime + TINY),
        np.log1p(sent / mean) / 3,
        np.log1p(got / mean) / 3,
        np.log1p(runtime / mean) / 3,
        np.minimum(runtime / share, 1),
        np.minimum((sent + got) / share, 1),
        end / path,
        ahead / path,
        slack / path,
        slack / (slack + sent + got + TINY),
        np.log1p(np.maximum(beside, 0)) / 4,  # how many ops run at the same time
        places_in(order),
    ]
    of_graph = [
        path / total,
        float(np.log1p((sending.mean() if len(sending) else 0.0) / mean)) / 3,
        min(found / total, 2),
        min(float(sent.sum()) / total, 10) / 5,
    ]
    return of_ops, of_graph
