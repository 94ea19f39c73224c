"""Depth-first dynamic programming: exact when it ends, whatever the table forgets, and anytime before."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search, Watcher
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


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_it_agrees_with_the_exact_beam(seed):
    graph, _ = naive.random_graph(np.random.default_rng([121, seed]), 24, edges=2.0)
    problem = Problem(graph)
    values = {solve(problem, f"{method}", seed=seed).value for method in ("depth-first-dp", "approximate-dp")}
    assert len(values) == 1


@pytest.mark.slow
def test_each_order_offered_is_better_and_the_best_stays_when_time_ends():
    graph, _ = naive.random_graph(np.random.default_rng(123), 300, edges=1.0)
    values = []

    def watch(search: Search):
        if search.best is not None and (not values or values[-1] != search.best_value):
            values.append(search.best_value)

    result = solve(Problem(graph), "depth-first-dp", time_limit=0.5, watcher=Watcher(on_progress=watch))
    assert values == sorted(values, reverse=True)
    assert result.value == values[-1]
