"""Reachability and distances against sets."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.reach import breadth_first, reachable

SEEDS = range(25)


@pytest.mark.parametrize("seed", SEEDS)
def test_reachable_is_the_transitive_closure(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 14, edges=0.9)
    for op in plain.ops:
        assert set(np.flatnonzero(reachable(*graph.successors, op))) == naive.reachable(plain.after, op)
        assert set(np.flatnonzero(reachable(*graph.predecessors, op))) == naive.reachable(plain.before, op)


@pytest.mark.parametrize("seed", SEEDS)
def test_breadth_first_search_from_many_at_once(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 80, edges=0.05)
    sources = rng.choice(80, size=int(rng.integers(1, 65)), replace=False).astype(np.int32)
    farthest, nearest = breadth_first(*graph.successors, sources)
    distances = [naive.distances(plain.after, source) for source in sources]
    assert farthest.tolist() == [max(each.values()) for each in distances]
    assert nearest.tolist() == [min((each[op] for each in distances if op in each), default=-1) for op in plain.ops]
