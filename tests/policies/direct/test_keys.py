"""Keys of ops: what is seen of a problem, and the schedules of keys."""

import math

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem, Search
from schedopt.core.model.verifier import verify
from schedopt.core.solvers.placements import chromosomes
from schedopt.policies.direct.keys import (
    NODE_FEATURES,
    ONE_DEVICE,
    PATIENCE,
    PER_ORDER,
    decode,
    drawn,
    order_of,
    rule_keys,
    seen,
    to_decode,
    values_of,
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


@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_units_do_not_matter(task):
    """A graph a thousand times as large and slow, with links that slow, looks the same."""
    links = {"bandwidth": 1e6, "latency": 0.5}
    one = seen(Problem(chain_and_twig(), task, devices=3, **links))
    other = seen(Problem(chain_and_twig(1000), task, devices=3, **links | {"latency": 500.0}))
    np.testing.assert_allclose(one.nodes, other.nodes, atol=1e-6)


def test_sending_is_seen_where_transfers_take_time_and_devices_where_they_differ():
    """Ops take 2, 3, 1 and 5 us; sending takes 1 us and 1 per byte, of tensors of 4, 2 and 1 bytes."""
    free, paid = (Problem(chain_and_twig(), "runtime", devices=2, **links) for links in ({}, {"latency": 1.0}))
    sent = np.array([1, 1, 1, 0])
    np.testing.assert_allclose(seen(paid).nodes[:, 16], np.log1p(sent / (11 / 4)), rtol=1e-6)
    assert not any(seen(problem).nodes[:, NODE_FEATURES:].any() for problem in (free, paid))
    times = {name: {"x": 1.0 if name in "ab" else None, "y": None if name == "a" else 1.0} for name in "abcd"}
    for task, bandwidth in (("runtime", math.inf), ("runtime", 1e6), ("memory", math.inf)):
        machine = Machine((Device("0", "x"), Device("1", "y")), bandwidth, op_times=times)
        nodes = seen(Problem(chain_and_twig(), task, machine=machine)).nodes
        assert nodes[:, NODE_FEATURES:].any() == (task == "runtime" and bandwidth == math.inf)
    machine = Machine((Device("0", "x"), Device("1", "y")), op_times=times)
    shares = seen(Problem(chain_and_twig(), "runtime", machine=machine)).nodes[:, NODE_FEATURES:]
    np.testing.assert_allclose(shares[:, 0], [0.5, 1, 0.5, 0.5])
    np.testing.assert_allclose(shares[:, 1], [0.5, 0.25, 1, 1])  # 1, 1 on two devices, and 2 on one


def test_a_graph_without_costs_gives_numbers():
    for task in ("runtime", "memory"):
        found = seen(Problem(sketch("a; b; c"), task, devices=2))
        assert np.isfinite(found.nodes).all()
        assert np.isfinite(found.rule).all()


def test_a_machine_of_equal_devices_is_seen_as_devices_and_others_by_their_means():
    graph = chain_and_twig()
    machines = [Machine.equal(2, 1e6, 0.5), Machine((Device("a"), Device("b", speed=0.5)), 1e6, 0.5)]
    equal, other = (seen(Problem(graph, "runtime", machine=machine)) for machine in machines)
    one = seen(Problem(graph, "runtime", devices=2, bandwidth=1e6, latency=0.5))
    np.testing.assert_array_equal(equal.nodes, one.nodes)
    np.testing.assert_allclose(other.rule, one.rule)
    assert (other.nodes[:3, 16] < one.nodes[:3, 16]).all()


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
