"""Orders to imitate or to validate against: found by a search once per problem, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...core.base.arrays import IndexArray
from ...core.base.errors import FormatError
from ...core.base.parallel import map_in_order
from ...core.files.json_lines import JsonLines
from ...core.problem.problem import Problem
from ...core.search.method_spec import parse_method
from ...core.search.warm_up import warm_up
from .trainable import Screen


def kept_orders(
    problems: dict[str, Problem],
    path: str | Path,
    what: str,
    find: Callable[[Problem], IndexArray],
    jobs: int = 1,
    on_order: Callable[[int], None] = lambda count: None,
    must_stop: Callable[[], bool] = lambda: False,
) -> dict[str, IndexArray] | None:
    """Return an order of each problem by its key, or None if told to stop; those on disk are not searched for again."""
    with closing(JsonLines(path, f"{what}s", "delete the file to search again")) as file:
        known: dict[str, Any] = {key: record.get("order") for key, record in file.records.items()}
        missing = {key: problem for key, problem in problems.items() if key not in known}
        on_order(len(problems) - len(missing))
        found: Iterable[IndexArray] = map_in_order(find, missing.values(), jobs)
        for count, (key, order) in enumerate(zip(missing, found, strict=True), start=1 + len(problems) - len(missing)):
            known[key] = order.tolist()
            file.write(key, {"order": known[key]})
            on_order(count)
            if must_stop():
                return None
    for key, problem in problems.items():
        if not _is_order(known[key], problem.graph.num_ops):
            name = problem.graph.name
            raise FormatError(f"{path}: the {what} of {name} is damaged; delete the file to search again")
    return {key: np.array(known[key], np.int32) for key in problems}


@contextmanager
def shown(screen: Screen, method: str, problem: Problem, what: str, count: int) -> Iterator[Callable[[int], None]]:
    """Compile what a method runs, and show how many of its orders are there; gives what to call with their number."""
    with screen.compiling():
        warm_up(problem, parse_method(method))
    with screen.counting(what, count) as bar:
        yield lambda done: bar(done=done)


def _is_order(value: Any, ops: int) -> bool:
    return isinstance(value, list) and all(type(op) is int for op in value) and sorted(value) == list(range(ops))
