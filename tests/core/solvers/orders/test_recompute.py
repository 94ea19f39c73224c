"""recompute, fixed-order and checkpoint-segments: one contract, and what each promises beyond it."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import schedopt
from models import small_graphs
from models.repeated_runs import random_graph
from models.seeds import seeds
from models.small_graphs import training_step
from schedopt import Problem, Schedule
from schedopt.core.bounds.bounds import memory_bound
from schedopt.core.model.simulator import input_peak
from schedopt.core.model.verifier import verify
from schedopt.core.search.registry import METHODS
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve

REPEATING = [name for name, method in METHODS.items() if method.recomputation != "never"]
SEARCHES = [name for name in REPEATING if METHODS[name].searches and METHODS[name].counts_evaluations]
BUDGET = {"evaluations": 3000}


@pytest.fixture
def branches():
    """Program order takes 26 bytes, the best order 19, no op more than 18; no recomputation keeps 18."""
    return small_graphs.branches(us=(1, 1, 1, 1))


def checked(result):
    """Verify a result in every respect, and return it."""
    problem, simulation = result.problem, result.simulation
    claims = {"peak_per_device": simulation.peak_per_device.tolist(), "runtime": simulation.runtime}
    verify(problem, result.schedule, **claims, enforce_limit=result.is_feasible)
    if result.is_feasible:  # what breaks the limit may take less time than all that keep it
        assert result.value >= result.lower_bound * (1 - 1e-12)
    if result.status == "optimal":
        assert result.is_feasible
        assert result.gap == pytest.approx(0, abs=1e-9)
    if result.is_proven_infeasible:
        assert not result.is_feasible
    return result


@pytest.mark.slow
@pytest.mark.parametrize("method", REPEATING)
@pytest.mark.parametrize("seed", seeds(3, quick=1))
def test_contract(method, seed):
    budget = BUDGET if METHODS[method].counts_evaluations else {"time_limit": 0.5}
    rng = np.random.default_rng([41, seed])
    graph = random_graph(rng, int(rng.integers(3, 20)))
    total, peak = float(graph.runtime.sum()), input_peak(graph)
    limit = max(1, int(graph.persistent.sum()), int(0.8 * peak))
    for problem in (
        Problem(graph, "runtime", memory_limit=limit, recompute=True),
        Problem(graph, recompute=True, runtime_limit=1.2 * max(total, graph.num_ops)),
    ):
        result = checked(solve(problem, method, seed=seed, **budget))
        if problem.task == "memory":
            assert result.is_feasible
            assert result.peak_memory <= peak
        if "evaluations" in budget:
            again = solve(problem, method, seed=seed, **budget)
            assert again.order == result.order
            assert (again.evaluations, again.lower_bound) == (result.evaluations, result.lower_bound)
            assert result.is_repeatable


@pytest.mark.parametrize("method", REPEATING)
def test_a_limit_below_the_peak_of_each_order_is_kept(method):
    graph = training_step(6)
    problem = Problem(graph, "runtime", memory_limit=520, recompute=True)
    result = checked(solve(problem, method, **(BUDGET if METHODS[method].counts_evaluations else {"time_limit": 5})))
    assert result.is_feasible
    assert result.peak_memory <= 520 < solve(Problem(graph), "order-search").lower_bound
    assert len(result.schedule) > graph.num_ops
    assert 0 < result.added_share <= 2 / 3


def test_what_is_found_and_proven_of_a_chain():
    """One layer of six has to go while the loss is made: one run again, which the bound proves."""
    problem = Problem(training_step(6), "runtime", memory_limit=520, recompute=True)
    result = checked(solve(problem, "recompute", **BUDGET))
    assert result.runtime == pytest.approx(result.lower_bound) == 28
    assert result.status == "optimal"


@pytest.mark.slow
def test_small_graphs_are_solved_to_the_end(branches):
    """`auto` leaves to cp-sat what annealing neither reaches nor bounds."""
    problem = Problem(branches, "runtime", memory_limit=18, recompute=True)
    assert not checked(solve(problem, "recompute", **BUDGET)).is_proven_infeasible
    assert checked(solve(problem, time_limit=120)).is_proven_infeasible
    assert not checked(solve(problem, **BUDGET)).is_proven_infeasible, "cp-sat counts no evaluations"


@pytest.mark.parametrize("method", SEARCHES)
def test_an_order_that_keeps_the_limit_runs_nothing_again(method, diamond):
    problem = Problem(diamond, "runtime", memory_limit=input_peak(diamond), recompute=True)
    result = checked(solve(problem, method, **BUDGET))
    assert result.status == "optimal"
    assert len(result.schedule) == diamond.num_ops


def test_another_order_is_preferred_to_running_again(branches):
    problem = Problem(branches, "runtime", memory_limit=20, recompute=True)
    assert input_peak(branches) == 26
    joint, fixed = (checked(solve(problem, method, **BUDGET)) for method in ("recompute", "fixed-order"))
    assert joint.status == "optimal"
    assert joint.added_share == 0
    assert len(joint.schedule) == branches.num_ops
    assert fixed.added_share > 0 or not fixed.is_feasible


def test_fixed_order_keeps_the_order_of_first_runs():
    for seed in range(4):
        graph = random_graph(np.random.default_rng([42, seed]), 20)
        limit = max(int(0.7 * input_peak(graph)), int(graph.persistent.sum()))
        result = solve(Problem(graph, "runtime", memory_limit=limit, recompute=True), "fixed-order", **BUDGET)
        assert result.schedule.first_runs().tolist() == graph.input_order.tolist()


def test_ops_that_may_run_once_do():
    graph = training_step(6)
    once = replace(graph, runs_once=np.ones(graph.num_ops, np.bool_))
    problem = Problem(once, "runtime", memory_limit=520, recompute=True)
    for method in REPEATING:
        result = solve(problem, method, **(BUDGET if METHODS[method].counts_evaluations else {"time_limit": 2}))
        assert len(result.schedule) == graph.num_ops
        assert not result.is_feasible
    result = solve(problem, "recompute", **BUDGET)
    assert result.is_proven_infeasible
    assert any("and earlier results of ops that may not run again" in note for note in result.notes)


def test_a_limit_below_what_an_op_needs_is_proven_infeasible():
    graph = training_step(4)
    result = solve(Problem(graph, "runtime", memory_limit=150, recompute=True), "recompute", **BUDGET)
    assert result.is_proven_infeasible
    assert result.notes == (
        "no recomputation keeps 150 B: op 'layer1' alone needs 200 B, that is 100 B of inputs, 100 B of outputs",
    )


def test_least_peak_within_an_overhead():
    graph = training_step(8)
    peaks = []
    for share in (0.0, 0.1, 0.5):
        total = float(graph.runtime.sum())
        problem = Problem(graph, recompute=True, runtime_limit=(1 + share) * total)
        result = checked(solve(problem, "recompute", **BUDGET))
        assert result.is_feasible
        assert result.added_share <= share + 1e-9
        peaks.append(result.peak_memory)
    assert peaks[0] > peaks[1] > peaks[2] >= memory_bound(problem)


@pytest.mark.slow
def test_graphs_without_runtimes_count_every_run():
    graph = training_step(6, runtime=0.0)
    problem = Problem(graph, "runtime", memory_limit=520, recompute=True)
    result = checked(solve(problem, "recompute", **BUDGET))
    assert (result.runtime, result.is_feasible, result.status) == (0.0, True, "optimal")
    assert result.value == len(result.schedule) == graph.num_ops + round(result.added_share * graph.num_ops)
    assert result.document()["runtime_us"] == 0
    assert result.document()["lower_bound"] == result.lower_bound > 0, "a number of runs"
    limited = Problem(graph, recompute=True, runtime_limit=graph.num_ops + 1)
    result = checked(solve(limited, "recompute", **BUDGET))
    assert len(result.schedule) <= graph.num_ops + 1
    with pytest.raises(schedopt.UsageError, match="must be at least the 13 runs of all ops"):
        Problem(graph, recompute=True, runtime_limit=graph.num_ops - 1)


@pytest.mark.parametrize("method", SEARCHES)
def test_a_schedule_to_start_from_is_never_made_worse(method):
    graph = training_step(6)
    problem = Problem(graph, "runtime", memory_limit=520, recompute=True)
    good = solve(problem, "recompute", **BUDGET)
    result = checked(solve(problem, method, evaluations=20, initial=good.schedule))
    assert result.value <= good.value
    often = Schedule.single_device(np.array([0] * 20 + graph.input_order.tolist()))  # more than there is room for
    assert checked(solve(problem, method, initial=often, **BUDGET)).is_feasible


@pytest.mark.parametrize("method", REPEATING)
def test_an_interrupted_method_returns_a_valid_schedule(method):
    interrupt = threading.Event()
    interrupt.set()
    problem = Problem(training_step(6), "runtime", memory_limit=520, recompute=True)
    assert checked(solve(problem, method, watcher=Watcher(interrupt))).status == "interrupted"


def test_segments_follow_the_phases_or_say_what_they_take_for_them():
    problem = Problem(training_step(9, phases=True), "runtime", memory_limit=700, recompute=True)
    said = solve(problem, "checkpoint-segments")
    found = solve(Problem(training_step(9), "runtime", memory_limit=700, recompute=True), "checkpoint-segments")
    assert said.is_feasible
    assert not said.notes
    assert "is taken to begin after 'loss'" in found.notes[0]
    assert found.order == said.order


@pytest.mark.slow
def test_two_levels_of_segments_reach_what_one_does_not():
    graph = training_step(36)
    one_level = 36**0.5 * 2 * 100
    result = solve(Problem(graph, recompute=True, runtime_limit=1e9), "checkpoint-segments")
    assert result.peak_memory < one_level
    assert max(np.bincount(result.schedule.items)) > 2
