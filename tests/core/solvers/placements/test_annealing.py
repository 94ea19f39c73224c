"""Annealing on several devices: its budget, and limits that bind."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from schedopt import Problem
from schedopt.core.base.arrays import frozen
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import makespan_annealing


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_memory_limit_of_ops_that_take_no_time():
    """The excess of a plan has no makespan to be weighed against."""
    graph, _ = naive.random_graph(np.random.default_rng(101), 60)
    idle = replace(graph, runtime=frozen(np.zeros(60), np.float64))
    limit = solve(Problem(idle, "memory", 2), "auto", evaluations=2000).simulation.peak
    kept = solve(Problem(idle, "runtime", 2, limit, 1e6, 3.0), "auto", evaluations=3000)
    assert kept.is_feasible
    assert kept.value > 0, "what is sent takes time"


def test_keys_that_take_long_look_at_the_clock_often(monkeypatch):
    """Else a call of the kernel takes the time in which the memory limit could be kept."""
    most, kernel = [], makespan_annealing.anneal_keys

    def spy(*arguments):
        most.append(len(arguments[-1].draws))
        return kernel(*arguments)

    monkeypatch.setattr(makespan_annealing, "anneal_keys", spy)
    graph, _ = naive.random_graph(np.random.default_rng(119), 40)
    for work, expected in ((1.0, 19), (250_000.0, 2), (1e6, 1)):
        monkeypatch.setattr(makespan_annealing, "decoding_work", lambda problem, work=work: work)
        most.clear()
        solve(Problem(graph, "runtime", 2), "annealing:keys=1", evaluations=400)
        assert max(most) == expected
