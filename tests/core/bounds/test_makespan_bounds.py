"""Every bound on the makespan of equal devices, against all schedules of small graphs, and against a search."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.transfer_costs import COSTS
from schedopt.core.bounds.bounds import runtime_bound
from schedopt.core.bounds.partition_bounds import partition_bound
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.placements import step_search


def bounds(problem):
    return {"without eigenvalues": runtime_bound(problem), "by eigenvalues": partition_bound(problem, 0.0)}


@pytest.mark.parametrize("seed", seeds(600, quick=4))
def test_no_schedule_is_faster(seed):
    rng = np.random.default_rng([21, seed])
    devices = 2 + seed % 2
    graph, plain = naive.random_graph(rng, 2 + seed % 3, edges=float(rng.choice([1.0, 1.8, 2.6])))
    costs = COSTS[seed % 5]
    _, best = naive.best_schedule(plain, devices, "runtime", **costs)
    for name, bound in bounds(Problem(graph, "runtime", devices, **costs)).items():
        assert bound <= best * (1 + 1e-12), name


@pytest.mark.parametrize("seed", seeds(300, quick=4))
def test_no_search_comes_below_it(seed):
    rng = np.random.default_rng([22, seed])
    graph, _ = naive.random_graph(rng, 6 + seed % 15, edges=float(rng.choice([1.0, 1.8, 2.6])))
    problem = Problem(graph, "runtime", 2 + seed % 3, **COSTS[seed % 5])
    search = Search(problem, seed=seed, max_evaluations=3000, lower_bound=0.0)
    step_search.solve(search, step_search.Parameters(hot=0.05))
    for name, bound in bounds(problem).items():
        assert bound <= search.best_value * (1 + 1e-12), name
