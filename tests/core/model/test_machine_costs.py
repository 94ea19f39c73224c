"""The simulator on machines against the independent verifier, and what the cost model promises."""

import numpy as np
import pytest
from naive.machines import random_graph, random_machine, random_schedule
from schedopt import Problem, Schedule
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify


def test_simulator_and_verifier_agree():
    rng, kinds, count = np.random.default_rng(1), set(), 600
    while count:
        machine = random_machine(rng, int(rng.integers(1, 5)))
        if not any(device.speed for device in machine.devices):
            continue
        graph = random_graph(rng, int(rng.integers(1, 13)))
        problem = Problem(graph, machine=machine, replicate=bool(rng.random() < 0.3))
        for _ in range(min(count, 20)):
            schedule = random_schedule(rng, problem)
            costs = simulate(problem, schedule)
            totals = verify(problem, schedule, runtime=costs.runtime)
            assert totals.peak_per_device == costs.peak_per_device.tolist()
            assert totals.runtime == pytest.approx(costs.runtime, rel=1e-12)
            assert costs.peak_per_device.max() >= costs.step_memory.max()
            kinds.add((machine.transfers, machine.contention))
            count -= 1
    assert len(kinds) == 4


def test_a_home_costs_on_one_device_what_persistent_bytes_do():
    rng = np.random.default_rng(4)
    for _ in range(50):
        graph = random_graph(rng, int(rng.integers(1, 13)), residents=2)
        alone = Problem(graph)
        assert alone.graph is graph
        several = Problem(graph, devices=2)
        order = np.array([*range(graph.num_ops, several.graph.num_ops), *graph.input_order])
        peaks = simulate(several, Schedule.single_device(order)).peak_per_device
        assert peaks.tolist() == [simulate(alone, Schedule.single_device(graph.input_order)).peak, 0]
