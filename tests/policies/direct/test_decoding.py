"""Keys made schedules: by their order, each row on its own, and valid."""

import naive
import numpy as np
import pytest
from schedopt.core.model.verifier import verify
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.placements import lazy_keys
from schedopt.policies.direct.keys import PER_ORDER, decode, order_of, rule_keys, values_of


def problem_of(task, seed=0, ops=25, **values):
    return Problem(naive.random_graph(np.random.default_rng([7, seed]), ops)[0], task, devices=3, **values)


def rows_of(problem, count, seed=0):
    return np.random.default_rng(seed).random((count, problem.graph.num_ops + 1), dtype=np.float32)


def test_orders_take_the_ready_op_of_the_largest_key():
    graph = problem_of("memory").graph
    keys = rows_of(problem_of("memory"), 1)[0]
    done, pointers, before = set(), *graph.predecessors
    for op in order_of(graph, keys).tolist():
        ready = [
            other
            for other in range(graph.num_ops)
            if other not in done and done.issuperset(before[pointers[other] : pointers[other + 1]].tolist())
        ]
        assert keys[op] == max(keys[other] for other in ready)
        done.add(op)
    assert len(done) == graph.num_ops


@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_rows_cost_the_same_alone_and_together_and_as_schedules(task):
    problem = problem_of(task)
    rows = rows_of(problem, 4)
    values = values_of(problem, rows)
    for row, value in zip(rows, values, strict=True):
        search = Search(problem)
        decode(search, row[None])
        assert search.best_value == value
        totals = verify(problem, search.best)
        assert value == pytest.approx(problem.value(totals.peak, search.best_simulation.runtime))
    assert len(set(values.tolist())) > 1


def test_a_patience_below_0_keeps_all_ops_on_one_device_where_transfers_take_time():
    problem = problem_of("runtime", latency=1e6)
    rows = rows_of(problem, 3)
    rows[1:, -1] = -0.1
    values = values_of(problem, rows)
    assert values[0] != values[1] == values[2] == problem.graph.runtime.sum()
    search = Search(problem)
    decode(search, rows[1:])
    assert search.evaluations == 1
    np.testing.assert_array_equal(search.best.op_order(), order_of(problem.graph, rows[1]))
    free = problem_of("runtime")
    waits = rows.copy()
    waits[:, -1] = 0.0
    np.testing.assert_array_equal(values_of(free, rows), values_of(free, waits))


def test_the_first_rows_are_decoded_where_the_budget_is_short():
    problem = problem_of("runtime")
    rows = rows_of(problem, 6)
    search = Search(problem, max_evaluations=2)
    decode(search, rows)
    assert search.evaluations == 2
    assert search.best_value == values_of(problem, rows[:2]).min()


def test_an_order_for_the_peak_takes_a_bounded_budget():
    problem = problem_of("memory")
    search = Search(problem)
    decode(search, rows_of(problem, 3))
    assert search.evaluations <= 3 * PER_ORDER


def test_a_memory_limit_is_kept_where_the_lazy_decoder_does_not():
    for seed in range(6):
        least = values_of(problem_of("memory", seed), rule_keys(problem_of("memory", seed))[None])[0]
        search = Search(problem_of("runtime", seed, memory_limit=int(least)))
        decode(search, np.append(rule_keys(problem_of("memory", seed))[:-1], 0.5).astype(np.float32)[None])
        assert search.best_fitness[0] == 0


def test_nothing_is_offered_where_there_was_no_time_to_decode_before_ctrl_c(monkeypatch):
    monkeypatch.setattr(lazy_keys, "MOST_DECODED", -1.0)
    problem = Problem(naive.random_graph(np.random.default_rng(3), 12)[0], "runtime", 3)
    search = Search(problem)
    decode(search, rule_keys(problem)[None])
    verify(problem, search.best)
    stopped = Search(problem)
    stopped.interrupt.set()
    decode(stopped, rule_keys(problem)[None])
    assert stopped.best is None  # the run then offers the input order
