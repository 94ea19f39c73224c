"""The default: the best of the other methods within the time limit, never worse than the input order."""

from __future__ import annotations

from ..parameters import Parameters
from ..problem import Problem
from ..registry import load, parameters_class
from ..search import Search
from .brkga import GeneDistribution, evolve
from .brkga import Parameters as BrkgaParameters

HEURISTICS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
LARGEST_POPULATION_BYTES = 2_000_000_000


def _is_order_only(problem: Problem) -> bool:
    return problem.task == "memory" and problem.devices == 1


def parts(problem: Problem) -> list[str]:
    """Return the methods used for a problem."""
    return [*HEURISTICS, "order-search" if _is_order_only(problem) else "brkga"]


def solve(search: Search, parameters: Parameters) -> None:
    """Try the heuristics, then search; stop at once when the lower bound is met.

    Peak memory on one device: `order_search`. Otherwise: BRKGA that starts from the best heuristic. A schedule
    given to start from is one more candidate.
    """
    if search.initial is not None:
        search.working = "initial"
        search.evaluations += 1
        search.offer(search.initial)
    for name in HEURISTICS:
        _run(search, name)
        if search.must_stop():
            return
    if _is_order_only(search.problem):
        _run(search, "order-search")
    else:
        search.working = "brkga"
        _evolve(search)


def _run(search: Search, name: str) -> None:
    search.working = name
    load(name)(search, parameters_class(name)())


def _evolve(search: Search) -> None:
    parameters = BrkgaParameters()
    problem = search.problem
    genes = problem.graph.num_ops * (problem.devices + 1) + problem.graph.num_tensors * problem.devices
    if genes * parameters.chromosomes * 8 > LARGEST_POPULATION_BYTES:
        return
    search.initial = search.best if search.initial is None else search.initial
    evolve(search, parameters, GeneDistribution(bias=parameters.bias))
