"""The depth-first search: pauses change nothing, and it ends with the optimum."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.orders.depth_first import FINISHED, IMPROVED, PAUSED, new_search, search_on


@pytest.mark.parametrize("seed", seeds(25, quick=4))
def test_orders_get_better_up_to_the_optimum_however_often_it_pauses(seed):
    """The same orders in the same succession, and as many children tried."""
    rng = np.random.default_rng([122, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 10)), edges=1.2)
    b, found = graph.buffers, []
    zobrist = rng.integers(1, 2**64, graph.num_ops, dtype=np.uint64)
    salt = rng.integers(1, 2**64, dtype=np.uint64)
    for pause in (1, 7, 10**6):
        state, orders, best, count, outcome = new_search(b, 10**4, salt), [], 2**62, 0, PAUSED
        while outcome != FINISHED:
            outcome, new, followed = search_on(b, state, zobrist, salt, best, pause)
            assert followed <= new <= pause
            count += new
            if outcome == IMPROVED:
                orders.append(state.path.tolist())
                best = int(state.peak[graph.num_ops])
                assert best + sum(plain.persistent) == naive.order_peak(plain, orders[-1])
        found.append((orders, count))
        assert state.waiting.tolist() == [len(before) for before in plain.before]
        assert state.users_left.tolist() == np.diff(b.user_ptr).tolist()
        assert search_on(b, state, zobrist, salt, best, pause) == (FINISHED, 0, 0)
    assert found[0] == found[1] == found[2]
    peaks = [naive.order_peak(plain, order) for order in orders]
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == naive.least_peak(plain)
