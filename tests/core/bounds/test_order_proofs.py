"""What orders below a target have in common, against all orders of small graphs."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.order_proofs import Precedences
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.search.search import Search
from schedopt.core.solvers.orders.approximate_dp import UNLIMITED, run_beam


def never():
    return False


def make(graph):
    order = graph.input_order
    memory = simulate(Problem(graph), Schedule.single_device(order)).step_memory
    return Precedences(graph.buffers, order, memory - graph.persistent.sum())


def tighten(precedences, graph, target, stop=never):
    return precedences.tighten(target - int(graph.persistent.sum()), stop)


def related(buffers):
    """Every pair (first, second) that the precedences imply."""
    after = [set() for _ in buffers.own]
    for op in range(len(after)):
        after[op] = set(buffers.successors[buffers.successor_ptr[op] : buffers.successor_ptr[op + 1]].tolist())
    return {(op, other) for op in range(len(after)) for other in naive.reachable(after, op)}


@pytest.mark.parametrize("seed", seeds(80, quick=4))
def test_relations_hold_in_every_order_below_the_target(seed):
    rng = np.random.default_rng([30, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 8)))
    orders = [(naive.order_peak(plain, order), order) for order in naive.all_orders(plain)]
    least, largest = min(orders)[0], max(orders)[0]
    precedences = make(graph)
    for target in {least - 1, least, (least + largest) // 2, largest}:
        verdict = tighten(precedences, graph, target)
        within = [order for peak, order in orders if peak <= target]
        if verdict == "impossible":
            assert not within
            continue
        assert verdict == "closed"
        pairs = related(precedences.buffers_with_precedences())
        for order in within:
            place = {op: at for at, op in enumerate(order)}
            assert all(place[first] < place[second] for first, second in pairs)
        assert {(p, op) for op in plain.ops for p in plain.before[op]} <= pairs


def test_stopping_leaves_what_was_found():
    graph, _ = naive.random_graph(np.random.default_rng(32), 12)
    precedences = make(graph)
    assert tighten(precedences, graph, 10**9, lambda: True) == "stopped"
    assert precedences.flows == 0
    assert len(related(precedences.buffers_with_precedences())) == len(related(graph.buffers))


@pytest.mark.parametrize("seed", seeds(40, quick=4))
@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("floor", [-1, 0])
def test_beams_through_the_tightened_graph_find_the_optimum(seed, is_backward, floor):
    rng = np.random.default_rng([33, seed])
    graph, plain = naive.random_graph(rng, 8)
    optimum = naive.least_peak(plain)
    precedences = make(graph)
    tighten(precedences, graph, optimum)
    buffers = precedences.buffers_with_precedences()
    chosen, *done, _ = run_beam(Search(Problem(graph)), buffers, 10**6, UNLIMITED, is_backward, floor)
    assert done == [True, True]
    assert naive.order_peak(plain, chosen[:: -1 if is_backward else 1].tolist()) == optimum
