"""Annealing on several devices: its budget, and limits that bind."""

import threading
import time
from dataclasses import replace

import naive
import numpy as np
import pytest
from schedopt import Problem, Search
from schedopt.core.base.arrays import frozen
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import run, solve
from schedopt.core.solvers.placements import annealing, makespan_annealing, peak_annealing


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 64])
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("method", ["annealing", "auto", "brkga:decoder=lazy"])
def test_the_budget_is_spent_exactly_and_seeds_repeat(devices, task, method):
    graph, _ = naive.random_graph(np.random.default_rng(99), 60)
    problem = Problem(graph, task, devices, 150, 1e6, 3.0)
    for evaluations in (1, 6, 777):
        results = [solve(problem, method, evaluations=evaluations, seed=5, jobs=jobs) for jobs in (1, 2)]
        columns = [(r.schedule.items.tolist(), r.schedule.targets.tolist()) for r in results]
        assert columns[0] == columns[1]
        assert results[0].is_repeatable
        # A beam's states count in fractions, so that less than one evaluation may be left.
        spent = results[0].evaluations
        assert evaluations - 1 < spent < evaluations + 1e-6 or results[0].status == "optimal"


@pytest.mark.slow
def test_a_memory_limit_of_ops_that_take_no_time():
    """The excess of a plan has no makespan to be weighed against."""
    graph, _ = naive.random_graph(np.random.default_rng(101), 60)
    idle = replace(graph, runtime=frozen(np.zeros(60), np.float64))
    limit = solve(Problem(idle, "memory", 2), "auto", evaluations=2000).simulation.peak
    kept = solve(Problem(idle, "runtime", 2, limit, 1e6, 3.0), "auto", evaluations=3000)
    assert kept.is_feasible
    assert kept.value > 0, "what is sent takes time"


class _Recorded(Search):
    """A search with days of time, stopped after some evaluations, that remembers what it was offered."""

    def __init__(self, problem, evaluations):
        def watch(search):
            if search.evaluations >= evaluations:
                search.interrupt.set()

        deadline = time.monotonic() + 1e6
        super().__init__(problem, seed=3, deadline=deadline, watcher=Watcher(threading.Event(), watch))
        self.offered = []

    def offer(self, schedule, **how):
        self.offered.append((schedule.items.tolist(), schedule.targets.tolist()))
        return super().offer(schedule, **how)


def test_each_cycle_of_the_peak_is_longer_and_all_but_the_first_are_hotter(monkeypatch):
    walks, kernel = [], peak_annealing.incremental_peak.anneal_lifetimes

    def spy(*arguments):
        *_, scale, _, walk = arguments
        of_bytes = walk.temperature * (1 - scale.base / scale.size)
        walks.append((of_bytes, len(walk.draws)))
        return kernel(*arguments)

    monkeypatch.setattr(peak_annealing.incremental_peak, "anneal_lifetimes", spy)
    monkeypatch.setattr(annealing, "MOVES_PER_OP", 200)
    search = _Recorded(Problem(naive.random_graph(np.random.default_rng(39), 40)[0], "memory", 2), 40000)
    run(search, parse_method("annealing"))
    temperatures, moves = np.array(walks).T
    starts = np.flatnonzero(np.append(True, np.diff(temperatures) > 0))
    lengths = np.add.reduceat(moves, starts)
    assert len(starts) > 3
    assert (temperatures[starts[1:]] > 15 * temperatures[0]).all()
    assert (lengths[2:-1] > 1.2 * lengths[1:-2]).all()


@pytest.mark.parametrize(("latency", "columns"), [(0.0, {5}), (1.0, {6})])
def test_groups_move_where_transfers_take_time(latency, columns, monkeypatch):
    drawn, kernel = set(), makespan_annealing.anneal_sequence

    def spy(*arguments):
        drawn.add(arguments[-1].draws.shape[1])
        return kernel(*arguments)

    monkeypatch.setattr(makespan_annealing, "anneal_sequence", spy)
    graph, _ = naive.random_graph(np.random.default_rng(117), 40)
    solve(Problem(graph, "runtime", 2, latency=latency), "annealing", evaluations=300)
    assert drawn == columns


def test_keys_that_take_long_look_at_the_clock_often(monkeypatch):
    """Else a call of the kernel takes the time in which the memory limit could be kept."""
    most, kernel = [], makespan_annealing.anneal_keys

    def spy(*arguments):
        most.append(len(arguments[-1].draws))
        return kernel(*arguments)

    monkeypatch.setattr(makespan_annealing, "anneal_keys", spy)
    graph, _ = naive.random_graph(np.random.default_rng(119), 40)
    for work, expected in ((1.0, 19), (250_000.0, 2), (1e6, 1)):
        monkeypatch.setattr(makespan_annealing, "decoding_work", lambda problem, work=work: work)
        most.clear()
        solve(Problem(graph, "runtime", 2), "annealing:keys=1", evaluations=400)
        assert max(most) == expected
