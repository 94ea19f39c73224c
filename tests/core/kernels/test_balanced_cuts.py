"""The annealing of placements: its counts and costs; and the weights of moves against their plain twin."""

import numpy as np
import pytest
from models.seeds import seeds
from models.sequences import SequenceCase
from naive.cuts import cut_cost, move_weights
from schedopt.core.base.arrays import frozen
from schedopt.core.kernels.metropolis import Walk
from schedopt.core.kernels.placements.balanced_cuts import anneal_cuts, new_cuts, weigh_moves


@pytest.mark.parametrize("devices", [2, 3, 5])
@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_moves_keep_count_and_get_better_in_the_cold(seed, devices):
    case = SequenceCase(seed, devices)
    ops, sizes = case.graph.num_ops, case.graph.tensor_size
    window = case.rng.integers(0, 3, ops).astype(np.int32)
    sending = np.array(0.25 + sizes / 4, np.float64)
    first = case.rng.integers(0, devices, ops).astype(np.int32)
    draws = case.rng.random((30, 3))
    links = frozen(0.25 * (1 - np.eye(devices)), np.float64)
    machine = case.machine._replace(latency=links, per_byte=links)
    cuts = new_cuts(case.arrays, machine, first.copy(), window)
    costs = []
    for temperature, part in ((4.0, draws[:15]), (1e-12, draws[15:])):
        anneal_cuts(case.arrays, machine, cuts, Walk(temperature, part, np.empty(2), (), case.places))
        costs.append(cut_cost(case.plain, cuts.placement.tolist(), window.tolist(), sending.tolist(), devices))
    assert costs[1] <= costs[0] + 1e-9, "nothing worse is taken where it is cold"
    again = new_cuts(case.arrays, machine, cuts.placement.copy(), window)
    assert np.array_equal(cuts.readers, again.readers), "what moved is counted as from nothing"
    assert np.allclose(cuts.load, again.load)


@pytest.mark.parametrize("devices", [2, 3, 5])
@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_moves_that_send_less_weigh_more(seed, devices):
    case = SequenceCase(seed, devices)
    ops = case.graph.num_ops
    sending = np.array(0.25 + case.graph.tensor_size / 4, np.float64)
    placement = case.rng.integers(0, devices, ops).astype(np.int32)
    links = frozen(0.25 * (1 - np.eye(devices)), np.float64)
    machine = case.machine._replace(latency=links, per_byte=links)
    cuts = new_cuts(case.arrays, machine, placement, np.zeros(ops, np.int32))
    cuts.readers[:] = 7  # what was counted before
    weights = np.empty((ops, devices))
    weigh_moves(case.arrays, machine, cuts, 1.5, weights)
    expected = move_weights(case.plain, placement.tolist(), sending.tolist(), devices, 1.5)
    assert np.allclose(weights, expected, rtol=1e-12)
