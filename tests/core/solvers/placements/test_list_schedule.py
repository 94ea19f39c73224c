"""The list schedule of large graphs: valid, what it says of clocks holds, and it uses all devices of a fan."""

from dataclasses import replace
from itertools import pairwise

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from naive.machines import random_graph, random_machine
from schedopt import Problem, Search
from schedopt.core.bounds.bounds import earliest_finish
from schedopt.core.model.verifier import verify
from schedopt.core.search import plans
from schedopt.core.solvers.placements import annealing
from schedopt.core.solvers.placements.chromosomes import bottom_levels
from schedopt.core.solvers.placements.list_schedulers import list_schedule


def fan(width):
    leaves = [f"leaf{at}: root -> 8 us=10; " for at in range(width)]
    names = " ".join(f"leaf{at}" for at in range(width))
    return sketch(f"root -> 8 us=1; {''.join(leaves)}join: {names} -> 8 us=1", "fan")


@pytest.mark.parametrize("seed", range(20))
def test_list_schedule_keeps_the_rules_of_machines(seed):
    rng = np.random.default_rng([seed, 1])
    drawn = random_machine(rng, 3)
    while not any(device.speed for device in drawn.devices):
        drawn = random_machine(rng, 3)
    graph = random_graph(rng, 12, residents=2)
    machine = replace(drawn, together=((graph.op_names[0], graph.op_names[-1]),))
    problem = Problem(graph, "runtime", machine=machine, replicate=bool(seed % 2))
    schedule = list_schedule(problem)
    if schedule is None:
        assert not machine.has_link.all()
    else:
        verify(problem, schedule)


def _lists(pointers, values):
    return [values[a:b].tolist() for a, b in pairwise(pointers.tolist())]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 64])
def test_list_schedule_is_that_of_the_plain_twin(devices, monkeypatch):
    monkeypatch.setattr(plans, "CHUNK", 7)
    for seed in range(30):
        rng = np.random.default_rng([seed, devices])
        graph, _ = naive.random_graph(rng, int(rng.integers(1, 60)))
        problem = Problem(graph, "runtime", devices, bandwidth=1e6, latency=float(rng.integers(0, 3)))
        runtime, graph = problem.graph.runtime.tolist(), problem.graph
        level = naive.longest_paths(graph.input_order[::-1].tolist(), runtime, _lists(*graph.successors))
        assert bottom_levels(graph).tolist() == level
        assert earliest_finish(graph).tolist() == naive.longest_paths(
            graph.input_order.tolist(), runtime, _lists(*graph.predecessors)
        )
        place = np.argsort(graph.input_order).tolist()
        order = sorted(range(graph.num_ops), key=lambda op: (-level[op], place[op]))
        sending = (problem.latency + graph.tensor_size * problem.machine.mean_link[1]).tolist()
        reads, producer = _lists(*graph.inputs), graph.tensor_producer.tolist()
        wanted = naive.list_steps(order, runtime, reads, producer, graph.tensor_size.tolist(), sending, devices)
        found = list_schedule(problem)
        assert list(zip(found.items.tolist(), found.sources.tolist(), found.targets.tolist(), strict=True)) == wanted


def test_large_graphs_start_from_the_list_schedule(monkeypatch):
    monkeypatch.setattr(annealing, "LARGEST_IMPATIENT", 10)
    problem = Problem(fan(64), "runtime", 8)
    search = Search(problem, max_evaluations=2)
    search.offer_order(problem.graph.input_order)
    annealing.solve(search, annealing.Parameters())
    assert search.best_value < 0.2 * problem.graph.runtime.sum()
