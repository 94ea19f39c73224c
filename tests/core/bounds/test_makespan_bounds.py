"""Every bound on the makespan of equal devices, against all schedules of small graphs, and against a search."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.transfer_costs import COSTS
from schedopt.core.bounds.bounds import runtime_bound
from schedopt.core.bounds.partition_bounds import partition_bound
from schedopt.core.problem.problem import Problem


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
