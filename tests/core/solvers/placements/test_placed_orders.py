"""Orders of one device placed on several: by hand, against all schedules, and within the budget."""

import math

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Problem, Schedule, Search
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import _offer_fallback, solve
from schedopt.core.solvers.placements import brkga, chromosomes, list_schedulers
from schedopt.core.solvers.placements.peak_annealing import place


def placed(problem, orders, evaluations=2000):
    """Return the search after the first order was offered on device 0 and all were placed."""
    search = Search(problem, max_evaluations=evaluations, lower_bound=lower_bound(problem))
    search.offer_order(orders[0])
    place(search, np.array(orders, np.int32))
    verify(problem, search.best, enforce_limit=False)
    assert search.evaluations <= evaluations + 1e-9
    assert not search.depends_on_time
    return search


def two_chains(length=6):
    """Two equal chains; along each the outputs are all kept to the end, 8 bytes per op."""
    ops = (f"op{op}: {f'op{op - 1}' * bool(op % length)} -> 8f us=3" for op in range(2 * length))
    return sketch("; ".join(ops), "chains")


def test_orders_that_take_too_long_to_decode_give_way_to_a_list_schedule(monkeypatch):
    monkeypatch.setattr(chromosomes, "MOST_DECODED", -1.0)
    search = placed(Problem(two_chains(), "runtime", 2), [np.arange(12)])
    assert search.is_optimal
    assert search.evaluations == 2
    assert "there was no time" in search.notes[0]
    monkeypatch.setattr(brkga, "MOST_DECODED", -1.0)
    lazy = Search(Problem(two_chains(), "runtime", 2), max_evaluations=10)
    brkga.solve(lazy, brkga.Parameters(decoder="lazy"))
    queue = Search(Problem(two_chains(), "runtime", 2), max_evaluations=10)
    brkga.solve(queue, brkga.Parameters())
    assert lazy.best_value == queue.best_value
    assert "decoder=queue was used" in lazy.notes[0]


@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_two_chains_part_whatever_order_interleaves_them(task):
    graph = two_chains()
    interleaved = np.arange(12).reshape(2, 6).T.ravel()
    search = placed(Problem(graph, task, 2), [interleaved])
    assert search.best_value == {"memory": 6 * 8, "runtime": 6 * 3.0}[task]
    assert search.is_optimal


@pytest.mark.parametrize("seed", range(8))
def test_every_order_has_its_turn_for_the_makespan(seed):
    graph, plain = naive.random_graph(rng := np.random.default_rng([172, seed]), 30)
    problem = Problem(graph, "runtime", 2, None, 1e6, 0.5)
    orders = [naive.random_order(rng, plain) for _ in range(5)]
    each = [placed(problem, [order]) for order in orders]
    together = placed(problem, orders)
    assert together.best_value == min(search.best_value for search in each)
    assert together.is_optimal or together.evaluations == 1 + len(orders)


@pytest.mark.slow
def test_a_memory_limit_that_lazy_transfers_break_is_kept_by_beams():
    kept = lazily = 0
    for seed in range(12):
        graph, plain = naive.random_graph(rng := np.random.default_rng([174, seed]), 25)
        order = naive.random_order(rng, plain)
        unlimited = placed(Problem(graph, "runtime", 2), [order])
        peak = placed(Problem(graph, "memory", 2), [order]).best_value
        limit = math.ceil(1.1 * peak)
        lazily += unlimited.best_simulation.peak <= limit
        kept += placed(Problem(graph, "runtime", 2, limit), [order]).best_fitness[0] == 0
    assert lazily < kept == 12


@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("evaluations", [1, 2, 3, 7])
def test_a_small_budget_is_kept(task, evaluations):
    graph, plain = naive.random_graph(rng := np.random.default_rng(175), 30)
    orders = [naive.random_order(rng, plain) for _ in range(4)]
    for limit in (None, 100):
        search = placed(Problem(graph, task, 2, limit, 1e6), orders, evaluations)
        first = Schedule.single_device(np.array(orders[0], np.int32))
        assert search.best_fitness <= placed(Problem(graph, task, 2, limit, 1e6), orders, 1).best_fitness
        assert evaluations > 1 or search.best.items.tolist() == first.items.tolist()


def test_an_interrupt_leaves_the_order_on_device_0():
    graph, plain = naive.random_graph(rng := np.random.default_rng(176), 30)
    for task in ("memory", "runtime"):
        search = Search(Problem(graph, task, 2))
        search.offer_order(order := np.array(naive.random_order(rng, plain), np.int32))
        search.interrupt.set()
        place(search, order[None])
        assert search.evaluations == 1
        assert not search.best.targets.any()


def test_a_method_without_time_gives_way_to_a_list_schedule():
    problem = Problem(two_chains(40), "runtime", 2)
    result = solve(problem, "gp-dfs", time_limit=1e-9)
    assert result.notes == ("chains: there was no time for gp-dfs; this is a list schedule",)
    assert result.simulation.runtime == 40 * 3.0
    assert not result.is_repeatable
    interrupted = Watcher()
    interrupted.interrupt.set()
    result = solve(problem, "gp-dfs", watcher=interrupted)
    assert (result.found_by, result.status) == ("input", "interrupted")


@pytest.mark.parametrize("method", ["brkga", "random"])
def test_no_random_keys_are_drawn_that_there_is_no_time_for(monkeypatch, method):
    monkeypatch.setattr(chromosomes, "_READ", 1e9)
    problem = Problem(two_chains(), "runtime", 2)
    result = solve(problem, method, time_limit=10, evaluations=20)
    assert (result.evaluations, result.is_repeatable) == (0, False)
    assert f"no time for {method}" in result.notes[0]
    assert solve(problem, method, evaluations=20).evaluations == 20
    monkeypatch.setattr(chromosomes, "_MOST_GENES", 50)
    assert "this is a list schedule" in solve(problem, method, evaluations=20).notes[0]


@pytest.mark.parametrize("method", ["heft", "peft", "cpop"])
def test_a_table_of_ops_and_devices_that_is_too_large_gives_way_to_a_list_schedule(monkeypatch, method):
    problem = Problem(two_chains(), "runtime", 2)
    assert solve(problem, method).notes == ()
    monkeypatch.setattr(list_schedulers, "MOST_CELLS", 23)
    result = solve(problem, method)
    assert "this is a list schedule" in result.notes[0]
    assert result.simulation.runtime == 6 * 3.0


def test_evaluations_without_a_schedule_are_no_sign_of_a_missing_link():
    search = Search(Problem(two_chains(), "runtime", 2))
    search.spend(5)
    _offer_fallback(search, parse_method("brkga"))
    assert search.notes == ["chains: the graph and its devices are too large for brkga; this is a list schedule"]
