"""The diameter against networkx's, which follows the definition."""

import networkx as nx
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import GraphBuilder
from schedopt.core.bounds.diameter import diameter


def _graph(ops, edges):
    builder = GraphBuilder("graph")
    for op in range(ops):
        builder.add_op(f"op{op}", outputs=[1], control=sorted({before for before, after in edges if after == op}))
    return builder.build()


def _expected(ops, edges):
    undirected = nx.Graph(edges)
    undirected.add_nodes_from(range(ops))
    return nx.diameter(undirected.subgraph(max(nx.connected_components(undirected), key=len)))


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_random_graphs_also_in_several_parts(seed):
    rng = np.random.default_rng(seed)
    ops = int(rng.integers(2, 150))
    pairs = np.sort(rng.integers(ops, size=(int(rng.uniform(0.7, 4) * ops), 2)), axis=1)
    edges = [(before, after) for before, after in pairs.tolist() if before < after]
    assert diameter(_graph(ops, edges)) == _expected(ops, edges)


@pytest.mark.parametrize("ops", [1, 2, 3, 90, 500])
def test_rings_where_no_search_bounds_another(ops):
    edges = [(op, op + 1) for op in range(ops - 1)] + [(0, ops - 1)] * (ops > 2)
    assert diameter(_graph(ops, edges)) == ops // 2


def test_without_edges():
    assert diameter(_graph(4, [])) == 0
