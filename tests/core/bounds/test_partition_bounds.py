"""The bound from what an even placement sends, against all placements of small graphs and all plans on machines."""

import dataclasses
import itertools
import math

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from models.transfer_costs import COSTS
from schedopt import Device, Machine, Problem
from schedopt.core.bounds import partition_bounds
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.bounds.partition_bounds import partition_bound


def best_placement(graph, devices, *, bandwidth=math.inf, latency=0.0):
    """What no schedule is faster than: of all placements, the fullest device's work, or all work and twice what is
    sent, shared evenly."""
    runtime, maker = graph.runtime.tolist(), graph.tensor_producer.tolist()
    pointers, consumers = (a.tolist() for a in graph.consumers)
    best = math.inf
    for placement in itertools.product(range(devices), repeat=graph.num_ops):
        load = [0.0] * devices
        for op, device in enumerate(placement):
            load[device] += runtime[op]
        sent = 0.0
        for tensor, op in enumerate(maker):
            targets = {placement[reader] for reader in consumers[pointers[tensor] : pointers[tensor + 1]]}
            sent += len(targets - {placement[op]}) * (latency + graph.tensor_size[tensor] / bandwidth * 1e6)
        best = min(best, max(max(load), (sum(runtime) + 2 * sent) / devices))
    return best


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_no_placement_is_below_it(seed, monkeypatch):
    rng = np.random.default_rng([30, seed])
    devices = 2 + seed % 3
    graph, _ = naive.random_graph(rng, devices + seed % (9 - 2 * devices), edges=float(rng.choice([1.0, 1.8, 2.6])))
    costs = COSTS[seed % 5]
    if seed % 3 == 0:
        monkeypatch.setattr(partition_bounds, "SHARE_OF_MEAN", 2.0)
        graph = dataclasses.replace(graph, runtime=np.where(rng.random(graph.num_ops) < 0.4, 0.0, graph.runtime))
    bound = partition_bound(Problem(graph, "runtime", devices, **costs), 0.0)
    assert bound <= best_placement(graph, devices, **costs) * (1 + 1e-12)


def all_to_all(count=8):
    """Ops that all are read by all others of a second row."""
    above = [f"above{number}" for number in range(count)]
    below = (f"below{number}: {' '.join(above)} -> 1 us=10" for number in range(count))
    return sketch("; ".join([*(f"{name} -> 1 us=10" for name in above), *below]), "all-to-all")


def test_it_knows_what_an_even_placement_sends():
    """Four devices share 160 evenly if 8 tensors are sent to three devices each: 3 for 6 blocked devices, 12 in all."""
    problem = Problem(all_to_all(), "runtime", 4, latency=1.0)
    assert lower_bound(problem) == 40.0
    assert 43.0 <= partition_bound(problem, 0.0) <= 52.0


def test_devices_that_compute_nothing_do_not_share_and_the_fastest_link_counts():
    graph = all_to_all()
    devices = (*(Device(f"gpu{number}", "gpu") for number in range(2)), Device("host", "host", speed=0.0))
    with_host = Problem(graph, "runtime", 3, machine=Machine(devices, math.inf, 1.1))
    assert partition_bound(with_host, 0.0) == partition_bound(Problem(graph, "runtime", 2, latency=1.1), 0.0) > 80.0
    beside = Problem(graph, "runtime", 3, machine=Machine(devices, math.inf, 1.1, transfers="beside"))
    assert partition_bound(beside, 7.0) == 7.0


def test_nothing_is_added_where_transfers_are_free_or_known_is_more():
    graph = all_to_all()
    assert partition_bound(Problem(graph, "runtime", 4), 7.0) == 7.0
    assert partition_bound(Problem(graph, "runtime", 1, latency=1.0), 7.0) == 7.0
    problem = Problem(graph, "runtime", 4, latency=1.0)
    assert partition_bound(problem, 1e6) == 1e6
    assert partition_bound(problem, 7.0, stop=lambda: True) == 7.0
    assert partition_bound(problem, 7.0, has_time_for=lambda seconds: False) == 7.0


@pytest.mark.parametrize(("shorter", "latency"), [(1e-320, 1.0), (1e-12, 1e12), (0.0, 1.0)])
def test_transfers_beside_which_runtimes_are_nothing_add_nothing(shorter, latency):
    graph = all_to_all()
    graph = dataclasses.replace(graph, runtime=graph.runtime * shorter)
    assert partition_bound(Problem(graph, "runtime", 4, latency=latency), 7.0) == 7.0


def test_the_rounding_of_eigenvalues_does_not_show(monkeypatch):
    graph = dataclasses.replace(all_to_all(), runtime=np.full(16, np.pi))
    problem = Problem(graph, "runtime", 4, latency=0.123)
    bound = partition_bound(problem, 0.0)
    exact = partition_bounds.eigh
    monkeypatch.setattr(partition_bounds, "eigh", lambda *a, **k: [part * (1 - 1e-13) for part in exact(*a, **k)])
    assert partition_bound(problem, 0.0) == bound == float(np.float32(bound))
