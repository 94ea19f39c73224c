"""Moves that send less, or of what fills full places, are drawn more often; none is excluded."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from naive.cuts import move_weights
from schedopt import Problem
from schedopt.core.base.arrays import frozen
from schedopt.core.kernels.cost_model import machine_arrays
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import makespan_annealing
from schedopt.core.solvers.placements.makespan_annealing import UNIFORM_SHARE, MoveDraws


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
