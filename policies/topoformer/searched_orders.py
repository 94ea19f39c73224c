"""Orders of given graphs to imitate: found by `order-search` once per graph, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.base.arrays import IndexArray
from ...core.base.errors import FormatError
from ...core.base.parallel import map_in_order
from ...core.files.costgraph import graph_hash
from ...core.files.json_lines import JsonLines
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem
from ...core.solve.solve import solve


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
    """Return an order of low peak for each graph, or None if told to stop; those on disk are not searched for again."""
    keys = [f"{graph_hash(graph)}-{evaluations}-{seed}" for graph in graphs]
    with closing(JsonLines(path, "orders", "delete the file to search again")) as file:
        known = {key: record.get("order") for key, record in file.records.items()}
        missing = {key: graph for key, graph in zip(keys, graphs, strict=True) if key not in known}
        count = len(set(keys)) - len(missing)
        on_order(count)
        found = map_in_order(partial(_search, evaluations, seed), missing.values(), jobs)
        for key, order in zip(missing, found, strict=True):
            known[key] = order.tolist()
            file.write(key, {"order": known[key]})
            count += 1
            on_order(count)
            if must_stop():
                return None
    for key, graph in zip(keys, graphs, strict=True):
        if not _is_order(known[key], graph.num_ops):
            raise FormatError(f"{path}: the order of {graph.name} is damaged; delete the file to search again")
    return [np.array(known[key], np.int32) for key in keys]


def _is_order(value: Any, ops: int) -> bool:
    return isinstance(value, list) and all(type(op) is int for op in value) and sorted(value) == list(range(ops))


def _search(evaluations: int, seed: int, graph: CostGraph) -> IndexArray:
    return solve(Problem(graph), "order-search", evaluations=evaluations, seed=seed).schedule.op_order()
