"""`devices=2, bandwidth, latency` and `Machine.equal(2, ...)` are one problem."""

import naive
import numpy as np
import pytest
from schedopt.core.model.simulator import input_peak
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve


@pytest.mark.parametrize(
    ("change", "is_equal"),
    [
        ({}, True),
        ({"latency": 3.0, "bandwidth": 1e9}, True),
        ({"contention": False}, True),
        ({"devices": (Device("a", memory=5), Device("b", memory=5))}, True),
        ({"devices": (Device("a", memory=5), Device("b"))}, False),
        ({"devices": (Device("a", speed=2.0), Device("b"))}, False),
        ({"devices": (Device("a", speed=0.0), Device("b", speed=0.0))}, False),
        ({"transfers": "beside"}, False),
        ({"bandwidth": 0.0}, False),
        ({"latency": [[0, 1], [2, 0]]}, False),
        ({"pins": [("op", "a")]}, False),
        ({"together": [("op",)]}, False),
        ({"op_times": {"op": {}}}, False),
    ],
)
def test_which_devices_are_equal(change, is_equal):
    assert Machine(**{"devices": (Device("a"), Device("b")), **change}).is_equal == is_equal


@pytest.mark.parametrize("method", ["auto", "annealing", "step-search", "brkga", "local-search", "heft", "gp-dfs"])
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_a_machine_of_equal_devices_is_what_devices_mean(method, task):
    graph, _ = naive.random_graph(np.random.default_rng(3), 14)
    for limit in (None, input_peak(graph)):
        one = Problem(graph, task, 2, limit, 1e6, 2.0)
        other = Problem(graph, task, memory_limit=limit, machine=Machine.equal(2, 1e6, 2.0))
        found, same = (solve(problem, method, evaluations=150, seed=1) for problem in (one, other))
        assert found.schedule.items.tolist() == same.schedule.items.tolist()
        assert (found.value, found.lower_bound, found.status) == (same.value, same.lower_bound, same.status)
