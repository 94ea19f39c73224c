"""Keys, one per op: their decoders against plain-Python twins, and what annealing leaves."""

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
def test_annealed_keys_cost_what_they_decode_to(seed, kind):
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

    cost = case.cost(aim)
    best, found = np.full(2, np.inf), (np.empty(len(keys) - 1, np.int32), np.empty(len(keys) - 1, np.int32))
    moves = Walk(0.05, draws, best, found, case.places)
    energy = anneal_keys(case.arrays, case.state, case.lazy, keys, aim, case.machine, cost(*decode(keys))[0], moves)
    assert energy == pytest.approx(cost(*decode(keys))[0], rel=1e-9), "what the keys cost at the end"
    if np.isfinite(best).all():
        _, peak, runtime = cost(*(column.tolist() for column in found))
        assert tuple(best) == pytest.approx((max(0, peak - case.limit), peak if aim.is_peak else runtime), rel=1e-9)


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
