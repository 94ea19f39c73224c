"""The default: the best of the other methods within the time limit, never worse than the input order."""

from __future__ import annotations

import math

from ..problem import Problem
from ..search.parameters import Parameters
from ..search.registry import load, parameters_class
from ..search.search import Search

RECOMPUTING, PROVING = "recompute", "cp-sat"
MOST_OPS_PROVEN = 25
COPIES = (2, 3, 4)
PRICED_BEFORE = 20_000  # edits: what `recompute` finds of such graphs, it finds in these
HEURISTICS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
MOST_CELLS = 2**31
LARGEST_PARTITIONED = 20_000  # edges: one second


def _is_order_only(problem: Problem) -> bool:
    return problem.task == "memory" and problem.devices == 1


def parts(problem: Problem) -> list[str]:
    """Return the methods used for a problem."""
    if problem.recompute:
        return [
            *HEURISTICS,
            "order-search",
            RECOMPUTING,
            *([PROVING] if problem.graph.num_ops <= MOST_OPS_PROVEN else []),
        ]
    return [*_heuristics(problem), "order-search" if _is_order_only(problem) else "annealing"]


def _heuristics(problem: Problem) -> tuple[str, ...]:
    """Few transfers are worth a partition where they cost time or room."""
    is_tied = problem.memory_limit is not None or problem.latency > 0 or problem.bandwidth is not None
    if (
        problem.task == "runtime"
        and problem.devices > 1
        and is_tied
        and len(problem.graph.inputs[1]) <= LARGEST_PARTITIONED
    ):
        return (*HEURISTICS, "gp-dfs")
    return HEURISTICS


def solve(search: Search, parameters: Parameters) -> None:
    """Try the heuristics, then search; stop at once when the lower bound is met.

    Peak memory on one device: `order_search`. Otherwise: `annealing`, from the best heuristic or
    greedy decoding. Both go on from the best schedule known, as does `recompute` where ops may run again;
    after it `cp-sat` for graphs small enough to be solved to the end. That has no end of its own, so it is
    used within a time limit only.
    """
    if search.problem.recompute:
        _recompute(search)
        return
    for name in _heuristics(search.problem):
        _run(search, name)
        if search.must_stop():
            return
    if _is_order_only(search.problem):
        _run(search, "order-search")
    elif search.problem.graph.num_tensors * search.problem.devices < MOST_CELLS:
        _run(search, "annealing")


def _recompute(search: Search) -> None:
    for name in HEURISTICS:
        _run(search, name)
        if search.must_stop():
            return
    if search.problem.graph.num_ops > MOST_OPS_PROVEN or not search.is_timed:
        _run(search, RECOMPUTING)
        return
    with search.limited(PRICED_BEFORE):
        _run(search, RECOMPUTING)
    said = len(search.notes)
    for copies in COPIES:
        if search.must_stop() or math.isinf(search.lower_bound):
            return
        del search.notes[said:]  # what was proven of fewer copies
        _run(search, PROVING, hint=0, copies=copies)


def _run(search: Search, name: str, **parameters: int) -> None:
    search.working = name
    load(name)(search, parameters_class(name)(**parameters))
