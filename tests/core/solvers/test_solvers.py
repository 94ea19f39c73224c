"""One contract for every method of the registry, and what each promises beyond it."""

import threading

import naive
import numpy as np
import pytest
from schedopt import Problem, Schedule, ScheduleError, UsageError
from schedopt.core.bounds.bounds import is_met
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.registry import METHODS
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve

pytestmark = pytest.mark.usefixtures("tiny_shipped")

CASES = [
    (method, task, devices)
    for method, entry in METHODS.items()
    for task, devices in (("memory", 1), ("memory", 2), ("runtime", 1), ("runtime", 3))
    if not (entry.memory_on_one_device_only and (task, devices) != ("memory", 1))
    and not (entry.several_devices_only and devices == 1)
    and entry.recomputation != "only"
]
# Small beams and few evaluations, so that these alone would do worse than a good schedule to start from.
WARM_STARTED = [name for name, entry in METHODS.items() if entry.searches and entry.recomputation != "only"] + [
    "approximate-dp:beam-size=1",
    "brkga:decoder=lazy",
    "brkga:chromosomes=4:elites=1:mutants=1:decoder=lazy",
    "cp-sat:hint=0",
    "local-search:patience=1",
]
# On one device any order is as fast as any other, so the makespan ends each search at once.
SEARCHES = [
    case
    for case in CASES
    if case[0]
    in (
        *("random", "brkga", "brkga-tuned", "regal", "gas", "idrs", "annealing", "auto"),
        *("approximate-dp", "depth-first-dp", "local-search"),
    )
    and case[1:] != ("runtime", 1)
]


# What has to search to the end, with no budget of evaluations to stop it, gets graphs of no more ops.
MOST_OPS = {"cp-sat": 6}


def graph_of(seed, ops=12):
    return naive.random_graph(np.random.default_rng([90, seed]), ops)


def budget(method, evaluations):
    return {"evaluations": evaluations} if METHODS[method].counts_evaluations else {}


def steps_of(schedule):
    return list(zip(*(c.tolist() for c in (schedule.items, schedule.sources, schedule.targets)), strict=True))


def checked(result):
    """Verify a result in every respect, and return it."""
    problem, simulation = result.problem, result.simulation
    claims = {"peak_per_device": simulation.peak_per_device.tolist(), "runtime": simulation.runtime}
    totals = verify(problem, result.schedule, **claims, enforce_limit=result.is_feasible)
    assert result.value == problem.value(totals.peak, simulation.runtime)
    assert is_met(result.lower_bound, result.value), "but for rounding"
    if result.status == "optimal":
        assert result.is_feasible
        assert result.gap == pytest.approx(0, abs=1e-9)
    assert result.is_feasible or result.status in ("infeasible", "limit-not-met", "interrupted")
    assert result.found_by in {*METHODS, "initial"}
    return result


@pytest.mark.parametrize(("method", "task", "devices"), CASES)
def test_contract(method, task, devices):
    for seed in range(4):
        graph, _ = graph_of(seed, min([1, 5, 12, 25][seed], MOST_OPS.get(method, 25)))
        problem = Problem(graph, task, devices, None, 2e6 if seed % 2 else None, 0.5 * (seed % 2))
        result = checked(solve(problem, method, seed=seed, **budget(method, 60)))
        assert 0 < result.evaluations <= (60 + 1e-9 if budget(method, 60) else np.inf)
        assert result.is_repeatable
        assert result.method == method
    again = solve(problem, method, seed=seed, **budget(method, 60))
    assert steps_of(again.schedule) == steps_of(result.schedule)
    costs = result.evaluations, result.status, result.lower_bound
    assert (again.evaluations, again.status, again.lower_bound) == costs


@pytest.mark.parametrize(("method", "task", "devices"), CASES)
def test_an_interrupted_method_returns_a_valid_schedule(method, task, devices):
    interrupt = threading.Event()
    interrupt.set()
    result = solve(Problem(graph_of(1)[0], task, devices), method, watcher=Watcher(interrupt))
    assert checked(result).status == "interrupted"
    assert not result.is_repeatable


@pytest.mark.slow
@pytest.mark.parametrize(("method", "task", "devices"), SEARCHES)
def test_an_interrupt_on_the_way_keeps_the_best_so_far(method, task, devices):
    interrupt, best = threading.Event(), []

    def watch(search):
        best.append(search.best_fitness)
        if search.evaluations >= 7:
            interrupt.set()

    problem = Problem(graph_of(1, 60)[0], task, devices, memory_limit=10**6)
    result = checked(solve(problem, method, watcher=Watcher(interrupt, watch), **budget(method, 10**7)))
    assert result.status == "interrupted"
    assert problem.fitness([result.simulation.peak], result.simulation.runtime) <= best[-1]
    assert best == sorted(best, reverse=True)
    assert result.evaluations < 10**4


@pytest.mark.slow
@pytest.mark.parametrize(("method", "task", "devices"), SEARCHES)
def test_a_time_limit_ends_it(method, task, devices):
    result = checked(solve(Problem(graph_of(3, 60)[0], task, devices), method, time_limit=0.2))
    assert result.seconds < 30  # loose on purpose: the machine may be busy
    assert result.status == "optimal" or not result.is_repeatable or method == "approximate-dp"


@pytest.mark.slow
@pytest.mark.parametrize("method", WARM_STARTED)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_search_never_makes_the_schedule_it_starts_from_worse(method, seed):
    """Started from the best of many, on whatever devices, with little left to spend."""
    entry = parse_method(method).method
    graph, plain = graph_of(seed, 14)
    rng = np.random.default_rng(seed)
    order_only = entry.memory_on_one_device_only
    task, devices = ("memory", 1) if order_only else (("memory", "runtime")[seed % 2], 1 + seed % 3)
    devices += devices == 1 and entry.several_devices_only
    problem = Problem(graph, task, devices, None if seed % 4 < 2 else 60, 1e6, 0.25)
    starts = [naive.schedule_of(plain, *naive.random_steps(rng, plain, devices)) for _ in range(40)]
    schedules = [Schedule.from_steps(*columns) for columns in starts]
    prices = [problem.fitness([s.peak], s.runtime) for s in (simulate(problem, schedule) for schedule in schedules)]
    best = min(range(40), key=prices.__getitem__)
    budgets = [{"evaluations": count} for count in (1, 30, 150)] if entry.counts_evaluations else [{"time_limit": 0.05}]
    for limits in budgets:
        result = checked(solve(problem, method, **limits, initial=schedules[best], seed=seed))
        assert problem.fitness([result.simulation.peak], result.simulation.runtime) <= prices[best]
        assert result.found_by != "initial" or steps_of(result.schedule) == steps_of(schedules[best])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["depth-first-dp", "approximate-dp", "order-search", "cp-sat:hint=0"])
@pytest.mark.parametrize("seed", range(6))
def test_an_exact_search_started_from_the_optimum_proves_it(method, seed):
    problem = Problem(graph_of(seed, 8)[0])
    optimum = solve(problem, "depth-first-dp")
    result = checked(solve(problem, method, initial=optimum.schedule))
    assert (result.value, result.status, result.found_by) == (optimum.value, "optimal", "initial")


@pytest.mark.parametrize(
    "method", [n for n, entry in METHODS.items() if not entry.searches and entry.recomputation != "only"]
)
def test_a_method_that_builds_one_schedule_refuses_to_start_from_another(method):
    entry = METHODS[method]
    devices = 2 if entry.several_devices_only else 1
    problem = Problem(graph_of(2)[0], devices=devices, recompute=entry.recomputation == "only")
    order = Schedule.single_device(problem.graph.input_order)
    with pytest.raises(UsageError, match=f"'{method}' builds one schedule and cannot start from another; use auto"):
        solve(problem, method, initial=order)


def test_a_start_that_is_no_schedule_of_the_problem_is_refused():
    graph, _ = graph_of(2)
    with pytest.raises(ScheduleError):
        solve(Problem(graph), "auto", initial=Schedule.single_device(graph.input_order[::-1]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_auto_is_never_worse_than_a_partition_where_transfers_cost(seed):
    graph, _ = graph_of(seed, 40)
    problem = Problem(graph, "runtime", 3, (None, 150)[seed % 2], 1e6, 0.5)
    auto, partition = (solve(problem, method, evaluations=20, seed=seed).simulation for method in ("auto", "gp-dfs"))
    assert problem.fitness([auto.peak], auto.runtime) <= problem.fitness([partition.peak], partition.runtime)


@pytest.mark.parametrize("seed", range(6))
def test_auto_is_never_worse_than_the_input_order(seed):
    graph, _ = graph_of(seed, 15)
    for task, devices, limit in (("memory", 1, None), ("memory", 3, 50), ("runtime", 2, 70), ("runtime", 1, None)):
        problem = Problem(graph, task, devices, limit)
        before = simulate(problem, Schedule.single_device(graph.input_order))
        for evaluations in (1, 4, 40):
            after = solve(problem, "auto", evaluations=evaluations, seed=seed).simulation
            assert problem.fitness([after.peak], after.runtime) <= problem.fitness([before.peak], before.runtime)


def test_methods_refuse_what_they_cannot_solve():
    graph, _ = graph_of(0)
    for problem in (Problem(graph, "runtime"), Problem(graph, devices=2)):
        with pytest.raises(UsageError, match="'approximate-dp' minimises peak memory on one device; for") as refusal:
            solve(problem, "approximate-dp")
        named = str(refusal.value).partition(" use ")[2].replace(" or ", ", ").split(", ")
        assert set(named) == {case[0] for case in CASES if case[1:] == (problem.task, problem.devices)}
    for method in ("regal", "gas", "idrs", "direct"):
        with pytest.raises(UsageError, match=f"'{method}' places ops on several devices; for devices=1 use auto"):
            solve(Problem(graph, "runtime"), method)
    with pytest.raises(UsageError, match=r"does not count evaluations.*time_limit="):
        solve(Problem(graph), "approximate-dp", evaluations=10)


def test_a_methods_own_budget_comes_first():
    problem = Problem(graph_of(4, 30)[0], devices=3)
    assert solve(problem, "random:evaluations=17", evaluations=50).evaluations == 17
    assert solve(problem, "random").evaluations == METHODS["random"].default_evaluations == 100
