"""Keys made schedules: by the lazy decoder for the makespan, along an order and by a narrow beam for the peak."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ...core.base.arrays import BoolArray, FloatArray, IndexArray
from ...core.graph.graph import CostGraph
from ...core.kernels.orders.priority_orders import greedy
from ...core.problem.problem import Problem
from ...core.search.search import Search
from ...core.solvers.placements.chromosomes import LazyChromosomes
from ...core.solvers.placements.peak_annealing import FIRST_BEAM, decode_keys, place

PER_ORDER = 24  # evaluations that placing an order for the peak may take: three beams of eight states at the most
MOST_PATIENCE = 4.0
ONE_DEVICE = -1.0  # A patience below 0, as this one, keeps all ops on one device, if transfers take time


def decode(search: Search, keys: Any) -> None:
    """Offer the schedules of some rows of keys, the first row first, as far as the budget goes."""
    # Makespan: the lazy decoder; of the rows that stay on one device only the first is tried. If none keeps the memory
    # limit, and for the peak, each row's order is placed by beams. Where devices differ or residents have a home, ops
    # follow the row's order, and the first row's also on each sort of device alone.
    rows = keys[: int(max(1.0, min(len(keys), search.evaluations_left)))]
    graph = search.problem.graph
    if search.problem.task == "runtime":
        alone, is_symmetric = stays(search.problem, rows), search.problem.is_symmetric
        for row in rows[alone][:1] if is_symmetric else rows[:1]:
            search.offer_order(order_of(graph, row))
        moving = rows[~alone][: int(min(len(rows), max(0.0, search.evaluations_left)))]
        if len(moving):
            decode_keys(search, _within(moving))
        is_over_limit = search.best is not None and search.best_fitness[0] > 0
        if is_symmetric and is_over_limit and search.evaluations_left >= 1:
            place(search, np.stack([order_of(graph, row) for row in rows]))
        return
    for row in rows:
        if search.best is not None and search.exhausted():
            return
        _place_order(search, order_of(graph, row))


def values_of(problem: Problem, keys: Any) -> FloatArray:
    """Return what the schedule of each row of keys costs, microseconds or bytes, shape `(rows,)`."""
    if problem.task == "runtime":
        values = np.full(len(keys), float(problem.graph.runtime.sum()))
        moves = ~stays(problem, keys)
        if moves.any():
            with LazyChromosomes(Search(problem)) as chromosomes:
                values[moves] = chromosomes.price(_within(keys[moves]))[:, 1]
        return values
    values = np.empty(len(keys))
    for at, row in enumerate(keys):
        search = Search(problem)
        _place_order(search, order_of(problem.graph, row))
        values[at] = search.best_value
    return values


def stays(problem: Problem, keys: Any) -> BoolArray:
    """Return which rows of keys keep all ops on one device, shape `(rows,)`."""
    kept: BoolArray = (keys[:, -1] < 0) & problem.transfers_take_time
    return kept


def order_of(graph: CostGraph, keys: Any) -> IndexArray:
    """Return the order that always takes the ready op of the largest key, of equals the first; shape `(ops,)`."""
    (order,) = greedy(graph.buffers, keys[: graph.num_ops])
    return cast(IndexArray, order)


def _within(keys: Any) -> Any:
    """Return keys whose patience is one that the decoder knows."""
    kept = np.ascontiguousarray(keys, np.float32).copy()
    kept[:, -1] = kept[:, -1].clip(0.0, MOST_PATIENCE)
    return kept


def _place_order(search: Search, order: IndexArray) -> None:
    evaluations = max(1.0, min(PER_ORDER, search.evaluations_left - FIRST_BEAM))  # the last beam may exceed it
    with search.part(evaluations=evaluations):
        search.offer_order(order)
        place(search, order[None])
