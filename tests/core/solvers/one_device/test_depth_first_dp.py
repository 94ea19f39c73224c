"""Depth-first dynamic programming: exact when it ends, whatever the table forgets, and anytime before."""

import naive
import numpy as np
import pytest
from schedopt.core.kernels.one_device.depth_first import FINISHED, IMPROVED, PAUSED, new_search, search_on
from schedopt.core.problem import Problem
from schedopt.core.search.search import Search, Watcher
from schedopt.core.solve import solve


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("table", [1, 8_000_000])
def test_it_proves_the_optimum_when_it_ends(seed, table):
    rng = np.random.default_rng([120, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 9, edges=rng.choice([0.8, 1.4, 2.2]))
    optimum = naive.least_peak(plain)
    result = solve(Problem(graph), f"depth-first-dp:table={table}", seed=seed)
    assert (result.value, result.lower_bound, result.status) == (optimum, optimum, "optimal")
    assert result.is_repeatable


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_the_exact_beam(seed):
    graph, _ = naive.random_graph(np.random.default_rng([121, seed]), 24, edges=2.0)
    problem = Problem(graph)
    values = {solve(problem, f"{method}", seed=seed).value for method in ("depth-first-dp", "approximate-dp")}
    assert len(values) == 1


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("pause", [1, 7, 10**6])
def test_the_search_follows_its_twin(seed, pause):
    """The same orders in the same succession, and as many children tried, however often it pauses."""
    rng = np.random.default_rng([122, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 10)), edges=1.2)
    b = graph.buffers
    zobrist = rng.integers(1, 2**64, graph.num_ops, dtype=np.uint64)
    salt = rng.integers(1, 2**64, dtype=np.uint64)
    expected, tried = naive.depth_first_orders(plain, zobrist.tolist(), int(salt))

    state, orders, best, count, outcome = new_search(b, 10**4, salt), [], 2**62, 0, PAUSED
    while outcome != FINISHED:
        outcome, new, followed = search_on(b, state, zobrist, salt, best, pause)
        assert followed <= new <= pause
        count += new
        if outcome == IMPROVED:
            orders.append(state.path.tolist())
            best = int(state.peak[graph.num_ops])
            assert best + sum(plain.persistent) == naive.order_peak(plain, orders[-1])
    assert orders == expected
    assert count == tried
    assert state.waiting.tolist() == [len(before) for before in plain.before]
    assert state.users_left.tolist() == np.diff(b.user_ptr).tolist()
    assert search_on(b, state, zobrist, salt, best, pause) == (FINISHED, 0, 0)


def test_each_order_offered_is_better_and_the_best_stays_when_time_ends():
    graph, _ = naive.random_graph(np.random.default_rng(123), 300, edges=1.0)
    values = []

    def watch(search: Search):
        if search.best is not None and (not values or values[-1] != search.best_value):
            values.append(search.best_value)

    result = solve(Problem(graph), "depth-first-dp", time_limit=0.5, watcher=Watcher(on_progress=watch))
    assert values == sorted(values, reverse=True)
    assert result.value == values[-1]
