"""What orders below a target have in common, and which peaks none has, against all orders of small graphs."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem, Schedule
from schedopt.core.bounds.order_proofs import Precedences
from schedopt.core.model.simulator import simulate

MANY = 10**6


def never():
    return False


def make(graph):
    """The precedences of a graph, its persistent bytes, and the peak of its input order without them."""
    order, present = graph.input_order, int(graph.persistent.sum())
    memory = simulate(Problem(graph), Schedule.single_device(order)).step_memory - present
    return Precedences(graph.buffers, order, memory), present, int(memory.max())


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
    precedences, *_ = make(graph)
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
    precedences, *_ = make(graph)
    assert tighten(precedences, graph, 10**9, lambda: True) == "stopped"
    assert precedences.flows == 0
    assert len(related(precedences.buffers_with_precedences())) == len(related(graph.buffers))


@pytest.mark.parametrize("seed", seeds(200, quick=4))
def test_with_cases_enough_exactly_what_no_order_has_is_refuted(seed):
    """And the bounds rise to the optimum, as far as is asked for."""
    rng = np.random.default_rng([34, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 9)), edges=float(rng.uniform(0.4, 1.8)))
    proofs, present, high = make(graph)
    least = naive.least_peak(plain) - present
    assert proofs.refute(least - 1, MANY, never) == "impossible"
    assert proofs.refute(least, MANY, never) == "possible"
    few = proofs.refute(least + int(rng.integers(0, 5)), int(rng.integers(0, 3)), never)
    assert few in ("possible", "stopped")
    bounds = list(proofs.bounds(0, high, never))
    assert bounds == sorted(set(bounds))
    assert max(bounds, default=0) == least
    assert max(proofs.bounds(0, least - 1, never), default=0) == max(0, least - 1)


def test_stopping_proves_nothing():
    proofs, _, high = make(naive.random_graph(np.random.default_rng(38), 12)[0])
    assert proofs.refute(10**9, MANY, lambda: True) == "stopped"
    assert list(proofs.bounds(0, high, lambda: True)) == []
    looks = iter([False, False])
    assert proofs.refute(high, MANY, lambda: next(looks, True)) == "stopped"
