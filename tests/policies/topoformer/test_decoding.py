"""Orders from priorities, their probability, and what tightens them."""

from types import SimpleNamespace

import naive
import numpy as np
import pytest
import torch
from models.seeds import seeds
from schedopt.core.kernels.orders import set_beam
from schedopt.core.kernels.orders.priority_orders import greedy, price_orders, sample
from schedopt.core.kernels.orders.set_beam import beam
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.decoding import (
    decode_two_way,
    normalised_priorities,
    order_log_probability,
    priced,
    tightened,
)
from schedopt.policies.topoformer.network import PriorityPolicy


@pytest.mark.parametrize("alpha", [5.0, 0.5])
def test_priorities_are_normalised_over_the_ops_of_each_graph(alpha):
    rng = np.random.default_rng(1)
    counts = [7, 1, 4, 2]
    is_op = torch.arange(7) < torch.tensor(counts)[:, None]
    given = torch.from_numpy(rng.normal(300, 20, (4, 7))).masked_fill(~is_op, torch.nan)
    found = normalised_priorities(given, is_op, alpha)
    for row, count, values in zip(found, counts, given.numpy(), strict=True):
        ops = values[:count]
        expected = alpha * (ops - ops.mean()) / ops.std() if count > 1 else [0.0]
        assert row[:count].tolist() == pytest.approx(list(expected), rel=1e-12)
        assert row[count:].tolist() == [0.0] * (7 - count)
        alone = normalised_priorities(torch.from_numpy(ops.copy()), alpha=alpha)
        assert row[:count].tolist() == pytest.approx(alone.tolist(), rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7, 1e-30])
@pytest.mark.parametrize("count", [1, 3, 2000])
def test_equal_priorities_become_zeros_without_a_gradient(value, count):
    given = torch.full((count,), value, requires_grad=True)
    found = normalised_priorities(given)
    assert found.eq(0).all()
    found.sum().backward()
    assert given.grad.eq(0).all()


@pytest.mark.parametrize("seed", seeds(25, quick=4))
@pytest.mark.parametrize("spread", [0.5, 5.0, 50.0, 5000.0])
def test_log_probability_and_its_gradient_are_those_of_the_steps(seed, spread):
    """Against one log-softmax after another by torch; no step's sum of e^priority needs to be a number."""
    rng = np.random.default_rng([160, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 40)), edges=1.0)
    priorities = torch.from_numpy(spread * rng.standard_normal(graph.num_ops)).requires_grad_()
    orders = [naive.random_order(rng, plain) for _ in range(4)]
    steps = [[sorted(plain.ready(order[:at])) for at in range(len(order))] for order in orders]
    expected = torch.stack(
        [
            sum(priorities[ready].log_softmax(0)[ready.index(op)] for op, ready in zip(order, of_order, strict=True))
            for order, of_order in zip(orders, steps, strict=True)
        ]
    )
    weights = torch.from_numpy(rng.standard_normal(len(orders)))
    (gradient,) = torch.autograd.grad(expected @ weights, priorities)
    found = order_log_probability(priorities, graph.buffers, orders)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-12, abs=1e-9)
    (found_gradient,) = torch.autograd.grad(found @ weights, priorities)
    assert found_gradient.tolist() == pytest.approx(gradient.tolist(), rel=1e-9, abs=1e-12)
    single = order_log_probability(priorities.float(), graph.buffers, orders)
    assert single.dtype == torch.float32
    assert single.tolist() == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-4)


def test_the_padding_of_a_batch_changes_nothing_and_has_no_gradient():
    rng = np.random.default_rng(161)
    graphs = [naive.random_graph(rng, ops) for ops in (9, 8, 17, 2)]
    orders = [np.array([naive.random_order(rng, plain) for _ in range(3)]) for _, plain in graphs]
    rows = torch.full((len(graphs), 20), torch.nan, dtype=torch.float64)
    for row, (graph, _) in zip(rows, graphs, strict=True):
        row[: graph.num_ops] = torch.from_numpy(rng.standard_normal(graph.num_ops))
    policy = PriorityPolicy([SimpleNamespace(graph=graph) for graph, _ in graphs], rows.requires_grad_())
    found = policy.log_probability(orders)
    for row, (graph, _), of_graph, together in zip(rows, graphs, orders, found, strict=True):
        alone = order_log_probability(row[: graph.num_ops], graph.buffers, of_graph)
        assert together.tolist() == alone.tolist()
    found.sum().backward()
    assert all(gradient[graph.num_ops :].eq(0).all() for gradient, (graph, _) in zip(rows.grad, graphs, strict=True))


def drawn(b, rng, rows=4):
    """Return orders drawn at random, with their peaks."""
    return priced(b, sample(b, np.zeros(len(b.own)), rows, rng))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_rows_are_orders_no_worse_than_before_and_know_their_peaks(seed):
    rng = np.random.default_rng([192, seed])
    graph, plain = naive.random_graph(rng, 3 + seed % 14, edges=1.3)
    before = drawn(graph.buffers, rng)
    untouched = before.orders.tolist()
    for priorities in (None, rng.normal(size=len(plain.own))):
        after, _ = tightened(graph.buffers, before, priorities)
        assert (after.peaks <= before.peaks).all()
        for order, peak in zip(after.orders.tolist(), after.peaks.tolist(), strict=True):
            assert all(op in plain.ready(order[:at]) for at, op in enumerate(order))
            assert peak + sum(plain.persistent) == naive.order_peak(plain, order)
    assert before.orders.tolist() == untouched


def layered(seed, nodes=120):
    rng = np.random.default_rng([193, seed])
    b = layered_graph(LayeredParameters(nodes=nodes), rng, "layered").buffers
    return b, drawn(b, rng)


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


def layered_case(seed, nodes=80):
    rng = np.random.default_rng([190, seed])
    return layered_graph(LayeredParameters(nodes=nodes), rng, "layered").buffers, 5 * rng.standard_normal(nodes)


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_with_room_for_every_state_it_ends_with_the_least_peak_of_all_orders(seed):
    rng = np.random.default_rng([191, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 8, edges=1.2)
    found, _ = decode_two_way(graph.buffers, rng.standard_normal(graph.num_ops), 300)
    assert found.peaks[0] + sum(plain.persistent) == naive.least_peak(plain)


def test_each_order_is_better_than_the_one_before_and_the_last_is_the_papers_beam():
    several = 0
    for seed in range(8):
        b, priorities = layered_case(seed)
        found, kept = decode_two_way(b, priorities, 4)
        assert found.peaks.tolist() == price_orders(b, found.orders).tolist()
        assert (np.diff(found.peaks) > 0).all()
        assert found.orders[-1].tolist() == beam(b, priorities, 4).orders[0].tolist()
        assert kept >= 4 * len(found.peaks) + 2 * (4 + 8 + 16)  # both ends failed at each width
        several += len(found.peaks) > 2
    assert several > 4


def test_a_first_beam_that_is_stopped_leaves_the_greedy_order(monkeypatch):
    b, priorities = layered_case(0)
    monkeypatch.setattr(set_beam, "STATES_AT_ONCE", 1)
    found, kept = decode_two_way(b, priorities, 4, must_stop=lambda: True)
    assert found.orders.tolist() == greedy(b, priorities[None]).tolist()
    assert (found.peaks.tolist(), kept) == (price_orders(b, found.orders).tolist(), 4)


def test_the_budget_the_bound_and_a_stop_end_it():
    b, priorities = layered_case(0)
    whole, all_kept = decode_two_way(b, priorities, 4)
    assert all_kept > 8
    found, kept = decode_two_way(b, priorities, 4, most=8)
    assert kept == 8
    assert set(found.peaks) <= set(whole.peaks)
    assert decode_two_way(b, priorities, 4, most=1)[1] == 4
    for end in ({"bound": int(whole.peaks[-1])}, {"must_stop": lambda: True}):
        found, kept = decode_two_way(b, priorities, 4, **end)
        assert (found.peaks.tolist(), kept) == ([whole.peaks[-1]], 4)
    assert decode_two_way(b, priorities, 4, bound=int(whole.peaks[0]))[0].peaks[0] == whole.peaks[0]
