"""Whether two orders differ in time: a known answer, noise that cancels out, and what one round says."""

import math

import numpy as np
import pytest
from schedopt.core.programs.runtime import time_difference
from scipy import stats


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_the_paired_t_test(seed):
    random = np.random.default_rng(seed)
    before, after = random.lognormal(3, 0.3, (2, 6))
    found = time_difference(before, after)
    expected = stats.ttest_rel(np.log(after), np.log(before)).confidence_interval(0.95)
    assert found.low == pytest.approx(math.expm1(expected.low))
    assert found.high == pytest.approx(math.expm1(expected.high))
    assert found.low < found.change < found.high


def test_what_slows_a_whole_round_cancels_out():
    """The machine is up to ten times slower in some rounds; the second order takes 10% more in each."""
    rounds = [1.0, 10.0, 3.0, 7.0, 1.5]
    found = time_difference(rounds, (np.array(rounds) * 1.1 * [1, 1.01, 0.99, 1, 1.01]).tolist())
    assert not found.is_noise
    assert found.change == pytest.approx(0.1, abs=0.01)
    assert str(found).startswith("10% slower (95% interval +9% to +1")


def test_a_difference_within_noise_is_said_to_be_none():
    found = time_difference([10, 11, 12, 10], [12, 10, 11, 11])
    assert found.is_noise
    assert str(found).startswith("no difference beyond noise (95% interval -")


def test_one_round_tells_nothing_of_noise():
    found = time_difference([10.0], [20.0])
    assert found.is_noise
    assert (found.change, found.low) == (pytest.approx(1.0), None)
    assert "so noise is unknown" in str(found)


def test_a_round_that_only_one_order_has_is_left_out():
    assert time_difference([10.0, 10.0, 99.0], [5.0, 5.0]) == time_difference([10.0, 10.0], [5.0, 5.0])
