"""`devices=2, bandwidth, latency` and `Machine.equal(2, ...)` are one problem."""

import numpy as np
import pytest
from naive.machines import random_graph, random_schedule
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.problem.machine import Device, Machine
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve


def pair(rng, task="memory"):
    """Return a random problem, said both ways."""
    graph = random_graph(rng, int(rng.integers(1, 13)))
    devices, bandwidth = int(rng.integers(2, 5)), [None, 1e6, 5e5][rng.integers(3)]
    links = {"bandwidth": bandwidth, "latency": float(rng.choice([0.0, 2.0]))}
    return Problem(graph, task, devices, **links), Problem(graph, task, machine=Machine.equal(devices, **links))


def test_schedules_cost_the_same():
    rng = np.random.default_rng(3)
    for _ in range(100):
        one, other = pair(rng)
        assert one.graph.op_names == other.graph.op_names
        assert (one.bandwidth, one.latency) == (other.bandwidth, other.latency)
        schedule = random_schedule(rng, one)
        found = [simulate(problem, schedule) for problem in (one, other)]
        totals = [verify(problem, schedule) for problem in (one, other)]
        assert totals[0] == totals[1]
        assert totals[0].peak_per_device == found[0].peak_per_device.tolist() == found[1].peak_per_device.tolist()
        for name in ("clock_per_device", "step_memory", "step_end"):
            assert getattr(found[0], name).tolist() == getattr(found[1], name).tolist()


@pytest.mark.parametrize("method", ["random", "heft", "local-search", "brkga", "auto"])
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_methods_find_the_same(method, task):
    rng = np.random.default_rng(5)
    for _ in range(2):
        found = [solve(problem, method, evaluations=100).schedule for problem in pair(rng, task)]
        for name in ("items", "sources", "targets"):
            assert getattr(found[0], name).tolist() == getattr(found[1], name).tolist()


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
