"""Annealing of whole schedules, and the groups of ops that it moves."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Device, Machine, Problem, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements.clusters import clusters_in_time, clusters_of, moving_groups


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(60, quick=4))
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_every_optimum_of_small_graphs_is_found(seed, task):
    """Whatever transfers cost, under limits from too tight to loose."""
    rng = np.random.default_rng([18, seed])
    devices = 2 + seed % 2
    graph, plain = naive.random_graph(rng, 5 - devices % 2, edges=float(rng.choice([1.0, 1.8])))
    bandwidth, latency = ((np.inf, 0.0), (1e6, 0.5), (4e6, 0.0))[seed % 3]
    limit = None if seed % 4 < 2 else 1 + sum(plain.own) // devices
    costs = {"bandwidth": bandwidth, "latency": latency}
    excess, value = naive.best_schedule(plain, devices, task, np.inf if limit is None else limit, **costs)
    problem = Problem(graph, task, devices, limit, None if np.isinf(bandwidth) else bandwidth, latency)
    result = solve(problem, "step-search:hot=0.1", evaluations=5000, seed=seed)
    found = problem.fitness([result.simulation.peak], result.simulation.runtime)
    assert found[0] == excess, "what cannot be kept is exceeded as little as can be"
    if not excess:
        assert found[1] == pytest.approx(value), "the optimum is among the plans that moves lead to"


def test_a_tensor_is_sent_before_its_reader_is_next():
    """A plan that no sequence has: the target receives early, so that the source need not wait for it."""
    graph = sketch(
        "make -> 1 us=1; first -> 1 us=1; long: make -> 1 us=9; other: first -> 1 us=8; last: make other -> 1 us=1",
        "early",
    )
    result = solve(Problem(graph, "runtime", 2), "step-search", evaluations=5000)
    assert (result.value, result.status) == (10.0, "optimal")


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_groups_are_a_hierarchy_of_the_ops(seed):
    graph, _ = naive.random_graph(np.random.default_rng([19, seed]), 2 + seed)
    for problem in (Problem(graph, "runtime", 2, latency=1.0), Problem(graph, "runtime", 2, memory_limit=10**6)):
        groups = moving_groups(clusters_of(problem))
        assert sorted(groups.ops.tolist()) == list(range(graph.num_ops))
        spans = list(zip(groups.first.tolist(), groups.last.tolist(), strict=True))
        assert all(2 <= last - first <= 0.6 * graph.num_ops for first, last in spans)
        for one, other in ((a, b) for a in spans for b in spans):
            assert (
                one[1] <= other[0]
                or other[1] <= one[0]
                or one[0] <= other[0] <= other[1] <= one[1]
                or (other[0] <= one[0] <= one[1] <= other[1])
            ), "groups are apart or one holds the other"


def test_groups_are_merged_no_further_than_there_is_time():
    graph, _ = naive.random_graph(np.random.default_rng(11), 60)
    problem = Problem(graph, "runtime", 2, bandwidth=1e6)
    asked = iter([False, False, True])
    some, every = (moving_groups(clusters_of(problem, *stop)) for stop in ([lambda: next(asked)], []))
    assert 0 < len(some.first) < len(every.first)
    assert sorted(some.ops.tolist()) == list(range(graph.num_ops))


def test_ops_that_are_together_are_one_group():
    chain = sketch("op0 -> 8 us=1; op1: op0 -> 8 us=1; op2: op1 -> 8 us=1; op3: op2 -> 8 us=1; op4: op3 -> 8 us=1")
    devices, linked = (Device("a", "gpu"), Device("b", "gpu")), np.full((2, 2), 1e6)
    machine = Machine(devices, linked, np.zeros((2, 2)), together=(("op0", "op3"), ("op2", "op4")))
    found = clusters_of(Problem(chain, "runtime", machine=machine))
    spans = zip(found.first.tolist(), found.last.tolist(), strict=True)
    groups = [set(found.ops[first:last].tolist()) for first, last in spans]
    assert groups[:3] == [{1}, {0, 3}, {2, 4}]
    assert len(groups[-1]) == 5 and len(groups) == 5
    assert found.exchange[:3].tolist() == [16.0, 24.0, 24.0]  # tensors of 8 bytes at 1 MB/s, by those that are outside


def hub(readers):
    return sketch("; ".join(["all -> 8 us=1", *(f"reader{at}: all -> 8 us=1" for at in range(readers))]), "hub")


def test_a_hub_is_not_merged_to_the_end(monkeypatch):
    monkeypatch.setattr("schedopt.core.solvers.placements.clusters.MOST_ROUNDS", 3)
    found = clusters_of(Problem(hub(20), "runtime", 2, bandwidth=1e6))
    assert (found.last - found.first).tolist() == [1] * 21 + [2, 3, 4]
    assert sorted(found.ops.tolist()) == list(range(21))


def test_on_one_device_there_is_nothing_to_move():
    assert clusters_in_time(Search(Problem(hub(3), "runtime", machine=Machine.equal(1)))) is None
    assert clusters_in_time(Search(Problem(hub(3), "runtime", machine=Machine.equal(2)))) is not None
