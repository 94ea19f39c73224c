"""Orders of given graphs to imitate: found by `order-search` once per graph, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...core.base.arrays import IndexArray
from ...core.files.costgraph import graph_hash
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem
from ...core.solve.solve import solve
from ..training.kept_orders import kept_orders


def searched_orders(
    graphs: Sequence[CostGraph],
    path: str | Path,
    *,
    evaluations: int,
    seed: int,
    jobs: int = 1,
    on_order: Callable[[int], None] = lambda count: None,
    must_stop: Callable[[], bool] = lambda: False,
) -> list[IndexArray] | None:
    """Return an order of low peak for each graph, or None if told to stop; see `kept_orders`."""
    keys = [f"{graph_hash(graph)}-{evaluations}-{seed}" for graph in graphs]
    problems = dict(zip(keys, map(Problem, graphs), strict=True))
    orders = kept_orders(problems, path, "order", partial(_search, evaluations, seed), jobs, on_order, must_stop)
    return None if orders is None else [orders[key] for key in keys]


def _search(evaluations: int, seed: int, problem: Problem) -> IndexArray:
    return solve(problem, "order-search", evaluations=evaluations, seed=seed).schedule.op_order()
