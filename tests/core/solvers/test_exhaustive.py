"""Exhaustive search on tiny graphs against everything that claims an optimum or a bound."""

import itertools

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.bounds import lower_bound, memory_bound, min_cut_bound
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.search.search import Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.orders.approximate_dp import UNLIMITED, beam_search, run_beam
from schedopt.core.solvers.placements.chromosomes import Chromosomes


@pytest.mark.parametrize("seed", seeds(80, quick=4))
def test_one_device_optimum(seed):
    """Exact DP, simulator, verifier and trying every order give one number; no bound is above it."""
    rng = np.random.default_rng([10, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 9, edges=rng.choice([0.8, 1.4, 2.2]))
    optimum = naive.least_peak(plain)
    problem = Problem(graph)

    beam = beam_search(Search(problem, seed=seed), 10**6)
    assert beam.is_exact
    order = beam.chosen.tolist()
    assert naive.order_peak(plain, order) == optimum
    schedule = Schedule.single_device(beam.chosen)
    simulation = simulate(problem, schedule)
    assert simulation.peak == optimum
    assert verify(problem, schedule).peak == optimum

    for is_backward in (False, True):
        for floor in (-1, 0, optimum - int(graph.persistent.sum())):
            chosen, *done, _ = run_beam(Search(problem, seed=seed), graph.buffers, 10**6, UNLIMITED, is_backward, floor)
            assert done == [True, True]
            assert naive.order_peak(plain, chosen[:: -1 if is_backward else 1].tolist()) == optimum
        loose = optimum + 10 - int(graph.persistent.sum())
        chosen, *_ = run_beam(Search(problem, seed=seed), graph.buffers, 10**6, UNLIMITED, is_backward, loose)
        assert naive.order_peak(plain, chosen[:: -1 if is_backward else 1].tolist()) <= optimum + 10

    assert lower_bound(problem) == memory_bound(problem) <= optimum
    assert min_cut_bound(Problem(graph), beam.chosen) <= optimum
    assert beam_search(Search(problem, seed=seed), 10**6, cutoff=optimum).chosen is None
    assert beam_search(Search(problem, seed=seed), 10**6, cutoff=optimum + 1).chosen is not None


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_exact_methods_prove_the_optimum(seed):
    rng = np.random.default_rng([11, seed])
    graph, plain = naive.random_graph(rng, 3 + seed % 7)
    optimum = naive.least_peak(plain)
    for method, options in (("approximate-dp:beam_size=100000", {}), ("auto", {"time_limit": 30.0})):
        result = solve(Problem(graph), method, seed=seed, **options)
        assert (result.value, result.lower_bound, result.status) == (optimum, optimum, "optimal")
        assert result.is_repeatable


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(80, quick=4))
@pytest.mark.parametrize("task", ["memory", "runtime"])
def test_what_auto_calls_optimal_on_several_devices(seed, task):
    """Every kind of transfer cost, and limits from too tight to loose; bounds are valid in any case."""
    rng = np.random.default_rng([15, seed])
    devices = 2 + seed % 2
    graph, plain = naive.random_graph(rng, 5 - devices % 2, edges=float(rng.choice([1.0, 1.8])))
    bandwidth, latency = ((np.inf, 0.0), (1e6, 0.5), (4e6, 0.0))[seed % 3]
    limit = None if seed % 4 < 2 else 1 + sum(plain.own) // devices
    costs = {"bandwidth": bandwidth, "latency": latency}
    expected = naive.best_schedule(plain, devices, task, np.inf if limit is None else limit, **costs)
    problem = Problem(graph, task, devices, limit, None if bandwidth == np.inf else bandwidth, latency)
    result = solve(problem, "auto", evaluations=300, seed=seed)
    assert result.lower_bound <= expected[1] * (1 + 1e-12)
    least = expected[0], expected[1] * (1 - 1e-9)
    assert problem.fitness([result.simulation.peak], result.simulation.runtime) >= least
    if result.status == "optimal":
        assert (expected[0], result.value) == (0, pytest.approx(expected[1], rel=1e-12))


def best_of_all(plain, devices, bandwidth, latency):
    """Least peak and least makespan over all placements and orders (up to 300 orders per placement)."""
    peaks, runtimes = [], []
    for placement in naive.all_placements(len(plain.ops), devices):
        for steps in itertools.islice(naive.all_schedules(plain, placement), 300):
            cost = naive.replay(plain, placement, steps, devices, bandwidth=bandwidth, latency=latency)
            peaks.append((max(cost.peaks), placement, steps))
            runtimes.append((max(cost.clocks), placement, steps))
    key = lambda entry: entry[0]  # noqa: E731
    return min(peaks, key=key), min(runtimes, key=key)


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_two_and_three_device_optimum(seed):
    """All placements and orders: no bound is above, no method below, and random keys can write the best down."""
    rng = np.random.default_rng([14, seed])
    devices = 3 if seed % 4 == 0 else 2
    graph, plain = naive.random_graph(rng, 3 if devices == 3 else 2 + seed % 3, edges=1.8)
    bandwidth, latency = (1e6, 0.5) if seed % 2 else (np.inf, 0.0)
    best = best_of_all(plain, devices, bandwidth, latency)
    for task, (value, placement, steps) in zip(("memory", "runtime"), best, strict=True):
        problem = Problem(graph, task, devices, None, None if bandwidth == np.inf else bandwidth, latency)
        assert lower_bound(problem) <= value * (1 + 1e-12)
        result = solve(problem, "brkga", evaluations=150, seed=seed)
        assert result.value >= value * (1 - 1e-12)
        assert result.lower_bound <= value * (1 + 1e-12)

        schedule = Schedule.from_steps(*naive.schedule_of(plain, placement, steps))
        chromosomes = Chromosomes(Search(problem))
        row = chromosomes.encode(schedule)[None]
        assert chromosomes.price(row)[0, 1] == pytest.approx(value, rel=1e-9)
