"""The default: the best of the other methods within the time limit, never worse than the input order."""

from __future__ import annotations

from ..problem import Problem
from ..search.parameters import Parameters
from ..search.registry import load, parameters_class
from ..search.search import Search

RECOMPUTING = "recompute"
HEURISTICS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
LIST_SCHEDULERS = ("heft", "peft", "cpop")
MOST_CELLS = 2**31
LARGEST_PARTITIONED = 20_000  # edges: one second


def _is_order_only(problem: Problem) -> bool:
    return problem.task == "memory" and problem.devices == 1 and problem.is_plain


def parts(problem: Problem) -> list[str]:
    """Return the methods used for a problem."""
    if problem.recompute:
        return ["order-search", RECOMPUTING]
    return [*_heuristics(problem), "order-search" if _is_order_only(problem) else "annealing"]


def _heuristics(problem: Problem) -> tuple[str, ...]:
    """Few transfers are worth a partition where they cost time or room; on machines it is list schedulers that do."""
    if not problem.is_plain:
        return (*HEURISTICS, *LIST_SCHEDULERS)
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
    greedy decoding. Both go on from the best schedule known. With recomputation: `recompute` alone.
    """
    if search.problem.recompute:
        _run(search, RECOMPUTING)
        return
    for name in _heuristics(search.problem):
        _run(search, name)
        if search.must_stop():
            return
    if _is_order_only(search.problem):
        _run(search, "order-search")
    elif search.problem.graph.num_tensors * search.problem.devices < MOST_CELLS:
        _run(search, "annealing")


def _run(search: Search, name: str) -> None:
    search.working = name
    load(name)(search, parameters_class(name)())
