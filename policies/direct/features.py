"""What the network sees of a problem: numbers relative to the graph, so that one network serves all sizes and devices.

And the rule that the network corrects: keys that need no network at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.base.arrays import FloatArray, IndexArray
from ...core.bounds.bounds import earliest_finish
from ...core.problem.problem import Problem
from ...core.report.graph_summary import levels
from ...core.search.search import Cancelled
from ...core.solvers.orders.baselines import reverse_postorder
from ...core.solvers.orders.lpmf import greedy_order
from ...core.solvers.placements.lazy_keys import bottom_levels
from ...core.solvers.placements.ranks import mean_times

PATIENCE = 0.5
"""Of the rule: in the middle of what the lazy decoder's searches start from."""
NODE_FEATURES = 20
LINK_FEATURES = 3
"""More of an op, which only networks with `links` see."""


class Seen(NamedTuple):
    """A problem as the network sees it.

    Parameters
    ----------
    nodes
        Features of the ops, shape `(ops, NODE_FEATURES + LINK_FEATURES)`, float32; see `seen`.
    sources, targets
        Ops that the edges lead from and to, shape `(edges,)`.
    rule
        Keys of the rule, shape `(ops + 1,)`, float32; see `rule_keys`.
    transfers_take_time
        Whether transfers take time that counts.
    """

    nodes: Any
    sources: IndexArray
    targets: IndexArray
    rule: Any
    transfers_take_time: bool


def seen(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Seen:
    """Return what the network sees of a problem; of devices and links that differ it sees the means.

    The features of an op are

    - its runtime against the longest and the mean one; its earliest end, the longest path from its start and its slack,
      against the critical path; its rank in the first two;
    - the bytes of its inputs, of its outputs, and of its own, against the most of each; whether its outputs outweigh
      its inputs; its inputs and consumers, as logarithms;
    - its depth, and its places in two orders for one device: least peak first, and depth first;
    - what its outputs cost to send, against the mean runtime, as a logarithm;
    - the same for all ops: the logarithms of the number of devices, of their work against the critical path, and of the
      number of ops;
    - the links, as logarithms, against the mean runtime: what the op's inputs cost to fetch, and, the same for all ops,
      what a mean tensor costs to send and what of it is latency.
    """
    graph, ops = problem.graph, problem.graph.num_ops
    sources, targets = graph.edges
    runtime = mean_times(problem)
    end, ahead = earliest_finish(graph, runtime), bottom_levels(graph, runtime)
    longest, mean = max(float(ahead.max()), 1e-300), max(float(runtime.mean()), 1e-300)
    read = _sums(graph.consumers[1], graph.tensor_size[_tensors(problem)], ops)
    made = _sums(graph.tensor_producer, graph.tensor_size, ops)
    own = (graph.workspace + graph.persistent).astype(np.float64)
    paid = problem.task == "runtime" and problem.transfers_take_time
    latency, per_byte = problem.machine.mean_link
    sent = (made * per_byte + latency * (made > 0)) if paid else np.zeros(ops)
    links = _links(problem, read, mean) if paid else np.zeros((LINK_FEATURES, ops))
    least_first, depth = _places(_least_peak_first(problem, stop)), np.array(levels(graph), np.float64)
    if stop():
        raise Cancelled
    columns = [
        runtime / max(float(runtime.max()), 1e-300),
        np.log1p(runtime / mean),
        end / longest,
        ahead / longest,
        1 - (end - runtime + ahead) / longest,
        _places(np.argsort(end, kind="stable")),
        _places(np.argsort(ahead, kind="stable")),
        *(part / max(float(part.max()), 1.0) for part in (read, made, own)),
        (made - read) / max(float((made + read).max()), 1.0),
        np.log1p(np.bincount(targets, minlength=ops)) / 3,
        np.log1p(np.bincount(sources, minlength=ops)) / 3,
        depth / max(float(depth.max()), 1.0),
        least_first,
        _places(reverse_postorder(graph)),
        np.log1p(sent / mean),
    ]
    work = float(runtime.sum()) / problem.devices
    everywhere = (np.log(problem.devices), np.log(max(work, 1e-300) / longest), np.log(max(ops, 1)) / 5)
    if not runtime.any():
        everywhere = (everywhere[0], 0.0, everywhere[2])
    nodes = np.column_stack([*columns, *(np.full(ops, value) for value in everywhere), *links]).astype(np.float32)
    return Seen(nodes, sources, targets, rule_keys(problem, least_first, ahead), paid)


def rule_keys(problem: Problem, least_first: FloatArray | None = None, ahead: FloatArray | None = None) -> Any:
    """Return the keys that the network corrects, shape `(ops + 1,)`, float32; larger runs earlier.

    For the makespan bottom levels, against the longest, and the patience of the lazy decoder; for the peak the place in
    the order that keeps the peak on one device lowest at each step.
    """
    if problem.task == "runtime":
        level = bottom_levels(problem.graph, mean_times(problem)) if ahead is None else ahead
        keys = level / max(float(level.max()), 1e-300)
    else:
        keys = 1 - (_places(_least_peak_first(problem)) if least_first is None else least_first)
    return np.append(keys, PATIENCE).astype(np.float32)


def _links(problem: Problem, read: FloatArray, mean: float) -> FloatArray:
    """Return what links cost against a mean runtime, as logarithms, shape `(LINK_FEATURES, ops)`; see `seen`."""
    graph, ops = problem.graph, problem.graph.num_ops
    latency, per_byte = problem.machine.mean_link
    fetched = read * per_byte + latency * np.diff(graph.inputs[0])
    size = float(graph.tensor_size.sum()) / max(1, graph.num_tensors)
    sending = size * per_byte + latency
    return np.log1p(np.stack([fetched, np.full(ops, sending), np.full(ops, latency)]) / mean)


def _least_peak_first(problem: Problem, stop: Callable[[], bool] = lambda: False) -> IndexArray:
    order = greedy_order(problem.graph.buffers, stop)
    if order is None or stop():
        raise Cancelled
    return order


def _tensors(problem: Problem) -> Any:
    graph = problem.graph
    return np.repeat(np.arange(graph.num_tensors), np.diff(graph.consumers[0]))


def _sums(ops: IndexArray, values: Any, count: int) -> FloatArray:
    return np.bincount(ops, weights=values.astype(np.float64), minlength=count).astype(np.float64)


def _places(order: Any) -> FloatArray:
    """Return the place of each op in an order, from 0 to 1."""
    places = np.empty(len(order))
    places[order] = np.linspace(0, 1, len(order))
    return places
