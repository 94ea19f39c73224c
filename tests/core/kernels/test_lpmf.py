"""Least peak memory first against its twin."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.solvers.orders.baselines import greedy_order

SEEDS = seeds(25, quick=5)


@pytest.mark.parametrize("seed", SEEDS)
def test_least_peak_memory_first(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)))
    order, peak = naive.least_peak_memory_first(plain)
    assert greedy_order(graph.buffers).tolist() == order
    assert peak + sum(plain.persistent) == naive.order_peak(plain, order)


def test_it_stops_when_asked_to():
    graph, _ = naive.random_graph(np.random.default_rng(0), 9)
    assert greedy_order(graph.buffers, lambda: True) is None
