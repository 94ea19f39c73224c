"""Reachability against sets."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.reach import reachable


@pytest.mark.parametrize("seed", range(25))
def test_reachable_is_the_transitive_closure(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 14, edges=0.9)
    for op in plain.ops:
        assert set(np.flatnonzero(reachable(*graph.successors, op))) == naive.reachable(plain.after, op)
        assert set(np.flatnonzero(reachable(*graph.predecessors, op))) == naive.reachable(plain.before, op)
