"""Methods on machines: against every plan of small ones, and each plan against the verifier."""

import numpy as np
import pytest
from naive.machines import least_makespan, random_graph, random_machine
from schedopt.core.costs.bounds import lower_bound
from schedopt.core.costs.verifier import verify
from schedopt.core.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.several_devices import annealing


def small_problem(rng):
    while True:
        machine = random_machine(rng, int(rng.integers(1, 4)))
        if any(device.speed for device in machine.devices):
            graph = random_graph(rng, int(rng.integers(1, 4 if len(machine.devices) > 2 else 5)), residents=1)
            return Problem(graph, "runtime", machine=machine, replicate=bool(rng.random() < 0.3))


def check_against_all_plans(count, seed):
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(count):
        problem = small_problem(rng)
        least = least_makespan(problem)
        assert lower_bound(problem) <= least * (1 + 1e-9)
        search = Search(problem, max_evaluations=2000, lower_bound=lower_bound(problem))
        annealing.solve(search, annealing.Parameters())
        verify(problem, search.best, runtime=search.best_simulation.runtime)
        value = search.best_value
        assert value >= least * (1 - 1e-9)
        found += value <= least * (1 + 1e-9)
    return found


def test_annealing_finds_the_best_of_all_plans():
    assert check_against_all_plans(60, 1) == 60


@pytest.mark.slow
def test_annealing_finds_the_best_of_all_plans_of_many():
    assert check_against_all_plans(2000, 2) >= 1950
