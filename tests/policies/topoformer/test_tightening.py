"""Orders tightened: against a plain twin of a pass, never above what they were, and each way to end."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.orders.priority_orders import price_orders, sample
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.decoding import Decoded, tightened


def drawn(b, rng, rows=4):
    """Return orders drawn at random, with their peaks."""
    orders = sample(b, np.zeros(len(b.own)), rows, rng)
    return Decoded(orders, price_orders(b, orders))


def pass_over(plain, priority, width, limit, is_backward):
    """Return the order of a pass, or None where it is stuck, by the plain twin of the beam."""
    level = naive.priority_beam(plain, priority, width, True, is_backward, limit)[-1]
    return list(level[0][0])[:: -1 if is_backward else 1] if level else None


class PlainPasses:
    """The passes over orders, by the plain twin of the beam."""

    def __init__(self, graph, plain, before):
        self.buffers, self.plain, self.count = graph.buffers, plain, 0
        self.orders, self.peaks = before.orders.tolist(), before.peaks.tolist()

    def best(self):
        return self.peaks.index(min(self.peaks))

    def make(self, row, priority, width, is_backward):
        order = pass_over(self.plain, priority, width, min(self.peaks), is_backward)
        self.count += width
        if order is not None:
            self.orders[row] = order
            self.peaks[row] = int(price_orders(self.buffers, np.array([order], np.int32))[0])
        return order is not None

    def go_through(self, row, width):
        is_backward, stuck = False, 0
        while stuck < 2 and min(self.peaks) > 0:
            order = self.orders[row]
            is_made = self.make(row, [-order.index(op) for op in range(len(order))], width, is_backward)
            stuck, is_backward = 0 if is_made else stuck + 1, not is_backward


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_are_what_plain_passes_make_of_them(seed):
    """Each in turn below the best peak of all, the best again by wider beams, then drawn priorities."""
    rng = np.random.default_rng([192, seed])
    graph, plain = naive.random_graph(rng, 3 + seed % 14, edges=1.3)
    before = drawn(graph.buffers, rng)
    priorities = rng.normal(size=len(plain.own))
    p = PlainPasses(graph, plain, before)
    for row in np.argsort(before.peaks, kind="stable"):
        p.go_through(int(row), 1)
    for width in (2, 4, 8, 16):
        p.go_through(p.best(), width)
    without = Decoded(np.array(p.orders), np.array(p.peaks)), p.count
    noise, least = np.random.default_rng(0), min(p.peaks)
    for number in range(60 if min(p.peaks) > 0 else 0):
        p.make(p.best(), priorities + noise.gumbel(size=len(priorities)), 1, number % 2 == 1)
    for width in (1, 2, 4, 8, 16) if min(p.peaks) < least else ():
        p.go_through(p.best(), width)
    for given, (decoded, count) in (
        (None, without),
        (priorities, (Decoded(np.array(p.orders), np.array(p.peaks)), p.count)),
    ):
        after, passes = tightened(graph.buffers, before, given)
        assert after.orders.tolist() == decoded.orders.tolist()
        assert after.peaks.tolist() == decoded.peaks.tolist()
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
        gained.append(after.peaks.min() / before.peaks.min())
    assert np.mean(gained) < 0.9


def test_the_passes_the_bound_and_a_stop_end_it():
    b, before = layered(0)
    whole, passes = tightened(b, before)
    best = int(np.argmin(before.peaks))
    for most in (0, 1, 8):  # so few are all of width 1
        assert tightened(b, before, most=most)[1] == most
    for most in (passes - 1, passes // 2):
        assert most - 16 < tightened(b, before, most=most)[1] <= most
    one, _ = tightened(b, before, most=2)
    assert [row for row in range(4) if one.peaks[row] < before.peaks[row]] == [best], "the best goes first"
    assert tightened(b, before, must_stop=lambda: True)[1] == 0
    bound = int(before.peaks.min())
    assert tightened(b, before, bound=bound)[1] == 0
    assert tightened(b, before, bound=int(whole.peaks[best]))[1] < passes
