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


def test_refuted_peaks_of_one_device_raise_the_bound_here(monkeypatch):
    """An even share of them, repeatably where evaluations are limited; not where a view may be sent alone."""

    def bound(**options):
        graph, _ = naive.random_graph(np.random.default_rng([115, 0]), 80, edges=1.2, **options)
        return solve(Problem(graph, "memory", 2), "annealing", evaluations=400).lower_bound

    plain, with_views = bound(aliases=False), bound(aliases=True)
    assert bound(aliases=False) == plain
    monkeypatch.setattr("schedopt.core.one_device.refutations.Refutations.bounds", lambda *arguments: iter(()))
    assert bound(aliases=False) < plain
    assert bound(aliases=True) == with_views
