"""Features of ops that mean the same in every graph: sending against running, bytes against the peak."""

from __future__ import annotations

import numpy as np

from ...core.base.arrays import BoolArray, FloatArray, places_in
from ...core.bounds.bounds import memory_bound, op_needs
from ...core.graph.graph import CostGraph
from ...core.kernels.placements.heads import path_ends
from ...core.problem.problem import Problem, Task
from ...core.solvers.placements.list_schedulers import mean_times

LARGE = 1 / 2  # of what the largest op writes: an op of which this is written is a large one
TINY = 1e-300


def number_of_ratios(task: Task) -> int:
    """Return how many ratios an op has."""
    return 22 if task == "memory" else 18


def ratios(problem: Problem, found: float) -> FloatArray:
    """Return what the paper's features do not tell, shape `(ops, number_of_ratios(task))`; most from 0 to 1."""
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
