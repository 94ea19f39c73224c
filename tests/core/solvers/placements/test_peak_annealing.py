"""Least peak on several devices: the optimum on small graphs."""

import time

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import GraphBuilder, Problem, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import peak_annealing


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_the_optimum_on_small_graphs(seed):
    rng = np.random.default_rng([114, seed])
    graph, plain = naive.random_graph(rng, 5, aliases=bool(seed % 2))
    _, optimum = naive.best_schedule(plain, 2, "memory")
    result = solve(Problem(graph, "memory", 2), "auto", evaluations=3000, seed=seed)
    assert optimum <= result.value <= 1.1 * optimum
    assert result.lower_bound <= optimum


@pytest.mark.parametrize(("seed", "aliases"), [(0, False), (12, True)])
def test_refuted_peaks_of_one_device_raise_the_bound_here(seed, aliases, monkeypatch):
    """An even share of them, repeatably where evaluations are limited, and of the pieces where there are views."""

    def bound():
        graph, _ = naive.random_graph(np.random.default_rng([115, seed]), 80, edges=1.2, aliases=aliases)
        return solve(Problem(graph, "memory", 2), "annealing", evaluations=400).lower_bound

    with_proofs = bound()
    assert bound() == with_proofs
    monkeypatch.setattr("schedopt.core.bounds.order_proofs.Precedences.bounds", lambda *arguments: iter(()))
    assert bound() < with_proofs


@pytest.mark.parametrize("proof", ["cuts", "refutations"])
def test_what_one_device_needs_is_shared_evenly_with_what_stays(proof, monkeypatch):
    graph, _ = naive.random_graph(np.random.default_rng([115, 6]), 80, edges=1.2, aliases=True)
    bytes_of_steps, stays = 10 * int(graph.tensor_size.sum()) + 1, int(graph.persistent.sum())
    assert stays > 0
    cuts, bounds = ([(bytes_of_steps, None)], []) if proof == "cuts" else ([], [bytes_of_steps])
    monkeypatch.setattr(peak_annealing, "min_cuts", lambda *arguments, **limits: iter(cuts))
    monkeypatch.setattr(peak_annealing.Precedences, "bounds", lambda *arguments: iter(bounds))
    search = Search(Problem(graph, "memory", 3), max_evaluations=400, lower_bound=0)
    search.offer_order(graph.input_order)
    peak_annealing.LeastPeak(search).prove(graph.input_order)
    assert search.lower_bound == -(-(bytes_of_steps + stays) // 3)


def test_sequences_are_priced_whole_again_before_their_moves_are_too_many_to_number(monkeypatch):
    graph, _ = naive.random_graph(np.random.default_rng([118, 0]), 40)

    def found(often):
        priced, kernel = [], peak_annealing.incremental_peak.price_lifetimes
        monkeypatch.setattr(
            peak_annealing.incremental_peak, "price_lifetimes", lambda *given: priced.append(1) or kernel(*given)
        )
        search = Search(Problem(graph, "memory", 3), seed=1, max_evaluations=2000, lower_bound=0)
        search.offer_order(graph.input_order)
        peak_annealing.LeastPeak(search).anneal(0.1, 0.001)
        monkeypatch.setattr(peak_annealing.incremental_peak, "price_lifetimes", kernel)
        assert (len(priced) > 5) == often
        return search.best_value

    usual = found(often=False)
    monkeypatch.setattr(peak_annealing.incremental_peak, "MOST_MOVES", 0)
    assert found(often=True) < 1.2 * usual


@pytest.mark.slow
@pytest.mark.parametrize(("readers", "most"), [(1, 1000), (100, 8)])
def test_dense_graphs_look_at_the_clock_often(readers, most, monkeypatch):
    """There a move reads the uses of what its op reads, which are many."""
    made, kernel = [], peak_annealing.incremental_peak.anneal_lifetimes

    def spy(*arguments):
        made.append(len(arguments[-1].draws))
        return kernel(*arguments)

    monkeypatch.setattr(peak_annealing.incremental_peak, "anneal_lifetimes", spy)
    builder = GraphBuilder("bipartite")
    makers = [builder.add_op(f"maker{at}", outputs=[8]) for at in range(100)]
    for at in range(100):
        builder.add_op(f"reader{at}", inputs=[(makers[(at + other) % 100], 0) for other in range(readers)], outputs=[4])
    graph = builder.build()
    search = Search(Problem(graph, "memory", 2), max_evaluations=20_000, lower_bound=0)
    search.offer_order(graph.input_order)
    peak_annealing.LeastPeak(search).anneal(0.1, 0.001)
    assert max(made) <= most
    assert max(made) > most / 4


def test_ops_are_dealt_out_where_no_beam_ends_in_time(monkeypatch):
    monkeypatch.setattr(peak_annealing._Beams, "send", lambda *arguments: False)
    for name in ("spread", "prove", "try_others", "anneal"):
        monkeypatch.setattr(peak_annealing.LeastPeak, name, lambda *arguments: None)
    graph, _ = naive.random_graph(np.random.default_rng([120, 0]), 60)
    one = solve(Problem(graph), "order-search").value
    assert solve(Problem(graph, "memory", 4), "annealing", evaluations=2000).value < 0.8 * one


def test_a_beam_is_given_up_when_its_share_of_the_time_is_spent():
    graph, _ = naive.random_graph(np.random.default_rng([121, 0]), 60)
    for options, is_found in (({"max_evaluations": 500}, True), ({"deadline": time.monotonic() + 60}, False)):
        search = Search(Problem(graph, "memory", 4), lower_bound=0, **options)
        search.offer_order(graph.input_order)
        peaks = peak_annealing.LeastPeak(search)
        assert peak_annealing._Beams(peaks, graph.input_order, 0.0).send(8, peaks.peak, 0) == is_found
