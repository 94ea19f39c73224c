"""The heap against heapq, of keys and of the places of keys."""

import heapq

import numpy as np
from schedopt.core.kernels.heap import larger_first, pop, push


def test_heap_pops_the_largest_first():
    rng = np.random.default_rng(3)
    heap, size, twin = np.empty(100, np.int64), 0, []
    for _ in range(2000):
        if size < 100 and (not twin or rng.random() < 0.55):
            key = int(rng.integers(0, 2**62)) if rng.random() < 0.7 else int(rng.integers(0, 4))
            size = push(heap, size, key, heap, larger_first)
            heapq.heappush(twin, -key)
        else:
            assert heap[0] == -twin[0]
            size = pop(heap, size, heap, larger_first)
            heapq.heappop(twin)
        assert size == len(twin)
        assert not size or heap[0] == -twin[0]
