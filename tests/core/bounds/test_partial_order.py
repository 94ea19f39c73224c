"""Closure, reduction and incomparable pairs against plain sets, networkx and all orders of small graphs."""

import naive
import networkx as nx
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.partial_order import dense, incomparable, partial_order
from schedopt.core.graph.builder import GraphBuilder
from schedopt.datasets.layered import LayeredParameters, layered_graph

SIZES = [1, 2, 13, 63, 64, 65, 130]


def pairs(edges):
    found = list(zip(*(ends.tolist() for ends in edges), strict=True))
    assert len(found) == len(set(found))
    return set(found)


def of_matrix(rows):
    return set(zip(*(ends.tolist() for ends in rows.nonzero()), strict=True))


def random_graph(seed, ops):
    return naive.random_graph(np.random.default_rng([40, seed]), ops, edges=[0.6, 1.4, 2.5][seed % 3])


@pytest.mark.parametrize("ops", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_closures_are_what_is_reachable(seed, ops):
    graph, plain = random_graph(seed, ops)
    order = partial_order(graph)
    before, after = dense(order.before, ops), dense(order.after, ops)
    for op in plain.ops:
        assert set(np.flatnonzero(before[op]).tolist()) == naive.reachable(plain.before, op)
        assert set(np.flatnonzero(after[op]).tolist()) == naive.reachable(plain.after, op)


@pytest.mark.parametrize("ops", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_edges_are_split_into_reduction_and_implied_ones(seed, ops):
    graph, plain = random_graph(seed, ops)
    order = partial_order(graph)
    implied = naive.implied_edges(plain)
    edges = {(first, second) for second in plain.ops for first in plain.before[second]}
    assert pairs(order.other_edges) == implied
    assert pairs(order.reduction) == edges - implied
    for _, targets in (order.reduction, order.other_edges):
        assert (np.diff(targets) >= 0).all()


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


def test_incomparable_is_symmetric_on_a_layered_graph():
    graph = layered_graph(LayeredParameters(nodes=200), np.random.default_rng(0), "layered")
    either = dense(incomparable(partial_order(graph)), 200)
    assert (either == either.T).all()
    assert either.any()


def test_a_chain_with_all_shortcuts_reduces_to_the_chain():
    builder = GraphBuilder("chain")
    for op in range(100):
        builder.add_op("", inputs=[(p, 0) for p in range(op)], outputs=[1])
    order = partial_order(builder.build())
    assert pairs(order.reduction) == {(op, op + 1) for op in range(99)}
    assert len(pairs(order.other_edges)) == 100 * 99 // 2 - 99
    assert not incomparable(order).any()
