"""What an excess over the memory limit weighs, and what that is worth."""

import naive
import numpy as np
import pytest
from schedopt.core.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solve import solve
from schedopt.core.solvers.several_devices import annealing, excess_weights
from schedopt.core.solvers.several_devices.excess_weights import HEAVIEST, RISE, at_once, by_and_by
from schedopt.core.solvers.several_devices.lazy_keys import EXCESS_WEIGHT


def test_a_weight_by_and_by_rises_by_as_much_however_many_parts_the_annealing_has():
    for parts in (1, 7, 100):
        weight = 0.01
        for _ in range(parts):
            weight = by_and_by(weight, True, 1 / parts)
        assert weight == pytest.approx(0.01 * RISE)
    assert by_and_by(by_and_by(3.0, True, 0.3), False, 0.3) == pytest.approx(3.0)
    assert by_and_by(HEAVIEST, True, 0.5) == HEAVIEST


def test_a_weight_at_once_is_never_light():
    assert at_once(0.01, False) == at_once(0.01, True) == EXCESS_WEIGHT
    assert at_once(2 * EXCESS_WEIGHT, True) > 2 * EXCESS_WEIGHT > at_once(2 * EXCESS_WEIGHT, False) > EXCESS_WEIGHT


def _limited(seed):
    """A problem of 60 ops on two devices whose limit binds: between the least peak and that of a fast schedule."""
    graph, _ = naive.random_graph(np.random.default_rng(seed), 60)
    fast = solve(Problem(graph, "runtime", 2, None, 1e6, 3.0), "annealing", evaluations=3000)
    least = solve(Problem(graph, "memory", 2), "auto", evaluations=3000)
    assert least.simulation.peak < fast.simulation.peak
    return Problem(graph, "runtime", 2, (fast.simulation.peak + 2 * least.simulation.peak) // 3, 1e6, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101])
def test_a_schedule_that_ignores_the_limit_is_brought_within_it(seed, monkeypatch):
    weights = []

    def seen(weight, is_exceeded, passed):
        weights.append((weight, is_exceeded))
        return by_and_by(weight, is_exceeded, passed)

    monkeypatch.setattr("schedopt.core.solvers.several_devices.makespan_annealing.by_and_by", seen)
    result = solve(_limited(seed), "annealing", evaluations=20_000)
    assert result.is_feasible
    assert result.runtime < 0.99 * float(result.problem.graph.runtime.sum())
    assert weights[0][0] < EXCESS_WEIGHT


def test_nothing_is_weighed_where_the_fast_schedule_keeps_the_limit(monkeypatch):
    monkeypatch.setattr(excess_weights, "RISE", None)
    problem = _limited(100)
    problem = Problem(problem.graph, "runtime", 2, 10**12, 1e6, 3.0)
    search = Search(problem, max_evaluations=2000)
    annealing.solve(search, annealing.Parameters())
    assert search.best_fitness[0] == 0
    assert search.evaluations == pytest.approx(2000)
