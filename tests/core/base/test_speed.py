"""Estimates follow the machine that runs."""

from types import SimpleNamespace

import pytest
from schedopt.core.base import speed


def test_estimates_are_those_of_the_machine_and_grow_with_the_work(monkeypatch):
    def estimate(seconds):
        """Let each look at the clock take so long."""
        speed._seconds_per_number.cache_clear()
        looks = iter(range(10**6))
        monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: seconds * next(looks)))
        return speed.seconds_for(8192.0), speed.seconds_for(0.0)

    assert estimate(1e-3) == (pytest.approx(1e-3), 0.0)
    assert estimate(5e-3) == (pytest.approx(5e-3), 0.0)
    speed._seconds_per_number.cache_clear()
