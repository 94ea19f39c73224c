"""How the annealing of a makespan keeps a memory limit: unchecked moves, and what an excess weighs."""

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Problem
from schedopt.core.kernels.cost_model import NO_STEPS
from schedopt.core.kernels.placements.sequences import run_sequence
from schedopt.core.search.plans import EXCESS_WEIGHT
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.annealing import reweighed
from schedopt.core.solvers.placements import makespan_annealing
from schedopt.core.solvers.placements.makespan_annealing import MakespanAnnealing, UncheckedMoves


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_no_move_is_unchecked_where_its_makespan_is_not_priced_alone(together, monkeypatch):
    """A tensor that 200 ops read, whose copies are sent just in time: there the kernel prices the whole run."""
    following, aim_of_sequence, counts = UncheckedMoves.next, MakespanAnnealing._sequence_aim, []

    def seen(self):
        counts.append(following(self))
        return counts[-1]

    def just_in_time(self, weight):
        aim, energy = aim_of_sequence(self, weight)
        return aim._replace(together=together), energy

    monkeypatch.setattr(UncheckedMoves, "next", seen)
    monkeypatch.setattr(MakespanAnnealing, "_sequence_aim", just_in_time)
    graph = sketch("; ".join(["hub -> 100 us=1", *(f"reader{at}: hub -> 1 us=1" for at in range(200))]), "hub")
    solve(Problem(graph, "runtime", 2, 10**6, 1e6, 3.0), "annealing", evaluations=5000)
    assert any(counts) == together


@pytest.mark.slow
def test_unchecked_moves_that_end_beyond_the_limit_are_taken_back(monkeypatch):
    """Each batch begins where the last one ended or, if that was taken back, where it began."""
    anneal, keeps = makespan_annealing.anneal_sequence, UncheckedMoves.keeps
    starts, ends, kept = [], [], []

    def seen_anneal(graph, state, course, present, aim, machine, energy, walk):
        found = walk.found.copy()
        is_limited = machine.limits.max() < 2**62
        if is_limited:
            starts.append([values.copy() for values in present])
            cost = run_sequence(graph, state, course.due, present.order, aim, machine, np.inf, NO_STEPS)[1]
            assert energy == pytest.approx(cost), "what the present sequence costs"
        energy = anneal(graph, state, course, present, aim, machine, energy, walk)
        if is_limited:
            assert aim.memory or walk.found.tolist() == found.tolist()
            ends.append([values.copy() for values in present])
        return energy

    def seen_keeps(self, is_within):
        kept.append((self.made, keeps(self, is_within)))
        return kept[-1][1]

    monkeypatch.setattr(makespan_annealing, "anneal_sequence", seen_anneal)
    monkeypatch.setattr(UncheckedMoves, "keeps", seen_keeps)
    solve(_limited(100), "annealing", evaluations=20_000)
    assert {is_kept for made, is_kept in kept if made} == {True, False}
    assert any(not _are_same(*both) for both in zip(starts, ends, strict=True))
    goes_on = [
        _are_same(starts[turn + 1], (ends if is_kept else starts)[turn])
        for turn, (_, is_kept) in enumerate(kept[: len(starts) - 1])
    ]
    assert sum(goes_on) >= len(goes_on) - 1  # a second annealing starts from the best


def _are_same(some, others):
    return all((one == other).all() for one, other in zip(some, others, strict=True))


def _limited(seed):
    """A problem of 60 ops on two devices whose limit binds: between the least peak and that of a fast schedule."""
    graph, _ = naive.random_graph(np.random.default_rng(seed), 60)
    fast = solve(Problem(graph, "runtime", 2, None, 1e6, 3.0), "annealing", evaluations=3000)
    least = solve(Problem(graph, "memory", 2), "auto", evaluations=3000)
    assert least.simulation.peak < fast.simulation.peak
    return Problem(graph, "runtime", 2, (fast.simulation.peak + 2 * least.simulation.peak) // 3, 1e6, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101])
def test_a_schedule_that_ignores_the_limit_is_brought_within_it(seed, monkeypatch):
    weights = []

    def seen(weight, is_exceeded, *rates):
        if rates:
            weights.append(weight)
        return reweighed(weight, is_exceeded, *rates)

    monkeypatch.setattr(makespan_annealing, "reweighed", seen)
    result = solve(_limited(seed), "annealing", evaluations=20_000)
    assert result.is_feasible
    assert result.runtime < 0.99 * float(result.problem.graph.runtime.sum())
    assert weights[0] < EXCESS_WEIGHT


def test_a_limit_below_the_bound_is_answered_at_once():
    """The first schedule is as little above it as any can be, so that no time goes into others."""
    graph = sketch("a -> 0 us=3 work=11 keep=13; b: a -> 11 us=3", "g")
    result = solve(Problem(graph, devices=2, memory_limit=21), time_limit=60)
    assert (result.status, result.peak_memory, result.evaluations) == ("infeasible", 24, 1)
