"""Keys of ops: what is seen of a problem, and the schedules of keys."""

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem, Search
from schedopt.core.model.verifier import verify
from schedopt.core.solvers.placements import chromosomes
from schedopt.policies.direct.keys import (
    FEATURES,
    ONE_DEVICE,
    PATIENCE,
    PER_ORDER,
    decode,
    drawn,
    order_of,
    rule_keys,
    seen,
    to_decode,
)


def chain_and_twig(scale=1):
    """Op a leads to b and c, b to d; times and bytes are multiples of the scale."""
    builder = GraphBuilder("twig")
    builder.add_op("a", outputs=[4 * scale], runtime=2 * scale)
    builder.add_op("b", inputs=[(0, 0)], outputs=[2 * scale], runtime=3 * scale)
    builder.add_op("c", inputs=[(0, 0)], outputs=[scale], runtime=scale)
    builder.add_op("d", inputs=[(1, 0)], runtime=5 * scale)
    return builder.build()


def test_the_rule_of_the_makespan_is_the_longest_path_to_the_end():
    keys = rule_keys(Problem(chain_and_twig(), "runtime", devices=2))
    np.testing.assert_allclose(keys, [1.0, 0.8, 0.1, 0.5, PATIENCE], rtol=1e-6)


def test_the_rule_of_the_peak_falls_along_the_order_that_keeps_it_low():
    keys = rule_keys(Problem(chain_and_twig(), "memory", devices=2))
    assert keys[0] == 1
    assert sorted(keys[:-1].tolist()) == pytest.approx([0, 1 / 3, 2 / 3, 1])


def typed(graph, scale=1.0, devices=(1, 1)):
    """Return a problem of which op a runs on type x, c and d on y, b on both."""
    kinds = [kind for kind, count in zip("xy", devices, strict=True) for _ in range(count)]
    able = {"a": "x", "b": "xy", "c": "y", "d": "y"}
    times = {
        name: {kind: scale * time if kind in able[name] else None for kind in "xy"}
        for name, time in zip("abcd", graph.runtime.tolist(), strict=True)
    }
    machine = Machine(tuple(Device(str(at), kind) for at, kind in enumerate(kinds)), op_times=times)
    return Problem(graph, "runtime", machine=machine)


def test_units_do_not_matter():
    """A graph a thousand times as large and slow looks the same."""
    one, other = (seen(typed(chain_and_twig(scale))) for scale in (1, 1000))
    np.testing.assert_allclose(one.nodes, other.nodes, atol=1e-6)


def test_which_devices_run_an_op_is_seen():
    """Ops take 2, 3, 1 and 5 us; x runs a, y twice c and d, and b runs on each of three."""
    shares = seen(typed(chain_and_twig(), devices=(1, 2))).nodes[:, FEATURES - 3 :]
    np.testing.assert_allclose(shares[:, 0], [1 / 3, 1, 2 / 3, 2 / 3])
    np.testing.assert_allclose(shares[:, 1], np.array([2, 1, 3, 3]) / 3)  # 2 on one, 3 on three, 6 on two devices


def test_a_graph_without_costs_gives_numbers():
    found = seen(Problem(sketch("a; b; c"), "runtime", devices=2))
    assert np.isfinite(found.nodes).all()
    assert np.isfinite(found.rule).all()


def problem_of(task, seed=0, ops=25, **values):
    return Problem(naive.random_graph(np.random.default_rng([7, seed]), ops)[0], task, devices=3, **values)


def value_of(problem, row):
    search = Search(problem)
    decode(search, row[None])
    return search.best_value


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
def test_rows_cost_what_their_schedules_do_and_the_best_is_offered(task):
    problem = problem_of(task)
    rows = rows_of(problem, 4)
    values = []
    for row in rows:
        search = Search(problem)
        decode(search, row[None])
        totals = verify(problem, search.best)
        assert search.best_value == pytest.approx(problem.value(totals.peak, search.best_simulation.runtime))
        values.append(search.best_value)
    assert len(set(values)) > 1
    together = Search(problem)
    decode(together, rows)
    assert together.best_value == min(values)


def test_a_patience_below_0_keeps_all_ops_on_one_device_where_transfers_take_time():
    problem = problem_of("runtime", latency=1e6)
    rows = rows_of(problem, 3)
    rows[:, -1] = 0.0, -0.1, -0.1
    values = [value_of(problem, row) for row in rows]
    assert values[0] > 1e6 and values[1:] == pytest.approx([problem.graph.runtime.sum()] * 2)
    search = Search(problem)
    decode(search, rows[1:])
    assert search.evaluations == 1
    np.testing.assert_array_equal(search.best.op_order(), order_of(problem.graph, rows[1]))
    free = problem_of("runtime")
    waits = rows.copy()
    waits[:, -1] = 0.0
    assert [value_of(free, row) for row in rows] == [value_of(free, row) for row in waits]


def test_the_first_rows_are_decoded_where_the_budget_is_short():
    problem = problem_of("runtime")
    rows = rows_of(problem, 6)
    search = Search(problem, max_evaluations=2)
    decode(search, rows)
    assert search.evaluations == 2
    assert search.best_value == min(value_of(problem, row) for row in rows[:2])


def test_an_order_for_the_peak_takes_a_bounded_budget():
    problem = problem_of("memory")
    search = Search(problem)
    decode(search, rows_of(problem, 3))
    assert search.evaluations <= 3 * PER_ORDER


def test_a_memory_limit_is_kept_where_the_lazy_decoder_does_not():
    for seed in range(6):
        least = value_of(problem_of("memory", seed), rule_keys(problem_of("memory", seed)))
        search = Search(problem_of("runtime", seed, memory_limit=int(least)))
        decode(search, np.append(rule_keys(problem_of("memory", seed))[:-1], 0.5).astype(np.float32)[None])
        assert search.best_fitness[0] == 0


def test_nothing_is_offered_where_there_was_no_time_to_decode_before_ctrl_c(monkeypatch):
    monkeypatch.setattr(chromosomes, "MOST_DECODED", -1.0)
    problem = Problem(naive.random_graph(np.random.default_rng(3), 12)[0], "runtime", 3)
    search = Search(problem)
    decode(search, rule_keys(problem)[None])
    verify(problem, search.best)
    stopped = Search(problem)
    stopped.interrupt.set()
    decode(stopped, rule_keys(problem)[None])
    assert stopped.best is None  # the run then offers the input order


def test_of_the_rows_to_decode_the_first_is_the_keys_and_the_second_keeps_to_one_device():
    keys = rule_keys(problem_of("runtime", bandwidth=1e6))
    rows = to_decode(keys, 16, np.random.default_rng(0))
    np.testing.assert_array_equal(rows[0], keys)
    assert np.flatnonzero(rows[:, -1] < 0).tolist() == [1] and rows[1, -1] == ONE_DEVICE
    assert len(np.unique(rows[:, 0])) == len(np.unique(rows[:, -1])) == 16
    np.testing.assert_array_equal(to_decode(keys, 1, np.random.default_rng(0)), keys[None])
    assert drawn(keys, 5, np.random.default_rng(0)).dtype == np.float32
