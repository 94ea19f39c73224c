"""Closure, reduction and incomparable pairs against plain sets, networkx and all orders of small graphs."""

import naive
import networkx as nx
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.partial_order import dense, incomparable, partial_order

SIZES = [1, 2, 13, 63, 64, 65, 130]


def pairs(edges):
    found = list(zip(*(ends.tolist() for ends in edges), strict=True))
    assert len(found) == len(set(found))
    return set(found)


def of_matrix(rows):
    return set(zip(*(ends.tolist() for ends in rows.nonzero()), strict=True))


def random_graph(seed, ops):
    return naive.random_graph(np.random.default_rng([40, seed]), ops, edges=[0.6, 1.4, 2.5][seed % 3])


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_networkx_finds_the_same(seed):
    graph, _ = random_graph(seed, 70)
    order = partial_order(graph)
    dag = nx.DiGraph(pairs(graph.edges))
    dag.add_nodes_from(range(70))
    assert of_matrix(dense(order.after, 70)) == set(nx.transitive_closure(dag).edges)
    assert pairs(order.reduction) == set(nx.transitive_reduction(dag).edges)


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_the_relations_are_those_that_all_orders_share(seed):
    rng = np.random.default_rng([41, seed])
    ops = int(rng.integers(1, 7))
    graph, plain = naive.random_graph(rng, ops)
    order = partial_order(graph)
    orders = [np.argsort(one) for one in naive.all_orders(plain)]
    always = np.all([place[:, None] > place[None, :] for place in orders], axis=0)
    never = np.all([place[:, None] < place[None, :] for place in orders], axis=0)
    assert (dense(order.before, ops) == always).all()
    assert (dense(order.after, ops) == never).all()
    assert (dense(incomparable(order), ops) == ~(always | never | np.eye(ops, dtype=bool))).all()


@pytest.mark.parametrize("ops", SIZES)
def test_every_pair_is_in_one_relation_and_words_end_in_zeros(ops):
    graph, _ = random_graph(1, ops)
    order = partial_order(graph)
    rows = (order.before, order.after, incomparable(order))
    words = 64 * rows[0].shape[1]
    assert (sum(dense(row, words).astype(int) for row in rows)[:, :ops] == 1 - np.eye(ops)).all()
    assert not any(dense(row, words)[:, ops:].any() for row in rows)
