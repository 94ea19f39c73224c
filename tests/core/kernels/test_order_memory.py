"""The memory of an order against its twin."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders.order_memory import order_memory


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_memory_of_an_order(seed):
    rng = np.random.default_rng([26, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 30)), edges=2.0)
    b, order = graph.buffers, np.array(naive.random_order(rng, plain), np.int32)
    memory = np.empty(len(order), np.int64)
    order_memory(b, order, int(graph.persistent.sum()), np.empty(len(b.size), np.int32), memory)
    assert memory.tolist() == naive.order_step_memory(plain, order.tolist())
