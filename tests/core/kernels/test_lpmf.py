"""Least peak memory first against its twin."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders.lpmf import least_peak_memory_first, new_greedy
from schedopt.core.solvers.orders.lpmf import greedy_order

SEEDS = seeds(25, quick=5)


@pytest.mark.parametrize("seed", SEEDS)
def test_least_peak_memory_first(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)))
    order, peak = naive.least_peak_memory_first(plain)
    assert greedy_order(graph.buffers).tolist() == order
    assert peak + sum(plain.persistent) == naive.order_peak(plain, order)


@pytest.mark.parametrize("cut", [0, 1, 5, 12])
def test_it_goes_on_from_any_step_and_knows_its_peak(cut):
    rng = np.random.default_rng(7)
    graph, plain = naive.random_graph(rng, 12)
    greedy = new_greedy(graph.buffers)
    least_peak_memory_first(graph.buffers, greedy, 0, cut)
    least_peak_memory_first(graph.buffers, greedy, cut, 12)
    assert (greedy.order.tolist(), greedy.memory[0]) == naive.least_peak_memory_first(plain)


def test_it_stops_when_asked_to():
    graph, _ = naive.random_graph(np.random.default_rng(0), 9)
    assert greedy_order(graph.buffers, lambda: True) is None
