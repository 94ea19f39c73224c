"""Temperatures fall with the evaluations; with the time where these do not fit in it."""

from types import SimpleNamespace

import numpy as np
import pytest
from schedopt.core.solvers.placements import cooling
from schedopt.core.solvers.placements.cooling import Cooling


def cools(monkeypatch, speed, evaluations=1000, seconds=10.0):
    """Progress at each tenth of a second, of a search that makes `speed` evaluations in one; whether time mattered."""
    clock, found = 0.0, []
    search = SimpleNamespace(evaluations=0, evaluations_left=evaluations, depends_on_time=False)
    search.steered_by_time = lambda: setattr(search, "depends_on_time", True)
    search.seconds_left = lambda: seconds - clock
    monkeypatch.setattr(cooling, "time", SimpleNamespace(monotonic=lambda: clock))
    cool = Cooling(search)
    for clock in np.linspace(0, seconds, 101).tolist():
        search.evaluations = min(evaluations, clock * speed)
        found.append(cool.progress())
    return np.array(found), search.depends_on_time


@pytest.mark.parametrize("speed", [101, 150, 5000])
def test_evaluations_that_fit_in_the_time_do_not_depend_on_it(monkeypatch, speed):
    progress, depends_on_time = cools(monkeypatch, speed)
    assert not depends_on_time
    assert progress == pytest.approx(np.minimum(1, np.linspace(0, 10, 101) * speed / 1000))


@pytest.mark.parametrize("speed", [0, 1, 50, 90])
def test_evaluations_that_do_not_fit_end_with_the_time(monkeypatch, speed):
    progress, depends_on_time = cools(monkeypatch, speed)
    assert depends_on_time
    assert progress[-1] == 1 and (np.diff(progress) >= 0).all()
    assert progress[20] == pytest.approx(speed * 2 / 1000)  # the first fifth of the time is that of the evaluations


def test_unlimited_evaluations_and_unlimited_time(monkeypatch):
    by_time, depends_on_time = cools(monkeypatch, 50, evaluations=np.inf)
    assert depends_on_time and by_time == pytest.approx(np.linspace(0, 1, 101))
    search = SimpleNamespace(evaluations=50, evaluations_left=100, depends_on_time=False, seconds_left=lambda: np.inf)
    cool = Cooling(search)
    search.evaluations = 75
    assert cool.progress() == 0.25 and not search.depends_on_time
