"""Moves that send less, or of what fills full places, are drawn more often; none is excluded."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from naive.cuts import move_weights
from schedopt import Problem
from schedopt.core.base.arrays import frozen
from schedopt.core.kernels.cost_model import machine_arrays
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.placements.incremental_peak import new_lifetimes
from schedopt.core.kernels.placements.sequences import Sequence
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import makespan_annealing, peak_annealing
from schedopt.core.solvers.placements.makespan_annealing import UNIFORM_SHARE, MoveDraws
from schedopt.core.solvers.placements.peak_annealing import PeakDraws


def _move_draws(problem, placement):
    return MoveDraws(*machine_arrays(problem), problem.rules.allowed, placement)


def _drawn(draws, placement, devices):
    """How often each op goes to each device, or stays on its own, as `anneal_sequence` reads draws."""
    op = (draws[:, 0] * len(placement)).astype(int)
    device = placement[op].copy()
    leaves = draws[:, 1] < 0.5
    device[leaves] = ((device + 1 + (draws[:, 2] * (devices - 1)).astype(int)) % devices)[leaves]
    counts = np.zeros((len(placement), devices))
    np.add.at(counts, (op, device), 1)
    return counts / len(draws)


@pytest.mark.parametrize("devices", [2, 4])
def test_ops_and_devices_are_drawn_by_weight(devices):
    rng = np.random.default_rng(5)
    graph, plain = naive.random_graph(rng, 8)
    problem = Problem(graph, "runtime", devices, bandwidth=1e6, latency=0.5)
    placement = rng.integers(0, devices, 8).astype(np.int32)
    draws = rng.random((200_000, 5))
    before = draws.copy()
    _move_draws(problem, placement).rewrite(draws)
    usual = np.full((8, devices), 1 / 16 / (devices - 1))
    usual[np.arange(8), placement] = 1 / 16
    sending = (0.5 + graph.tensor_size * problem.machine.mean_link[1]).tolist()
    weights = np.array(move_weights(plain, placement.tolist(), sending, devices, float(graph.runtime.mean())))
    expected = UNIFORM_SHARE * usual + (1 - UNIFORM_SHARE) * usual * weights / (usual * weights).sum()
    found = _drawn(draws, placement, devices)
    assert found == pytest.approx(expected, abs=5 * np.sqrt(expected.max() / 200_000))
    assert found.min() > 0
    assert np.array_equal(draws[:, 3:], before[:, 3:]), "places, and whether a worse plan is taken"
    assert 0 <= draws.min() <= draws.max() < 1
    leaves = draws[draws[:, 1] < 0.5, 1]
    assert (leaves < 0.1).mean() == pytest.approx(0.2, abs=0.01), "as many as ever keep their place"


def test_weights_are_found_anew_once_all_ops_could_have_moved():
    graph, _ = naive.random_graph(np.random.default_rng(6), 20)
    placement = np.zeros(20, np.int32)
    problem = Problem(graph, "runtime", 2, latency=1000.0)
    drawn = _move_draws(problem, placement)
    draws = np.random.default_rng(7).random((10, 5))
    drawn.rewrite(draws.copy())
    first = drawn.sums
    placement[:10] = 1
    drawn.rewrite(draws.copy())
    assert drawn.sums is first
    drawn.rewrite(draws.copy())
    assert drawn.sums is not first


@pytest.mark.parametrize("runtime", [0.0, 1e-300])
@pytest.mark.parametrize("costs", [{"bandwidth": 1.0}, {"latency": 1e-300}, {"bandwidth": 1e-6, "latency": 1e9}])
def test_weights_are_finite_whatever_things_take(runtime, costs):
    graph, _ = naive.random_graph(np.random.default_rng(8), 20)
    graph = replace(graph, runtime=frozen(np.full(20, runtime), np.float64))
    placement = np.random.default_rng(9).integers(0, 3, 20).astype(np.int32)
    drawn = _move_draws(Problem(graph, "runtime", 3, **costs), placement)
    drawn.rewrite(np.random.default_rng(10).random((50, 5)))
    assert np.isfinite(drawn.sums).all()
    assert (np.diff(drawn.sums) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "is_used"),
    [
        ({}, False),
        ({"latency": 1.0}, True),
        ({"bandwidth": 1e6}, True),
        ({"latency": 1.0, "memory_limit": 10**9}, True),
        ({"memory_limit": 10**9}, False),
    ],
)
def test_moves_are_weighed_where_transfers_take_time(settings, is_used, monkeypatch):
    sizes = []

    class Seen(MoveDraws):
        def rewrite(self, draws):
            sizes.append(len(draws))
            super().rewrite(draws)

    monkeypatch.setattr(makespan_annealing, "MoveDraws", Seen)
    graph, _ = naive.random_graph(np.random.default_rng(8), 40)
    solve(Problem(graph, "runtime", 3, **settings), "annealing", evaluations=20_000)
    assert bool(sizes) == is_used
    assert max(sizes, default=0) <= 40, "weights would be of another placement"


def _held(graph, order, tensor):
    """The places at which a tensor is held on one device or another: from where it is made to where it is read last."""
    place = {op: at for at, op in enumerate(order)}
    first = next(place[op] for op in order if tensor in graph.outputs(op))
    readers = [op for op in order if tensor in graph.inputs[1][graph.inputs[0][op] : graph.inputs[0][op + 1]]]
    last = len(order) - 1 if graph.is_final[tensor] else max([first, *map(place.get, readers)])
    views = [view for view in range(graph.num_tensors) if graph.alias_of[view] == tensor]
    return range(first, max([last, *(_held(graph, order, view)[-1] for view in views)]) + 1)


def _viewed(graph, tensor):
    """What a tensor is a view of, itself if of nothing."""
    return tensor if graph.alias_of[tensor] < 0 else _viewed(graph, graph.alias_of[tensor])


@pytest.mark.parametrize("seed", range(4))
def test_ops_that_fill_full_places_are_drawn_more_often(seed):
    """By the root of bytes times penalties, of what an op makes and reads and of its own; the others uniformly."""
    rng = np.random.default_rng([11, seed])
    graph, plain = naive.random_graph(rng, 12)
    arrays, order = graph_arrays(graph, 2), naive.random_order(rng, plain)
    position = np.empty(12, np.int32)
    position[order] = np.arange(12)
    sequence = Sequence(np.array(order, np.int32), position, rng.integers(0, 2, 12).astype(np.int32), np.empty(0, bool))
    lifetimes = new_lifetimes(*machine_arrays(Problem(graph, "memory", 2)))
    penalty = lifetimes.present.penalty
    penalty[:] = rng.random(12)
    filled = [size * sum(penalty[_held(graph, order, n)]) for n, size in enumerate(graph.tensor_size.tolist())]
    weights = np.zeros(12)
    for op in range(12):
        touched = [*graph.outputs(op), *graph.inputs[1][slice(*graph.inputs[0][op : op + 2])]]
        own = graph.persistent[op] * penalty.sum() + graph.workspace[op] * penalty[order.index(op)]
        weights[op] = np.sqrt(sum(filled[_viewed(graph, tensor)] for tensor in touched) + own)
    draws = rng.random((200_000, 6))
    before = draws.copy()
    PeakDraws(graph, arrays, lifetimes, sequence).rewrite(draws, 0.8)
    found = np.bincount((draws[:, 0] * 12).astype(int), minlength=12) / 200_000
    assert found == pytest.approx(0.8 * weights / weights.sum() + 0.2 / 12, abs=5 * np.sqrt(0.5 / 200_000))
    assert np.array_equal(draws[:, 1:], before[:, 1:])


def test_moves_for_the_peak_are_aimed_less_and_less(monkeypatch):
    shares, rewrite = [], PeakDraws.rewrite

    def spy(self, draws, share):
        if len(self.penalty) == 40:
            shares.append(share)
        rewrite(self, draws, share)

    monkeypatch.setattr(PeakDraws, "rewrite", spy)
    graph, _ = naive.random_graph(np.random.default_rng(8), 40)
    solve(Problem(graph, "memory", 2), "annealing", evaluations=40_000)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(peak_annealing.AIMED)
    assert 0 <= shares[-1] < 0.1 * peak_annealing.AIMED
