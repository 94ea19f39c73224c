"""The beam over partial orders against its twin and the optimum."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders import set_beam
from schedopt.core.kernels.orders.priority_orders import price_orders
from schedopt.core.kernels.orders.set_beam import beam
from schedopt.datasets.layered import LayeredParameters, layered_graph


@pytest.mark.parametrize("at_once", [1, 6, 9])
def test_a_beam_that_asks_whether_to_stop_is_the_same_or_ends(monkeypatch, at_once):
    """With two rows, 1, 3 and 4 steps are made at once."""
    graph = layered_graph(LayeredParameters(nodes=40), np.random.default_rng(193), "layered")
    priorities = np.random.default_rng(194).standard_normal(40)
    whole = beam(graph.buffers, priorities, 2)
    monkeypatch.setattr(set_beam, "STATES_AT_ONCE", at_once)
    asked = []
    found = beam(graph.buffers, priorities, 2, must_stop=lambda: bool(asked.append(1)))
    for one, other in zip(found, whole, strict=True):
        assert one.tolist() == other.tolist()
    assert len(asked) == -(-40 // max(1, at_once // 2)) - 1
    stops = iter([False, False, True])
    stopped = beam(graph.buffers, priorities, 2, must_stop=lambda: next(stops))
    assert [len(values) for values in stopped] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_backward", [False, True])
def test_the_beam_under_a_limit_is_its_twin_from_either_end(seed, is_backward):
    """Limits from what no order keeps to what all do."""
    rng = np.random.default_rng([152, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 14)), edges=1.0)
    priorities = 3 * rng.standard_normal(graph.num_ops)
    free = beam(graph.buffers, priorities, 3, is_backward=is_backward)
    found_none = 0
    for share in (0.3, 0.8, 1.0, 1.3, None):
        limit = {} if share is None else {"limit": int(share * free.peaks[0]) + 1}
        for width in (1, 3):
            found = beam(graph.buffers, priorities, width, is_backward=is_backward, **limit)
            level = naive.priority_beam(plain, priorities.tolist(), width, is_backward, **limit)[-1]
            assert found.orders.tolist() == [list(ops)[:: -1 if is_backward else 1] for ops, *_ in level]
            assert found.log_probability.tolist() == pytest.approx([score for _, score, _ in level], abs=1e-9)
            assert found.peaks.tolist() == [peak for *_, peak in level]
            assert found.peaks.tolist() == price_orders(graph.buffers, found.orders).tolist()
            found_none += not level
    assert found_none


@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_a_beam_with_room_for_every_state_is_exact(seed):
    """It ends with the least peak of all orders, by the probability of that order."""
    rng = np.random.default_rng([148, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 8, edges=1.2)
    priorities = 5 * rng.standard_normal(graph.num_ops)
    found = beam(graph.buffers, priorities, 300)
    (order,), (score,), (peak,) = found.orders.tolist(), found.log_probability, found.peaks
    assert peak + sum(plain.persistent) == naive.least_peak(plain)
    assert naive.order_log_probability(plain, priorities, order) == pytest.approx(score, rel=1e-9, abs=1e-9)
