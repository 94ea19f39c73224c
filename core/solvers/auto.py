"""The default: the best of the other methods within the time limit, never worse than the input order."""

from __future__ import annotations

import math
import time

from ..bounds import min_cut_bound
from ..parameters import Parameters
from ..problem import Problem
from ..registry import load, parameters_class
from ..search import Search
from .approximate_dp import beam_search
from .brkga import GeneDistribution, evolve
from .brkga import Parameters as BrkgaParameters

FIRST_BEAM = 64
LARGEST_BEAM = 1_000_000
HEURISTICS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
LARGEST_POPULATION_BYTES = 2_000_000_000


def _has_beam(problem: Problem) -> bool:
    return problem.task == "memory" and problem.devices == 1


def parts(problem: Problem) -> list[str]:
    """Return the methods used for a problem."""
    return [*HEURISTICS, "approximate-dp" if _has_beam(problem) else "brkga"]


def solve(search: Search, parameters: Parameters) -> None:
    """Try the heuristics, then search; stop at once when the lower bound is met.

    One device, memory: the min-cut bound, then beams that double in width, cut at the best peak known; a
    beam that cut no state proves the best optimal. Otherwise: BRKGA that starts from the best heuristic. A
    schedule given to start from is one more candidate.
    """
    if search.initial is not None:
        search.working = "initial"
        search.evaluations += 1
        search.offer(search.initial)
    for name in HEURISTICS:
        _run(search, name)
        if search.must_stop():
            return
    if _has_beam(search.problem):
        search.working = "approximate-dp"
        _beams(search)
    else:
        search.working = "brkga"
        _evolve(search)


def _run(search: Search, name: str) -> None:
    search.working = name
    load(name)(search, parameters_class(name)())


def _beams(search: Search) -> None:
    assert search.best is not None and search.best_simulation is not None
    graph = search.problem.graph
    bound = min_cut_bound(
        graph,
        search.best.op_order(),
        search.best_simulation.step_memory,
        int(search.lower_bound),
        stop=search.must_stop,
        seconds_left=search.seconds_left,
    )
    search.raise_lower_bound(bound)
    beam = FIRST_BEAM
    while not search.must_stop():
        start = time.monotonic()
        result = beam_search(search, beam, cutoff=int(search.best_value))
        if result.order is not None:
            search.offer_order(result.order)
        if result.is_exact:
            search.raise_lower_bound(search.best_value)
        if beam == LARGEST_BEAM:
            return
        beam = _next_beam(search, beam, time.monotonic() - start)


def _next_beam(search: Search, beam: int, seconds: float) -> int:
    """Double the beam, or take what the time left should allow."""
    affordable = math.inf if seconds <= 0 else beam * search.seconds_left() / seconds * 0.8
    return int(min(LARGEST_BEAM, max(1, min(4 * beam, affordable))))


def _evolve(search: Search) -> None:
    parameters = BrkgaParameters()
    problem = search.problem
    genes = problem.graph.num_ops * (problem.devices + 1) + problem.graph.num_tensors * problem.devices
    if genes * parameters.chromosomes * 8 > LARGEST_POPULATION_BYTES:
        return
    search.initial = search.best if search.initial is None else search.initial
    evolve(search, parameters, GeneDistribution(bias=parameters.bias))
