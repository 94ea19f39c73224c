"""Closures and implied edges on bitsets, against sets."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.orders.partial_order import close, has, mark_implied

SIZES = [1, 2, 13, 63, 64, 65, 130]


@pytest.mark.parametrize("ops", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_closure_and_implied_edges(seed, ops):
    graph, plain = naive.random_graph(np.random.default_rng([53, seed]), ops, edges=[0.6, 1.4, 2.5][seed % 3])
    bits = np.zeros((ops, (ops + 63) // 64), np.int64)
    close(*graph.predecessors, graph.input_order, bits)
    for op in plain.ops:
        assert {other for other in plain.ops if has(bits[op], other)} == naive.reachable(plain.before, op)
    pointers, predecessors = graph.predecessors
    is_implied = np.random.default_rng(seed).random(len(predecessors)) < 0.5
    mark_implied(pointers, predecessors, bits, np.full(bits.shape[1], -1), is_implied)
    after = np.repeat(np.arange(ops), np.diff(pointers))[is_implied]
    found = list(zip(predecessors[is_implied].tolist(), after.tolist(), strict=True))
    assert sorted(found) == sorted(naive.implied_edges(plain))
