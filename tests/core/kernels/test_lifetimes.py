"""The peak by lifetimes, and its annealing, against plain-Python twins."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem
from schedopt.core.kernels.cost_model import machine_arrays
from schedopt.core.kernels.placements.incremental_peak import Scale, find_transfers, new_lifetimes, price_lifetimes
from schedopt.core.kernels.placements.sequences import Sequence, places_of

EVEN = np.empty(0)
SEEDS = seeds(40, quick=8)


class Case:
    """A random graph, order, placement and transfers; of half of them every transfer is late."""

    def __init__(self, seed, devices, most_ops=12):
        self.rng = rng = np.random.default_rng([110, seed, devices])
        self.graph, self.plain = naive.random_graph(rng, int(rng.integers(1, most_ops)))
        self.devices = devices
        self.order = naive.random_order(rng, self.plain)
        self.placement = rng.integers(0, devices, self.graph.num_ops).tolist()
        self.late = rng.random((self.graph.num_tensors, devices)) < 0.5
        if seed % 2:
            self.late[:] = True
        problem = Problem(self.graph, "memory", devices)
        self.arrays, self.machine = machine_arrays(problem)
        self.places = places_of(problem.rules.group, problem.rules.allowed)

    def scratch(self):
        order, position = np.array(self.order, np.int32), np.empty(len(self.order), np.int32)
        position[order] = np.arange(len(order))
        placement = np.array(self.placement, np.int32)
        lifetimes = new_lifetimes(self.arrays, self.machine)
        return self.arrays, lifetimes, Sequence(order, position, placement, self.late.ravel().copy())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("base", [0.0, 20.0])
def test_lifetimes(seed, base):
    devices = (1, 2, 3, 5)[seed // 2 % 4]
    case, scale = Case(seed, devices), Scale(base, 50.0, EVEN)
    expected = naive.lifetimes_cost(case.plain, case.order, case.placement, case.late, devices, scale)
    energy, peak = price_lifetimes(*case.scratch(), scale)
    assert energy == pytest.approx(expected[0], rel=1e-9)
    assert peak == expected[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_transfers_are_listed(seed):
    devices = 1 + seed // 2 % 3
    case = Case(seed, devices)
    found = np.empty((3, case.graph.num_tensors * devices), np.int32)
    arrays, lifetimes, sequence = case.scratch()
    cells, early, late = found[:, : find_transfers(arrays, lifetimes, sequence, *found)]
    after = np.where(sequence.late[cells] | (late < early), late, early)
    found = {(*divmod(c, devices), a) for c, a in zip(cells.tolist(), after.tolist(), strict=True)}
    sent = naive.sent_after(case.plain, case.order, case.placement, case.late)
    assert found == {(case.plain.index[t], target, place) for (t, target), place in sent.items()}
