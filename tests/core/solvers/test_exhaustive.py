"""Exhaustive search on tiny graphs against everything that claims an optimum or a bound."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem, Schedule, Search
from schedopt.core.bounds.bounds import lower_bound, memory_bound, min_cut_bound
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.solvers.orders.approximate_dp import UNLIMITED, beam_search, run_beam


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
