"""Which peaks no order has, against all orders of small graphs; and their even shares against all plans on devices."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.order_proofs import Precedences
from schedopt.core.bounds.refutations import Refutations
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule

MANY = 10**6


def never():
    return False


def drawn(rng, most_ops, edges):
    """The refutations of a random graph, and the least peak and that of its input order, without persistent bytes."""
    graph, plain = naive.random_graph(rng, int(rng.integers(1, most_ops)), edges=float(rng.uniform(*edges)))
    refutations, present, high = make(graph)
    return refutations, naive.least_peak(plain) - present, high


def make(graph):
    """The refutations of a graph, its persistent bytes, and the peak of its input order without them."""
    order, present = graph.input_order, int(graph.persistent.sum())
    memory = simulate(Problem(graph), Schedule.single_device(order)).step_memory - present
    return Refutations(Precedences(graph.buffers, order, memory)), present, int(memory.max())


@pytest.mark.parametrize("seed", seeds(1_000, quick=4))
def test_with_cases_enough_exactly_what_no_order_has_is_refuted(seed):
    rng = np.random.default_rng([34, seed])
    refutations, least, _ = drawn(rng, 9, (0.4, 1.6))
    assert refutations.refute(least - 1, MANY, never) == "impossible"
    assert refutations.refute(least, MANY, never) == "possible"
    few = refutations.refute(least + int(rng.integers(0, 5)), int(rng.integers(0, 3)), never)
    assert few in ("possible", "stopped")


@pytest.mark.parametrize("seed", seeds(1_000, quick=4))
def test_bounds_rise_to_the_optimum(seed):
    rng = np.random.default_rng([35, seed])
    refutations, least, high = drawn(rng, 8, (0.5, 2.0))
    bounds = list(refutations.bounds(0, high, never))
    assert bounds == sorted(set(bounds))
    assert max(bounds, default=0) == least
    assert max(refutations.bounds(0, least - 1, never), default=0) == max(0, least - 1)  # no more is asked for


@pytest.mark.parametrize("seed", seeds(600, quick=6))
@pytest.mark.parametrize("devices", [2, 3])
def test_no_plan_on_devices_is_below_the_even_share(seed, devices):
    rng = np.random.default_rng([36, seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 5)), aliases=False)
    refutations, present, high = make(graph)
    bound = present + max(refutations.bounds(0, high, never), default=0)
    assert -(-bound // devices) <= naive.best_schedule(plain, devices, "memory")[1]


def test_stopping_proves_nothing():
    graph, _ = naive.random_graph(np.random.default_rng(38), 12)
    refutations, _, high = make(graph)
    assert refutations.refute(10**9, MANY, lambda: True) == "stopped"
    assert list(refutations.bounds(0, high, lambda: True)) == []
    looks = iter([False, False])
    assert refutations.refute(high, MANY, lambda: next(looks, True)) == "stopped"
