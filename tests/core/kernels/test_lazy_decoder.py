"""The lazy decoder against its plain-Python twin."""

import naive
import pytest
from models.seeds import seeds
from models.sequences import SequenceCase
from schedopt.core.kernels.placements.lazy_keys import decode_for_makespan


@pytest.mark.parametrize("seed", seeds(50, quick=4))
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_arrange(seed, devices):
    case = SequenceCase(seed, devices, 20)
    keys = case.keys()
    if seed % 4 == 1:
        keys[-1] = 0.0
    decode_for_makespan(case.arrays, case.state, case.lazy, keys, case.machine)
    order, placement = naive.arrange(case.plain, naive.as_floats(keys), devices, **case.costs)
    assert case.lazy.order.tolist() == order
    assert case.state.placement.tolist() == placement
