"""What the network sees of a problem, relative to the graph's size; and the rule that it corrects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core.base.arrays import FloatArray, IndexArray, places_in
from ...core.bounds.bounds import earliest_finish
from ...core.problem.problem import Problem
from ...core.report.differences import levels
from ...core.search.search import Cancelled
from ...core.solvers.orders.baselines import greedy_order, reverse_postorder
from ...core.solvers.placements.chromosomes import bottom_levels
from ...core.solvers.placements.list_schedulers import mean_times

PATIENCE = 0.5  # of the rule: in the middle of what the lazy decoder's searches start from
NODE_FEATURES = 20
LINK_FEATURES = 3  # more of an op, which only networks with `links` see


class Seen(NamedTuple):
    """A problem as the network sees it."""

    nodes: Any  # features of the ops, shape `(ops, NODE_FEATURES + LINK_FEATURES)`, float32; see `seen`
    # sources, targets: ops that the edges lead from and to, shape `(edges,)`
    sources: IndexArray
    targets: IndexArray
    rule: Any  # keys of the rule, shape `(ops + 1,)`, float32; see `rule_keys`
    transfers_take_time: bool  # whether transfers take time that counts


def seen(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Seen:
    """Return what the network sees of a problem; of devices and links that differ it sees the means."""
    graph, ops = problem.graph, problem.graph.num_ops
    sources, targets = graph.edges
    runtime = mean_times(problem)
    end, ahead = earliest_finish(graph, runtime), bottom_levels(graph, runtime)
    longest, mean = max(float(ahead.max()), 1e-300), max(float(runtime.mean()), 1e-300)
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(graph.consumers[0]))
    read = np.bincount(graph.consumers[1], graph.tensor_size[tensors], ops)
    made = np.bincount(graph.tensor_producer, graph.tensor_size, ops)
    own = (graph.workspace + graph.persistent).astype(np.float64)
    paid = problem.task == "runtime" and problem.transfers_take_time
    latency, per_byte = problem.machine.mean_link
    sent = (made * per_byte + latency * (made > 0)) if paid else np.zeros(ops)
    links = _links(problem, read, mean) if paid else np.zeros((LINK_FEATURES, ops))
    least_first, depth = places_in(_least_peak_first(problem, stop)), np.array(levels(graph), np.float64)
    if stop():
        raise Cancelled
    columns = [  # times against the critical path; bytes read, made and own against the most of each
        runtime / max(float(runtime.max()), 1e-300),
        np.log1p(runtime / mean),
        end / longest,
        ahead / longest,
        1 - (end - runtime + ahead) / longest,
        places_in(np.argsort(end, kind="stable")),
        places_in(np.argsort(ahead, kind="stable")),
        *(part / max(float(part.max()), 1.0) for part in (read, made, own)),
        (made - read) / max(float((made + read).max()), 1.0),
        np.log1p(np.bincount(targets, minlength=ops)) / 3,
        np.log1p(np.bincount(sources, minlength=ops)) / 3,
        depth / max(float(depth.max()), 1.0),
        least_first,
        places_in(reverse_postorder(graph)),
        np.log1p(sent / mean),  # what its outputs take to be sent
    ]
    work = float(runtime.sum()) / problem.devices
    everywhere = (np.log(problem.devices), np.log(max(work, 1e-300) / longest), np.log(max(ops, 1)) / 5)
    if not runtime.any():
        everywhere = (everywhere[0], 0.0, everywhere[2])
    nodes = np.column_stack([*columns, *(np.full(ops, value) for value in everywhere), *links]).astype(np.float32)
    return Seen(nodes, sources, targets, rule_keys(problem, least_first, ahead), paid)


def rule_keys(problem: Problem, least_first: FloatArray | None = None, ahead: FloatArray | None = None) -> Any:
    """Return the keys that the network corrects, shape `(ops + 1,)`, float32; larger runs earlier."""
    # Makespan: bottom levels against the longest, and the patience. Peak: the place in the order of least peak first.
    if problem.task == "runtime":
        level = bottom_levels(problem.graph, mean_times(problem)) if ahead is None else ahead
        keys = level / max(float(level.max()), 1e-300)
    else:
        keys = 1 - (places_in(_least_peak_first(problem)) if least_first is None else least_first)
    return np.append(keys, PATIENCE).astype(np.float32)


def _links(problem: Problem, read: Any, mean: float) -> FloatArray:
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
