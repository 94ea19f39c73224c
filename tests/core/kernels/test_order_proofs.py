"""What must come before what below a limit, against all sets of ops that can have run."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders.max_flow import network_of
from schedopt.core.kernels.orders.order_proofs import Known, closures, mark_implied, new_trials, reduce, relate, tighten


def unrelated(graph):
    """The precedences of a graph, with nothing found."""
    return Known(*closures(graph.predecessors, graph.successors, graph.input_order), np.zeros(graph.num_ops, bool))


def members(row):
    """The ops in a bitset."""
    return {64 * word + bit for word, value in enumerate(row.tolist()) for bit in range(64) if value >> bit & 1}


@pytest.mark.parametrize("ops", [2, 12, 70])
@pytest.mark.parametrize("seed", range(10))
def test_a_relation_closes_both_ways(seed, ops):
    rng = np.random.default_rng([58, seed])
    graph, plain = naive.random_graph(rng, ops, edges=0.8)
    known = unrelated(graph)
    for _ in range(4):
        first, second = rng.integers(0, ops, 2).tolist()
        if first == second or first in naive.reachable(plain.after, second):
            continue
        relate(known, first, second)
        plain.before[second].add(first)
        plain.after[first].add(second)
        assert known.stale[[first, second]].all()
    for op in plain.ops:
        assert members(known.before[op]) == naive.reachable(plain.before, op)
        assert members(known.after[op]) == naive.reachable(plain.after, op)


@pytest.mark.parametrize("seed", seeds(40, quick=4))
@pytest.mark.parametrize("most", [1, 3, 10**6])
def test_an_op_is_settled_among_the_others(seed, most):
    """However often it stops, an op gets the relations that all sets within the limit agree on."""
    rng = np.random.default_rng([59, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 10)))
    network = network_of(graph.buffers)
    trials = new_trials(network, len(plain.ops))
    for op in plain.ops:
        limit = naive.least_arrival(plain, op) + int(rng.integers(-1, 12))
        known, expected = unrelated(graph), naive.settled(plain, op, limit)
        start = total = 0
        while start < len(plain.ops):
            found, flows, start = tighten(network, graph.buffers, trials, known, op, limit, start, most)
            assert 1 <= flows <= most + 1
            total += found
            if found < 0:
                break
        if expected is None:
            assert found == -1
            continue
        assert (members(known.before[op]), members(known.after[op])) == expected
        given = naive.reachable(plain.before, op) | naive.reachable(plain.after, op)
        news = len((expected[0] | expected[1]) - given)
        assert (total > 0) == (news > 0)
        assert total <= news


@pytest.mark.parametrize("ops", [1, 2, 13, 63, 64, 65, 130])
@pytest.mark.parametrize("seed", range(3))
def test_reduction_keeps_what_nothing_implies(seed, ops):
    graph, plain = naive.random_graph(np.random.default_rng([60, seed]), ops, edges=[0.6, 1.4, 2.5][seed])
    before = unrelated(graph).before
    direct = before.copy()
    reduce(before, direct)
    edges = {(first, second) for second in plain.ops for first in plain.before[second]}
    implied = set(naive.implied_edges(plain))
    assert {(first, op) for op in plain.ops for first in members(direct[op])} == edges - implied
    pointers, predecessors = graph.predecessors
    is_implied = np.random.default_rng(seed).random(len(predecessors)) < 0.5
    mark_implied(pointers, predecessors, before, np.full(before.shape[1], -1), is_implied)
    after = np.repeat(np.arange(ops), np.diff(pointers))[is_implied]
    assert set(zip(predecessors[is_implied].tolist(), after.tolist(), strict=True)) == implied
