"""What list schedulers rank ops by: times averaged over devices and links."""

from __future__ import annotations

import numpy as np

from ...base.arrays import FloatArray
from ...bounds.bounds import EdgeCosts
from ...problem.problem import Problem
from ..orders.baselines import Heed


def mean_times(problem: Problem) -> FloatArray:
    """Return the mean time of each op over the devices that can run it, microseconds; shape `(ops,)`."""
    times = problem.rules.times
    mean: FloatArray = times[:, 0].copy()
    differ = np.unique(np.nonzero(times != times[:, :1])[0])
    can = np.isfinite(times[differ])
    mean[differ] = np.where(can, times[differ], 0.0).sum(axis=1) / can.sum(axis=1)
    return mean


def upward_ranks(problem: Problem, edges: EdgeCosts, heed: Heed = iter) -> FloatArray:
    """Return the mean length of each op's longest path to the end, itself included (HEFT eq. 8); shape `(ops,)`."""
    graph = problem.graph
    rank, leaving = mean_times(problem), edges.grouped(edges.sources, graph.num_ops)
    for op in heed(graph.input_order[::-1].tolist()):
        rank[op] += max((edges.mean[e] + rank[edges.targets[e]] for e in leaving[op]), default=0.0)
    return rank


def downward_ranks(problem: Problem, edges: EdgeCosts, heed: Heed = iter) -> FloatArray:
    """Return the mean length of the longest path to each op, itself left out (HEFT eq. 10); shape `(ops,)`."""
    graph, times = problem.graph, mean_times(problem)
    rank, entering = np.zeros(graph.num_ops), edges.grouped(edges.targets, graph.num_ops)
    for op in heed(graph.input_order.tolist()):
        before = (rank[edges.sources[e]] + times[edges.sources[e]] + edges.mean[e] for e in entering[op])
        rank[op] = max(before, default=0.0)
    return rank
