"""Annealing on several devices: its budget, and limits that bind."""

import naive
import numpy as np
import pytest
from schedopt.core.problem import Problem
from schedopt.core.solve import solve


@pytest.mark.parametrize("devices", [2, 64])
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("method", ["annealing", "auto", "brkga:decoder=lazy"])
def test_the_budget_is_spent_exactly_and_seeds_repeat(devices, task, method):
    graph, _ = naive.random_graph(np.random.default_rng(99), 60)
    problem = Problem(graph, task, devices, 150, 1e6, 3.0)
    for evaluations in (1, 6, 777):
        results = [solve(problem, method, evaluations=evaluations, seed=5, jobs=jobs) for jobs in (1, 2)]
        columns = [(r.schedule.items.tolist(), r.schedule.targets.tolist()) for r in results]
        assert columns[0] == columns[1]
        assert results[0].is_repeatable
        # A beam's states count in fractions, so that less than one evaluation may be left.
        spent = results[0].evaluations
        assert evaluations - 1 < spent < evaluations + 1e-6 or results[0].status == "optimal"


def test_a_memory_limit_that_binds_is_kept():
    graph, _ = naive.random_graph(np.random.default_rng(100), 60)
    free = solve(Problem(graph, "runtime", 2), "auto", evaluations=2000)
    least = solve(Problem(graph, "memory", 2), "auto", evaluations=2000)
    limit = (free.simulation.peak + least.simulation.peak) // 2
    assert least.simulation.peak < limit < free.simulation.peak
    kept = solve(Problem(graph, "runtime", 2, limit), "auto", evaluations=3000)
    assert kept.is_feasible
    assert kept.simulation.peak <= limit
    assert kept.value < float(graph.runtime.sum())
