"""The beam over executed sets: when it is exact, and the orders its backpointers lead to (levels: test_set_beam)."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem, Schedule, Search
from schedopt.core.bounds.bounds import lower_bound, memory_bound
from schedopt.core.model.verifier import verify
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.orders.approximate_dp import UNLIMITED, _Backpointers, beam_search, run_beam


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_a_beam_that_cut_nothing_is_exact_and_says_so(seed):
    graph, plain = naive.random_graph(np.random.default_rng([93, seed]), 9)
    optimum = naive.least_peak(plain)
    exact = []
    for size in (1, 2, 5, 20, 1000):
        beam = beam_search(Search(Problem(graph)), size)
        peak = naive.order_peak(plain, beam.chosen.tolist())
        assert peak >= optimum
        assert peak == optimum or not beam.is_exact
        exact.append(beam.is_exact)
        result = solve(Problem(graph), f"approximate-dp:beam-size={size}")
        assert (result.status == "optimal") == (result.value == result.lower_bound)
        assert result.lower_bound == optimum or not beam.is_exact
    assert exact == sorted(exact)
    assert exact[-1]


def test_pruned_backpointers_lead_to_the_same_orders():
    rng = np.random.default_rng(91)
    whole, pruned, width = _Backpointers(), _Backpointers(), 1
    for level in range(30):
        states = int(rng.integers(1, 9))
        parents, ops = rng.integers(0, width, states).astype(np.int32), np.arange(states, dtype=np.int32) + 100 * level
        for back in (whole, pruned):
            back.add(parents, ops)
        width = states
        if level % 4 == 3:
            pruned.prune()
            assert pruned.entries == sum(len(ops) for ops in pruned.ops) <= whole.entries
        for state in range(states):
            assert pruned.order(state).tolist() == whole.order(state).tolist()
    assert pruned.entries < whole.entries


@pytest.mark.parametrize("budget", [0.5, 1, 1.4, 2, 5])
def test_a_stopped_beam_completes_its_best_state_in_input_order(budget):
    """Nothing more is expanded than leaves room to price the order that results."""
    graph, plain = naive.random_graph(np.random.default_rng(96), 20)
    search = Search(Problem(graph), max_evaluations=budget)
    beam = beam_search(search, 50)
    assert not beam.is_exact
    assert search.evaluations <= max(0, budget - 1)
    order = beam.chosen.tolist()
    assert verify(Problem(graph), Schedule.single_device(beam.chosen)).peak == naive.order_peak(plain, order)
    if budget <= 1:
        assert order == graph.input_order.tolist()


@pytest.mark.parametrize("seed", seeds(80, quick=4))
def test_from_either_end_floors_and_cutoffs_keep_the_optimum(seed):
    rng = np.random.default_rng([10, seed])
    graph, plain = naive.random_graph(rng, 1 + seed % 9, edges=rng.choice([0.8, 1.4, 2.2]))
    problem, optimum = Problem(graph), naive.least_peak(plain)
    least = optimum - int(graph.persistent.sum())
    for is_backward in (False, True):
        for floor in (-1, 0, least, least + 10):
            search = Search(problem, seed=seed)
            chosen, *done, _ = run_beam(search, graph.buffers, 10**6, UNLIMITED, is_backward, floor)
            peak = naive.order_peak(plain, chosen[:: -1 if is_backward else 1].tolist())
            assert optimum <= peak <= optimum + max(0, floor - least)
            assert floor > least or done == [True, True]
    assert lower_bound(problem) == memory_bound(problem) <= optimum
    assert beam_search(Search(problem, seed=seed), 10**6, cutoff=optimum).chosen is None
    assert beam_search(Search(problem, seed=seed), 10**6, cutoff=optimum + 1).chosen is not None
