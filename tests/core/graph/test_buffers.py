"""Buffers are groups of views."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from models.seeds import seeds

SEEDS = seeds(25, quick=5)


def csr_sets(pointers, columns):
    return [columns[a:b].tolist() for a, b in pairwise(pointers)]


@pytest.mark.parametrize("seed", SEEDS)
def test_buffers_are_the_groups_of_views(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 12)
    buffers = graph.buffers
    roots = [t for t in plain.tensors if t not in plain.alias and t[1] != naive.CONTROL]
    users = csr_sets(buffers.user_ptr, buffers.users)
    used = csr_sets(buffers.used_ptr, buffers.used)
    assert len(users) == len(roots)
    for at, root in enumerate(roots):
        assert buffers.size[at] == plain.size[root]
        assert buffers.producer[at] == root[0]
        assert buffers.is_final[at] == plain.is_kept(root)
        assert sorted(users[at]) == sorted(plain.users(root))
    for op in plain.ops:
        read = {plain.root(t) for t in plain.reads[op] if t[1] != naive.CONTROL}
        assert sorted(used[op]) == sorted(roots.index(root) for root in read)
        assert [roots[b][0] for b in range(buffers.made_ptr[op], buffers.made_ptr[op + 1])] == [op] * (
            buffers.made_ptr[op + 1] - buffers.made_ptr[op]
        )
    assert buffers.made_ptr[-1] == len(roots)
    assert buffers.own.tolist() == plain.own
