"""The decoder in torch: normalised priorities, probabilities of orders with their gradient, and the wrappers."""

import naive
import numpy as np
import pytest
import torch
from models.seeds import seeds
from schedopt.core.kernels.orders.priority_beam import beam
from schedopt.core.kernels.orders.priority_orders import ready_steps, sample
from schedopt.policies.topoformer.decoding import (
    decode_greedy,
    decode_samples,
    normalised_priorities,
    order_log_probability,
)


def random_case(rng, ops, orders, spread, **options):
    """A random graph with priorities, and random orders of it with their ready steps, as tensors."""
    graph, plain = naive.random_graph(rng, ops, **options)
    priorities = torch.from_numpy(spread * rng.standard_normal(ops))
    chosen = torch.tensor([naive.random_order(rng, plain) for _ in range(orders)])
    return graph, plain, priorities, chosen, torch.from_numpy(ready_steps(graph.predecessors, chosen.numpy()))


# Normalised priorities (eq. 17) -------------------------------------------------------------------------------


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


def test_gradient_of_normalised_priorities():
    is_op = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    given = torch.from_numpy(np.random.default_rng(2).standard_normal((2, 5))).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: normalised_priorities(y, is_op), given)


# Log-probabilities (eq. 8) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(25, quick=4))
@pytest.mark.parametrize("spread", [0.5, 5.0, 50.0])
def test_log_probability_is_the_product_of_the_steps(seed, spread):
    rng = np.random.default_rng([160, seed])
    _, plain, priorities, orders, first = random_case(rng, int(rng.integers(1, 40)), 4, spread, edges=1.0)
    rows = priorities.expand(orders.shape)
    expected = [naive.order_log_probability(plain, priorities.tolist(), order) for order in orders.tolist()]
    assert order_log_probability(rows, orders, first).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-9)
    single = order_log_probability(rows.float(), orders.int(), first)
    assert single.dtype == torch.float32
    assert single.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("counts", [[5, 1, 3], [9, 8, 17, 2], [32, 33]])
def test_padding_changes_nothing_and_has_no_gradient(counts):
    """Graphs of different sizes in one batch; what stands where they are padded does not matter."""
    rng = np.random.default_rng(161)
    ops = max(counts) + 3
    priorities = torch.full((len(counts), ops), torch.nan, dtype=torch.float64)
    orders = torch.full((len(counts), ops), -1)
    first = torch.from_numpy(rng.integers(-9, 99, (len(counts), ops)))
    alone = []
    for row, count in enumerate(counts):
        _, _, values, order, ready = random_case(rng, count, 1, 5.0)
        priorities[row, :count], orders[row, :count], first[row, :count] = values, order[0], ready[0]
        values.requires_grad_()
        log_probability = order_log_probability(values[None], order, ready)
        log_probability.sum().backward()
        alone.append((log_probability.item(), values.grad.tolist()))
    priorities.requires_grad_()
    together = order_log_probability(priorities, orders, first)
    together.sum().backward()
    assert together.tolist() == pytest.approx([value for value, _ in alone], rel=1e-12)
    for row, (count, (_, gradient)) in enumerate(zip(counts, alone, strict=True)):
        assert priorities.grad[row, :count].tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-12)
        assert priorities.grad[row, count:].eq(0).all()


@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_the_log_probability(seed):
    rng = np.random.default_rng([162, seed])
    *_, priorities, orders, first = random_case(rng, 2 + 3 * seed, 3, 3.0, edges=0.8)
    rows = priorities.repeat(3, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: order_log_probability(y, orders, first), rows)


# Decoders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_decoders_return_orders_with_their_peaks(seed):
    rng = np.random.default_rng([165, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 15)))
    values, b = 5 * rng.standard_normal((3, graph.num_ops)), graph.buffers
    greedy = decode_greedy(b, values)
    assert greedy.orders.tolist() == [naive.random_priority_order(plain, (-row).tolist()) for row in values]
    samples = decode_samples(b, values[0], 5, np.random.default_rng(seed))
    assert samples.orders.tolist() == sample(graph.buffers, values[0], 5, np.random.default_rng(seed)).tolist()
    collapsed = beam(b, values[0], 4)
    level = naive.priority_beam(plain, values[0].tolist(), 4, True)[-1]
    assert collapsed.orders.tolist() == [list(order) for order, *_ in level]
    every = beam(b, values[0], 4, collapse=False)
    level = naive.priority_beam(plain, values[0].tolist(), 4, False)[-1]
    assert sorted(every.orders.tolist()) == sorted(list(order) for order, *_ in level)
    for found in (greedy, samples, collapsed, every):
        peaks = [naive.order_peak(plain, order) - sum(plain.persistent) for order in found.orders.tolist()]
        assert found.peaks.tolist() == peaks
