"""The heap against heapq, of keys and of the places of keys."""

import heapq

import numpy as np
from schedopt.core.kernels.heap import larger_first, pop, push
from schedopt.core.kernels.jit import inlined


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


@inlined
def least_first(keys, one, two):
    """Order places by their keys."""
    return keys[one] < keys[two]


def test_heap_of_places_pops_the_least_key_first():
    rng = np.random.default_rng(4)
    keys = rng.permutation(100) / 7
    heap, size = np.empty(100, np.int32), 0
    for place in range(100):
        size = push(heap, size, place, keys, least_first)
    popped = []
    while size:
        popped.append(int(heap[0]))
        size = pop(heap, size, keys, least_first)
    assert popped == np.argsort(keys).tolist()
