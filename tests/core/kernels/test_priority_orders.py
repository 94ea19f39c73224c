"""Orders from priorities, greedy and sampled, against plain twins and exact probabilities."""

from collections import Counter

import naive
import numpy as np
import pytest
from models.frequencies import chi_square
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt.core.kernels.orders.priority_orders import greedy, price_orders, sample
from schedopt.core.kernels.orders.set_beam import beam
from schedopt.core.solvers.orders.baselines import greedy_order

LAST_DRAW = np.nextafter(1.0, 0.0)


class FixedDraws:
    """Stands in for a generator: `random` gives what it was told to."""

    def __init__(self, draws):
        self.draws = draws

    def random(self, shape):
        return np.broadcast_to(self.draws, shape).astype(float)


@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_greedy_takes_the_ready_op_of_highest_priority(seed):
    rng = np.random.default_rng([140, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 30)), edges=2.0)
    priorities = rng.integers(0, rng.choice([2, 5, 1000]), (4, graph.num_ops)).astype(float)
    expected = [naive.random_priority_order(plain, (-row).tolist()) for row in priorities]
    assert greedy(graph.buffers, priorities).tolist() == expected
    assert greedy(graph.buffers, priorities[0]).tolist() == expected[:1]


@pytest.mark.parametrize("seed", seeds(25, quick=4))
@pytest.mark.parametrize("spread", [0.1, 5.0, 50.0, 900.0])
def test_samples_invert_the_cumulative_probability_of_each_step(seed, spread):
    rng = np.random.default_rng([141, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 40)), edges=1.0)
    priorities = spread * rng.uniform(-1, 1, graph.num_ops)
    draws = rng.random((5, graph.num_ops))
    orders = sample(graph.buffers, priorities, 5, FixedDraws(draws))
    assert orders.tolist() == [naive.sampled_order(plain, priorities.tolist(), row) for row in draws.tolist()]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("draw", [0.0, LAST_DRAW])
def test_the_first_and_last_draws_give_valid_orders(seed, draw):
    rng = np.random.default_rng([142, seed])
    graph, plain = naive.random_graph(rng, 33, edges=1.0)
    priorities = rng.choice([-1000.0, -1.0, 0.0, 30.0, 1000.0], graph.num_ops)
    order = sample(graph.buffers, priorities, 1, FixedDraws(draw))[0].tolist()
    assert sorted(order) == list(plain.ops)
    assert all(op in plain.ready(order[:step]) for step, op in enumerate(order))


def test_what_a_rare_op_releases_is_sampled_rightly():
    """Only op 0 can run first, e^-50; then three of e^50 beside a fourth that is waited for by a rare one."""
    frequent = "a: source -> 1; b: source -> 1; c: source -> 1; d: source -> 1"
    graph = sketch(f"source -> 1; {frequent}; rare: d -> 1; last: rare -> 1")
    plain = naive.plain_of(graph)
    priorities = np.array([-50.0, 50.0, 49.0, 48.5, 50.5, -49.0, 50.0])
    exact = {tuple(o): np.exp(naive.order_log_probability(plain, priorities, o)) for o in naive.all_orders(plain)}
    counts = Counter(map(tuple, sample(graph.buffers, priorities, 20_000, np.random.default_rng(144)).tolist()))
    assert sum(count > 100 for count in counts.values()) > 10
    assert chi_square(counts, exact) < 1


@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_price_orders(seed):
    rng = np.random.default_rng([145, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)), edges=1.8)
    orders = [naive.random_order(rng, plain) for _ in range(5)]
    peaks = [naive.order_peak(plain, order) - sum(plain.persistent) for order in orders]
    assert price_orders(graph.buffers, orders).tolist() == peaks


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros((2, 4)), np.zeros((1, 3)), [0, 1, np.nan], [0, np.inf, 0]])
def test_priorities_must_be_finite_and_one_per_op(wrong):
    graph, _ = naive.random_graph(np.random.default_rng(0), 3)
    if np.shape(wrong) != (1, 3):
        with pytest.raises(ValueError, match="priorit"):
            greedy(graph.buffers, wrong)
    with pytest.raises(ValueError, match="priorit"):
        sample(graph.buffers, wrong, 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="priorit"):
        beam(graph.buffers, wrong, 2)


@pytest.mark.parametrize("seed", seeds(25, quick=5))
def test_least_peak_memory_first(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)))
    order, peak = naive.least_peak_memory_first(plain)
    assert greedy_order(graph.buffers).tolist() == order
    assert peak + sum(plain.persistent) == naive.order_peak(plain, order)
    assert greedy_order(graph.buffers, lambda: True) is None
    assert greedy_order(graph.buffers, is_by_ratio=True).tolist() == naive.backward_ratio(plain)
