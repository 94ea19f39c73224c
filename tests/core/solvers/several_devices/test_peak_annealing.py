"""Least peak on several devices: the optimum on small graphs."""

import naive
import numpy as np
import pytest
from schedopt.core.problem import Problem
from schedopt.core.solve import solve


@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_on_small_graphs(seed):
    rng = np.random.default_rng([114, seed])
    graph, plain = naive.random_graph(rng, 5, aliases=bool(seed % 2))
    _, optimum = naive.best_schedule(plain, 2, "memory")
    result = solve(Problem(graph, "memory", 2), "auto", evaluations=3000, seed=seed)
    assert optimum <= result.value <= 1.1 * optimum
    assert result.lower_bound <= optimum
