"""Depth-first dynamic programming: exact when it ends, whatever the table forgets, and anytime before."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem
from schedopt.core.solve.solve import solve


@pytest.mark.parametrize("seed", seeds(60, quick=4))
@pytest.mark.parametrize("table", [1, 8_000_000])
def test_it_proves_the_optimum_when_it_ends(seed, table):
    rng = np.random.default_rng([120, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 9, edges=rng.choice([0.8, 1.4, 2.2]))
    optimum = naive.least_peak(plain)
    result = solve(Problem(graph), f"depth-first-dp:table={table}", seed=seed)
    assert (result.value, result.lower_bound, result.status) == (optimum, optimum, "optimal")
    assert result.is_repeatable
