"""Beams of priorities from both ends in turn: against all orders, the paper's beam, and each way to end."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders import priority_beam
from schedopt.core.kernels.orders.priority_beam import beam
from schedopt.core.kernels.orders.priority_orders import greedy, price_orders
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.decoding import decode_two_way


def layered(seed, nodes=80):
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
        b, priorities = layered(seed)
        found, kept = decode_two_way(b, priorities, 4)
        assert found.peaks.tolist() == price_orders(b, found.orders).tolist()
        assert (np.diff(found.peaks) > 0).all()
        assert found.orders[-1].tolist() == beam(b, priorities, 4).orders[0].tolist()
        assert kept >= 4 * len(found.peaks) + 2 * (4 + 8 + 16)  # both ends failed at each width
        several += len(found.peaks) > 2
    assert several > 4


def test_a_first_beam_that_is_stopped_leaves_the_greedy_order(monkeypatch):
    b, priorities = layered(0)
    monkeypatch.setattr(priority_beam, "STATES_AT_ONCE", 1)
    found, kept = decode_two_way(b, priorities, 4, must_stop=lambda: True)
    assert found.orders.tolist() == greedy(b, priorities[None]).tolist()
    assert (found.peaks.tolist(), kept) == (price_orders(b, found.orders).tolist(), 4)


def test_the_budget_the_bound_and_a_stop_end_it():
    b, priorities = layered(0)
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
