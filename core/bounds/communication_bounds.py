"""Lower bounds on the makespan of several devices that know what transfers cost (`docs/concepts/bounds.md`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import FloatArray, csr, frozen
from ..graph.graph import CostGraph
from ..kernels.paths import path_ends
from ..kernels.placements.heads import Sending, find_heads, new_heads
from ..problem.problem import Problem
from .energy_bounds import energy_bound

LARGEST, MOST_WORK = 2_000, 200_000_000
"""Ops, and ops times pairs of them that read each other: time goes with these, half a second for so much. On larger
graphs transfers are left out."""


def communication_bound(problem: Problem) -> float:
    """Return what no schedule on several devices is faster than, microseconds.

    An op's head is its earliest start, its tail what follows it at least: where a transfer takes longer than to run
    more ops on one device, these run in turn (Papadimitriou and Yannakakis 1990). Then `energy_bound`.
    """
    graph = problem.graph
    if graph.num_ops > LARGEST or graph.num_ops * len(graph.edges[0]) > MOST_WORK:
        head = path_ends(graph.input_order, *graph.predecessors, graph.runtime) - graph.runtime
        tail = path_ends(graph.input_order[::-1], *graph.successors, graph.runtime) - graph.runtime
    else:
        head, tail = _heads(problem, is_reversed=False), _heads(problem, is_reversed=True)
    return energy_bound(head, tail, graph.runtime, graph.runtime / problem.devices)


def _heads(problem: Problem, *, is_reversed: bool) -> FloatArray:
    """Return each op's head or, with time reversed, its tail, microseconds; shape `(ops,)`."""
    graph = problem.graph
    sources, targets, cost = _sending(graph, problem.latency + graph.tensor_size * problem.microseconds_per_byte)
    if is_reversed:
        sources, targets = targets, sources
    by_target = np.lexsort((sources, targets))
    pointers, before = csr(targets[by_target], sources[by_target], graph.num_ops)
    order = graph.input_order[::-1] if is_reversed else graph.input_order
    heads = new_heads(graph.num_ops)
    sending = Sending(frozen(order, np.int32), pointers, before, cost[by_target], graph.runtime)
    find_heads(sending, heads, 0, graph.num_ops)
    return heads.head


def _sending(graph: CostGraph, cost: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return distinct pairs of ops, one of which reads the other, and what all tensors between them cost to send."""
    pointers, consumers = graph.consumers
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(pointers))
    pairs = graph.tensor_producer[tensors].astype(np.int64) * graph.num_ops + consumers
    distinct, place = np.unique(pairs, return_inverse=True)
    total = np.zeros(len(distinct))
    np.add.at(total, place, cost[tensors])
    return distinct // graph.num_ops, distinct % graph.num_ops, total
