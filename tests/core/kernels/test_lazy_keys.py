"""Keys, one per op: their decoders, prices and annealing against plain-Python twins."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.sequences import KINDS, SequenceCase
from schedopt.core.kernels.metropolis import Walk
from schedopt.core.kernels.placements.lazy_keys import LEAST_MOVED, anneal_keys, decode_for_makespan, decode_for_peak

LARGE = 22


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(25, quick=6))
@pytest.mark.parametrize("kind", KINDS)
def test_annealing_of_keys(seed, kind):
    devices = 1 + seed % 4
    case = SequenceCase(seed, devices, 150 if seed == LARGE else 14)
    assert (case.graph.num_ops > 1 / LEAST_MOVED) == (seed == LARGE)
    aim, keys = case.aim(kind), case.keys()
    draws = case.rng.random((8 if seed == LARGE else 30, 5))

    def decode(values):
        floats = naive.as_floats(values)
        return (
            naive.spread(case.plain, floats, devices)
            if aim.is_peak
            else naive.arrange(case.plain, floats, devices, **case.costs)
        )

    start = case.cost(aim)(*decode(keys))[0]
    walk = naive.Walk(aim, case.cost(aim), start, case.limit)
    expected = naive.anneal_keys(walk, keys.copy(), decode, bool(case.costs), 0.05, draws)
    best, found = np.full(2, np.inf), (np.empty(len(keys) - 1, np.int32), np.empty(len(keys) - 1, np.int32))
    moves = Walk(0.05, draws, best, found, case.places)
    energy = anneal_keys(case.arrays, case.state, case.lazy, keys, aim, case.machine, start, moves)
    assert keys.tolist() == expected.tolist()
    assert energy == pytest.approx(walk.energy, rel=1e-9)
    assert tuple(best) == pytest.approx(walk.best, rel=1e-9)
    assert walk.found is None or tuple(f.tolist() for f in found) == walk.found


@pytest.mark.parametrize("seed", seeds(60, quick=8))
def test_decoders(seed):
    devices = (1, 2, 3, 5)[seed // 2 % 4]
    case = SequenceCase(seed, devices, 20)
    keys, z = case.keys(), case.lazy
    if seed % 4 == 1:
        keys[-1] = 0.0
    decode_for_makespan(case.arrays, case.state, z, keys, case.machine)
    expected = naive.arrange(case.plain, naive.as_floats(keys), devices, **case.costs)
    assert (z.order.tolist(), case.state.placement.tolist()) == expected
    decode_for_peak(case.arrays, case.state, z, keys)
    expected = naive.spread(case.plain, naive.as_floats(keys), devices)
    assert (z.order.tolist(), case.state.placement.tolist()) == expected
