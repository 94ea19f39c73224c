"""CP-SAT: its optimum is that of trying everything, in every setting; bounds stay valid when sizes are rounded."""

import threading

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Problem
from schedopt.core.model.verifier import verify
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.exact import variables

UNAIDED = "cp-sat:hint=0"


def solved(problem, **options):
    result = solve(problem, UNAIDED, time_limit=120, **options)
    verify(problem, result.schedule, enforce_limit=result.is_feasible)
    return result, problem.fitness([result.simulation.peak], result.simulation.runtime)


@pytest.mark.parametrize("seed", seeds(30, quick=12))  # each combination of the below once
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_the_optimum_is_that_of_trying_everything(seed, task):
    """One to three devices, every kind of transfer cost, and limits from too tight to loose."""
    rng = np.random.default_rng([150, seed])
    devices = 1 + seed % 3
    ops = {1: 6, 2: 4, 3: 3}[devices] - seed // 3 % 2
    graph, plain = naive.random_graph(rng, ops, edges=1.8, whole_runtimes=True)
    bandwidth, latency = ((np.inf, 0.0), (1e6, 0.5), (4e6, 0.0))[seed % 5 % 3]
    costs = {"bandwidth": bandwidth, "latency": latency}
    least = naive.best_schedule(plain, devices, "memory", **costs)[1]
    limit = (None, max(1, least - 2), max(1, least), least + 3, least + 9)[seed // 2 % 5]
    expected = naive.best_schedule(plain, devices, task, np.inf if limit is None else limit, **costs)
    problem = Problem(graph, task, devices, limit, None if bandwidth == np.inf else bandwidth, latency)
    result, fitness = solved(problem, seed=seed)
    assert fitness[0] == expected[0]
    assert result.lower_bound <= expected[1] * (1 + 1e-12)
    if expected[0]:
        assert result.status == "infeasible"
    else:
        assert result.value == pytest.approx(expected[1], rel=1e-12)
        assert result.status == "optimal"
    assert result.is_repeatable


@pytest.mark.slow
def test_what_makes_nothing_runs_before_the_end():
    """An op with workspace alone runs while what is kept to the end is there."""
    graph = sketch("; ".join(f"x{at} -> 100f us=1; w{at}: !x{at} -> us=1 work=50" for at in range(3)), "sinks")
    peak, _ = solved(Problem(graph, "memory", 2))
    assert (peak.value, peak.status) == (200, "optimal")
    limited, _ = solved(Problem(graph, "runtime", 2, memory_limit=340))
    assert (limited.value, limited.status) == (3.0, "optimal")
    assert solved(Problem(graph, "memory"))[0].value == 350


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_runtimes_that_are_whole_in_no_unit_are_within_the_rounding(seed):
    rng = np.random.default_rng([151, seed])
    graph, plain = naive.random_graph(rng, 4, edges=1.8)
    expected = naive.best_schedule(plain, 2, "runtime", latency=1 / 3)[1]
    result, _ = solved(Problem(graph, "runtime", 2, latency=1 / 3))
    assert expected * (1 - 1e-12) <= result.value <= expected * (1 + 1e-5)
    assert expected * (1 - 1e-5) <= result.lower_bound <= expected * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("devices", [1, 2])
def test_sizes_too_large_for_the_solver_are_rounded_and_the_bound_holds(seed, devices, monkeypatch):
    monkeypatch.setattr(variables, "LARGEST_MEMORY", 64)
    graph, plain = naive.random_graph(np.random.default_rng([152, seed]), 6 - devices)
    optimum = naive.best_schedule(plain, devices, "memory")[1]
    result, _ = solved(Problem(graph, "memory", devices))
    assert result.lower_bound <= optimum <= result.value


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_sizes_of_gigabytes_without_a_common_divisor(seed):
    rng = np.random.default_rng([153, seed])
    spec = naive.random_spec(rng, 5)
    for op in spec:
        op["outputs"] = [int(size * 2**30 + rng.integers(0, 2**20)) for size in op["outputs"]]
    devices = 1 + seed % 2
    optimum = naive.best_schedule(naive.plain_of_spec(spec), devices, "memory")[1]
    result, _ = solved(Problem(naive.build(spec), "memory", devices))
    assert (result.value, result.lower_bound) == (optimum, optimum)


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_number_of_workers_does_not_matter(jobs):
    problem = Problem(naive.random_graph(np.random.default_rng(154), 6)[0], "memory", 2)
    one, other = solve(problem, UNAIDED, jobs=1), solve(problem, UNAIDED, jobs=jobs)
    assert one.schedule.items.tolist() == other.schedule.items.tolist()
    assert one.schedule.targets.tolist() == other.schedule.targets.tolist()
    assert (one.value, one.status) == (other.value, "optimal")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, quick=1))
def test_it_goes_on_from_what_auto_finds(seed):
    """On a graph too large to get far in no time, the hint is what makes the result good."""
    graph, _ = naive.random_graph(np.random.default_rng([155, seed]), 60, edges=2.0)
    problem = Problem(graph, ("memory", "runtime")[seed % 2], 2, (None, 150)[seed // 2], 1e6, 0.5)
    unaided, hinted = (solve(problem, f"cp-sat:hint={hint}", time_limit=0.3) for hint in (0, 3000))
    values = [problem.fitness([result.simulation.peak], result.simulation.runtime) for result in (hinted, unaided)]
    assert values[0] < values[1]
    assert hinted.method == "cp-sat"


@pytest.mark.slow
def test_an_interrupt_ends_it_with_the_best_so_far():
    graph, _ = naive.random_graph(np.random.default_rng(156), 60, edges=2.0)
    interrupt = threading.Event()
    timer = threading.Timer(0.5, interrupt.set)
    timer.start()
    result = solve(Problem(graph, "memory", 2), UNAIDED, watcher=Watcher(interrupt))
    timer.cancel()
    assert result.status == "interrupted"
    verify(result.problem, result.schedule)


@pytest.mark.slow
def test_a_run_that_its_time_ends_is_not_repeatable():
    graph, _ = naive.random_graph(np.random.default_rng(5), 60, edges=2.0)
    ends = [solve(Problem(graph, "runtime", 3), "cp-sat:hint=0", time_limit=limit) for limit in (0.4, 0.8)]
    assert [(result.status, result.is_repeatable) for result in ends] == [("feasible", False)] * 2
