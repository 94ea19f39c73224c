"""A stretch of an order, reordered by an exact beam, against trying every way to reorder it."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem, Search
from schedopt.core.bounds.stretches import separators, stretch_of
from schedopt.core.solvers.orders.approximate_dp import UNLIMITED, run_beam


@pytest.mark.parametrize("seed", seeds(50, quick=4))
@pytest.mark.parametrize("is_backward", [False, True])
def test_a_stretch_holds_what_the_whole_graph_holds_there(seed, is_backward):
    rng = np.random.default_rng([40, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 9)))
    order = np.array(naive.random_order(rng, plain))
    first = int(rng.integers(0, len(order)))
    last = int(rng.integers(first + 1, len(order) + 1))
    memory = np.array(naive.order_step_memory(plain, order.tolist()))
    stretch, throughout = stretch_of(graph.buffers, order, np.argsort(order), memory, first, last)
    search = Search(Problem(graph), seed=seed)
    chosen, is_complete, is_exact, _ = run_beam(search, stretch, 10**6, UNLIMITED, is_backward)
    assert is_complete
    assert is_exact

    inside = (chosen[::-1] if is_backward else chosen)[1:] - 1
    reordered = order.copy()
    reordered[first:last] = order[first:last][inside]
    assert reordered[:first].tolist() == order[:first].tolist()
    peaks = [
        max(naive.order_step_memory(plain, other)[first:last])
        for other in naive.all_orders(plain)
        if other[:first] == order[:first].tolist() and other[last:] == order[last:].tolist()
    ]
    assert max(naive.order_step_memory(plain, reordered.tolist())[first:last]) == min(peaks)
    limit = min(peaks) - throughout
    assert run_beam(search, stretch, 10**6, limit, is_backward)[0] is None
    assert run_beam(search, stretch, 10**6, limit + 1, is_backward)[0] is not None


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_separators_are_the_ops_before_or_after_all_others(seed):
    rng = np.random.default_rng([41, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 12)), edges=float(rng.choice([1.4, 3.0])))
    order = np.array(naive.random_order(rng, plain))
    related = [naive.reachable(plain.before, op) | naive.reachable(plain.after, op) for op in plain.ops]
    expected = [at for at, op in enumerate(order) if related[op] | {op} == set(plain.ops)]
    assert separators(graph.buffers, order).tolist() == expected
