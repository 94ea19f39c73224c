"""Sets of devices as bits, up to the last."""

import numpy as np
import pytest
from schedopt.core.kernels.bits import bit_of, has_bit


@pytest.mark.parametrize("members", [set(), {0}, {63}, {0, 31, 32, 62}, set(range(64))])
def test_a_set_has_its_members(members):
    bits = np.uint64(0)
    for device in members:
        bits |= bit_of(device)
    assert {device for device in range(64) if has_bit(bits, device)} == members
