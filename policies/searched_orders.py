"""Orders of given graphs to imitate: found by `order-search` once per graph, and kept on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ..core.atomic import write_atomically
from ..core.errors import FormatError
from ..core.graph import CostGraph, IndexArray
from ..core.problem import Problem
from ..core.resume import graph_hash
from ..core.solve import solve
from ..datasets.parallel import map_in_order


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
    """Return an order of low peak for each graph, or None if told to stop; those on disk are not searched for again.

    Parameters
    ----------
    graphs
        The graphs; the same one twice is searched once.
    path
        File with a line of JSON per order, to which each is added as soon as it is found; made if there is none.
    evaluations, seed
        Budget and seed of each search.
    jobs
        Worker processes, on which the orders do not depend.
    on_order
        Called with the number of orders known, at first and after each search.
    must_stop
        Asked after each search.

    Raises
    ------
    FormatError
        If the file cannot be read or written, or is something else.
    """
    keys = [f"{graph_hash(graph)}-{evaluations}-{seed}" for graph in graphs]
    known = _read(Path(path))
    missing = {key: graph for key, graph in zip(keys, graphs, strict=True) if key not in known}
    on_order(len(set(keys)) - len(missing))
    found = map_in_order(partial(_search, evaluations, seed), missing.values(), jobs)
    for count, (key, order) in enumerate(zip(missing, found, strict=True), start=len(set(keys)) - len(missing) + 1):
        known[key] = order
        _append(Path(path), key, order)
        on_order(count)
        if must_stop():
            return None
    for key, graph in zip(keys, graphs, strict=True):
        if not np.array_equal(np.sort(known[key]), np.arange(graph.num_ops)):
            raise FormatError(f"{path}: the order of {graph.name} is damaged; delete the file to search again")
    return [known[key] for key in keys]


def _search(evaluations: int, seed: int, graph: CostGraph) -> IndexArray:
    return solve(Problem(graph), "order-search", evaluations=evaluations, seed=seed).schedule.op_order()


def _read(path: Path) -> dict[str, IndexArray]:
    """Return the orders of a file but for a last line that a stop cut short, which is removed."""
    if not path.exists():
        return {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            write_atomically(path, b"".join(lines[:-1]))
            del lines[-1]
        records = [json.loads(line) for line in lines]
        return {str(record["key"]): np.array(record["order"], np.int32) for record in records}
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: is not a file of orders; delete it to search again ({error})") from error


def _append(path: Path, key: str, order: IndexArray) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "order": order.tolist()}) + "\n")
    except OSError as error:
        raise FormatError(f"{path}: cannot be written: {error.strerror or error}") from error
