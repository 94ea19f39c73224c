"""Every bound on the makespan of equal devices, against all schedules of small graphs, and against a search."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from models.transfer_costs import COSTS
from naive.heads import heads
from schedopt import Problem
from schedopt.core.bounds.bounds import critical_path, energy_bound, heads_and_tails, runtime_bound
from schedopt.core.bounds.partition_bounds import partition_bound


def bounds(problem):
    return {"without eigenvalues": runtime_bound(problem), "by eigenvalues": partition_bound(problem, 0.0)}


@pytest.mark.parametrize("seed", seeds(120, quick=4))
def test_no_schedule_is_faster(seed):
    rng = np.random.default_rng([21, seed])
    devices = 2 + seed % 2
    graph, plain = naive.random_graph(rng, 2 + seed % 3, edges=float(rng.choice([1.0, 1.8, 2.6])))
    costs = COSTS[seed % 5]
    _, best = naive.best_schedule(plain, devices, "runtime", **costs)
    for name, bound in bounds(Problem(graph, "runtime", devices, **costs)).items():
        assert bound <= best * (1 + 1e-12), name


def plain_bound(graph, devices, *, bandwidth=np.inf, latency=0.0):
    """As the text says: heads, tails, and the work between each pair of them."""
    before = {op: {} for op in range(graph.num_ops)}
    after = {op: {} for op in range(graph.num_ops)}
    pointers, consumers = (a.tolist() for a in graph.consumers)
    for tensor, maker in enumerate(graph.tensor_producer.tolist()):
        cost = latency + graph.tensor_size[tensor] / bandwidth * 1e6
        for reader in consumers[pointers[tensor] : pointers[tensor + 1]]:
            before[reader][maker] = before[reader].get(maker, 0.0) + cost
            after[maker][reader] = after[maker].get(reader, 0.0) + cost
    runtime = graph.runtime.tolist()
    order = graph.input_order.tolist()
    head, tail = heads(order, before, runtime), heads(order[::-1], after, runtime)
    between = [
        head[u] + tail[v] + sum(runtime[w] for w in order if head[w] >= head[u] and tail[w] >= tail[v]) / devices
        for u in order
        for v in order
        if any(head[w] >= head[u] and tail[w] >= tail[v] for w in order)
    ]
    return max(*between, *(head[u] + tail[u] + runtime[u] for u in order))


@pytest.mark.parametrize("seed", seeds(50, quick=4))
def test_the_bound_is_that_of_its_twin(seed):
    rng = np.random.default_rng([20, seed])
    graph, _ = naive.random_graph(rng, 1 + seed % 12, edges=float(rng.choice([1.0, 1.8, 2.6])))
    costs, devices = COSTS[seed % 5], 2 + seed % 3
    problem = Problem(graph, "runtime", devices, **costs)
    bound = energy_bound(*heads_and_tails(problem), graph.runtime, graph.runtime / devices)
    assert bound == pytest.approx(plain_bound(graph, devices, **costs), rel=1e-9)
    assert bound >= critical_path(graph) * (1 - 1e-12)


def test_dear_transfers_keep_all_on_one_device():
    """Four ops in a diamond: apart the two in the middle would take 4, sending takes 5."""
    graph = sketch("top -> 1 us=1; left: top -> 1 us=2; right: top -> 1 us=2; bottom: left right -> 1 us=1", "diamond")
    assert runtime_bound(Problem(graph, "runtime", 2)) == 4.0
    assert runtime_bound(Problem(graph, "runtime", 2, latency=5.0)) == pytest.approx(6.0)
