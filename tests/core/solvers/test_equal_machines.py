"""A machine file of equal devices, with memories of their own: every method and `auto` take it as `--devices`."""

import naive
import numpy as np
import pytest
from schedopt.core.model.simulator import input_peak
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve

METHODS = ["auto", "annealing", "step-search", "brkga", "local-search", "heft", "gp-dfs"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_memories_of_devices_are_limits(method, task):
    graph, _ = naive.random_graph(np.random.default_rng(3), 14)
    limit = input_peak(graph) - 1
    memories = Machine(tuple(Device(name, memory=limit) for name in "ab"))
    found = solve(Problem(graph, task, machine=memories), method, evaluations=150, seed=1)
    assert found.is_feasible == (found.peak_memory <= limit)
