"""Least peak memory first against its twin."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.one_device.lpmf import least_peak_memory_first
from schedopt.core.solvers.one_device.lpmf import greedy_order

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_least_peak_memory_first(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 18)))
    order, peak = naive.least_peak_memory_first(plain)
    assert greedy_order(graph.buffers).tolist() == order
    assert peak + sum(plain.persistent) == naive.order_peak(plain, order)


def test_least_peak_memory_first_returns_its_peak():
    rng = np.random.default_rng(7)
    graph, plain = naive.random_graph(rng, 12)
    b = graph.buffers
    users = np.diff(b.user_ptr).astype(np.int64)
    freed = np.zeros(12, np.int64)
    for root, group in plain.members.items():
        if root[1] != naive.CONTROL and not plain.is_kept(root):
            readers = set().union(*(plain.readers[t] for t in group))
            if len(readers) <= 1:
                freed[readers.pop() if readers else root[0]] += plain.size[root]
    waiting = np.diff(b.predecessor_ptr).astype(np.int64)
    order = np.empty(12, np.int32)
    peak = least_peak_memory_first(b, waiting, users, freed, np.zeros(12, np.bool_), np.empty(12, np.int32), order)
    assert (order.tolist(), peak) == naive.least_peak_memory_first(plain)
