"""Orders tightened: against a plain twin of a pass, never above what they were, and each way to end."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.one_device.priority_orders import price_orders, sample
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.priorities import Decoded
from schedopt.policies.topoformer.tightening import tightened


def drawn(b, rng, rows=4):
    """Return orders drawn at random, with their peaks."""
    orders = sample(b, np.zeros(len(b.own)), rows, rng)
    return Decoded(orders, price_orders(b, orders))


def pass_over(plain, order, limit, is_backward):
    """Return what a pass makes of an order, or None where it is stuck, by the plain twin of the beam."""
    priority = [-order.index(op) for op in range(len(order))]
    level = naive.priority_beam(plain, priority, 1, True, is_backward, limit)[-1]
    return list(level[0][0])[:: -1 if is_backward else 1] if level else None


@pytest.mark.parametrize("seed", range(12))
def test_each_row_is_what_plain_passes_make_of_it(seed):
    rng = np.random.default_rng([192, seed])
    graph, plain = naive.random_graph(rng, 3 + seed % 14, edges=1.3)
    before = drawn(graph.buffers, rng)
    after, passes = tightened(graph.buffers, before)
    count = 0
    for row in range(len(before.orders)):
        order, peak, is_backward, stuck = before.orders[row].tolist(), int(before.peaks[row]), False, 0
        while stuck < 2 and peak > 0:
            found = pass_over(plain, order, peak, is_backward)
            count, stuck, is_backward = count + 1, stuck + 1, not is_backward
            if found is not None:
                order, stuck = found, 0
                peak = int(price_orders(graph.buffers, np.array([order], np.int32))[0])
        assert (order, peak) == (after.orders[row].tolist(), after.peaks[row])
    assert passes == count


def layered(seed, nodes=120):
    rng = np.random.default_rng([193, seed])
    b = layered_graph(LayeredParameters(nodes=nodes), rng, "layered").buffers
    return b, drawn(b, rng)


def test_orders_stay_orders_and_no_peak_gets_higher():
    gained = []
    for seed in range(6):
        b, before = layered(seed)
        kept = before.orders.copy(), before.peaks.copy()
        after, _ = tightened(b, before)
        assert (np.sort(after.orders, axis=1) == np.arange(120)).all()
        assert price_orders(b, after.orders).tolist() == after.peaks.tolist()
        assert (after.peaks <= before.peaks).all()
        assert (before.orders == kept[0]).all(), "what was given is not changed"
        assert (before.peaks == kept[1]).all()
        gained.append(np.mean(after.peaks / before.peaks))
    assert np.mean(gained) < 0.9


def test_the_passes_the_bound_and_a_stop_end_it():
    b, before = layered(0)
    whole, passes = tightened(b, before)
    best = int(np.argmin(before.peaks))
    for most in (0, 1, passes - 1):
        assert tightened(b, before, most=most)[1] == most
    one, _ = tightened(b, before, most=2)
    assert [row for row in range(4) if one.peaks[row] < before.peaks[row]] == [best], "the best goes first"
    assert tightened(b, before, must_stop=lambda: True)[1] == 0
    bound = int(before.peaks.min())
    assert tightened(b, before, bound=bound)[1] == 0
    assert tightened(b, before, bound=int(whole.peaks[best]))[1] < passes
