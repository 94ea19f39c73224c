"""Sorting the starts and ends of steps, against numpy's stable sort."""

import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.placements.moments import sort_moments


@pytest.mark.parametrize("seed", seeds(300, quick=4))
def test_places_are_in_the_order_of_a_stable_sort(seed):
    """Moments of one row never fall, but for those of the last; equal ones are frequent."""
    rng = np.random.default_rng(seed)
    rows, steps, per_step = int(rng.integers(1, 5)), int(rng.integers(1, 40)), int(rng.integers(1, 3))
    row = rng.integers(0, rows, steps).astype(np.int32)
    moments = rng.integers(0, int(rng.choice([2, 10, 1000])), steps * per_step).astype(float)
    for each in range(rows - 1):
        its = np.repeat(row == each, per_step)
        moments[its] = np.sort(moments[its])
    order, merged = np.full(len(moments) + 3, -1, np.int32), np.empty(len(moments), np.int32)
    sort_moments(moments, order, merged, np.empty(rows + 1, np.int32), row)
    assert order[: len(moments)].tolist() == np.argsort(moments, kind="stable").tolist()
