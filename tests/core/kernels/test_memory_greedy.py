"""The memory-aware greedy decoder against its plain-Python twin."""

import naive
import pytest
from models.seeds import seeds
from models.sequences import SequenceCase
from schedopt.core.kernels.placements.lazy_keys import decode_for_peak

SEEDS = seeds(25, quick=5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_spread(seed, devices):
    case = SequenceCase(seed, devices, 20)
    keys, z = case.keys(), case.lazy
    if seed % 3 == 0:
        keys[-1] = 0
    decode_for_peak(case.arrays, case.state, z, keys)
    expected = naive.spread(case.plain, naive.as_floats(keys), devices)
    assert (z.order.tolist(), case.state.placement.tolist()) == expected
