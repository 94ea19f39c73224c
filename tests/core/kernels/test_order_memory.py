"""The memory of an order and first fit against their twins, and what smoothing keeps."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from naive import arenas
from schedopt.core.kernels.orders.order_memory import first_fit, first_fit_by_start, new_placing, order_memory, smooth


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_memory_of_an_order(seed):
    rng = np.random.default_rng([26, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 30)), edges=2.0)
    b, order = graph.buffers, np.array(naive.random_order(rng, plain), np.int32)
    memory = np.empty(len(order), np.int64)
    order_memory(b, order, int(graph.persistent.sum()), np.empty(len(b.size), np.int32), memory)
    assert memory.tolist() == naive.order_step_memory(plain, order.tolist())


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_smoothing_keeps_the_limit_and_lowers_the_sum_of_squares(seed):
    rng = np.random.default_rng([27, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 15)), edges=1.5)
    b, order = graph.buffers, np.array(naive.random_order(rng, plain), np.int32)
    persistent = int(graph.persistent.sum())

    def memory_of(order):
        return [memory - persistent for memory in naive.order_step_memory(plain, order)]

    before, limit = order.tolist(), max(1, max(memory_of(order.tolist())))
    place = np.argsort(order).astype(np.int32)
    scratch = np.empty(len(b.size), np.int32), np.empty(len(order), np.int64)
    moved = smooth(b, order, place, limit, 2.0, rng.random((60, 2)), *scratch)
    assert place[order].tolist() == list(range(len(order)))
    assert all(place[first] < place[op] for op in plain.ops for first in plain.before[op])
    memory = memory_of(order.tolist())
    assert max(memory) <= limit
    assert sum(m**2 for m in memory) <= sum(m**2 for m in memory_of(before))
    assert moved > 0 or order.tolist() == before


def random_pieces(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    lower = rng.integers(0, 20, count)
    sizes = rng.integers(0, 30, count)
    return lower, lower + rng.integers(1, 10, count), sizes, rng.choice([1, 4, 8], count), rng.permutation(count)


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_first_fit_is_its_plain_twin(seed):
    """In two parts; by start, within gaps."""
    *pieces, order = random_pieces(seed)
    placing, half = new_placing(*pieces), len(order) // 2
    if seed % 2:
        order, by_end = (np.argsort(moments, kind="stable") for moments in pieces[:2])
        highest = first_fit_by_start(placing, order, by_end, np.empty(2 * len(order) + 4, np.int64))
    else:
        first_fit(placing, order.astype(np.int32), 2**62, 0, half)
        highest = first_fit(placing, order.astype(np.int32), 2**62, half, len(order))
    offsets = arenas.first_fit(*(column.tolist() for column in pieces), order.tolist())
    assert placing.offsets.tolist() == offsets
    assert highest == max(offset + size for offset, size in zip(offsets, pieces[2].tolist(), strict=True))


def test_it_ends_at_the_first_piece_above_the_limit():
    columns = np.zeros(3, np.int64), np.full(3, 5), np.array([10, 20, 30]), np.ones(3, np.int64)
    placing = new_placing(*columns)
    assert first_fit(placing, np.arange(3, dtype=np.int32), 25, 0, 3) == 30
    assert placing.offsets.tolist() == [0, 10, 0]
