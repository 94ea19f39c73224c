"""Temperatures fall with the evaluations; with the time where these do not fit in it. Excesses weigh more and more."""

from types import SimpleNamespace

import numpy as np
import pytest
from schedopt.core.search.plans import EXCESS_WEIGHT
from schedopt.core.solvers import annealing
from schedopt.core.solvers.annealing import MOST, Annealing, reweighed


def cools(monkeypatch, speed, evaluations=1000, seconds=10.0):
    """Progress at each tenth of a second, of a search that makes `speed` evaluations in one; whether time mattered."""
    clock, found = 0.0, []
    search = SimpleNamespace(evaluations=0, evaluations_left=evaluations, depends_on_time=False)
    search.steered_by_time = lambda: setattr(search, "depends_on_time", True)
    search.seconds_left = lambda: seconds - clock
    monkeypatch.setattr(annealing, "time", SimpleNamespace(monotonic=lambda: clock))
    cool = Annealing(search)
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
    cool = Annealing(search)
    search.evaluations = 75
    assert cool.progress() == 0.25 and not search.depends_on_time


@pytest.mark.parametrize(("seconds", "depends"), [(1.0, True), (np.inf, False), (1e9, False)])
def test_moves_that_the_time_allows_depend_on_it(seconds, depends):
    search = SimpleNamespace(evaluations=0, evaluations_left=1000, depends_on_time=False, seconds_left=lambda: seconds)
    search.steered_by_time = lambda: setattr(search, "depends_on_time", True)
    cool = Annealing(search)
    cool.started -= 1.0
    cool.made = 10
    assert cool.affordable() == (pytest.approx(10, rel=0.01) if depends else 1000)
    assert search.depends_on_time == depends


class _Counted(SimpleNamespace):
    """A search whose evaluations alone are limited."""

    @property
    def evaluations_left(self):
        return self.most - self.evaluations

    def exhausted(self):
        return self.evaluations_left < 1

    def spend(self, evaluations):
        self.evaluations += evaluations


def _search(most, best_fitness=(5, 100.0)):
    rng = np.random.default_rng(0)
    return _Counted(evaluations=0, most=most, seconds_left=lambda: np.inf, rng=rng, best_fitness=best_fitness)


@pytest.mark.parametrize(("share", "moves", "spent"), [(1.0, np.inf, 1000), (0.5, np.inf, 500), (1.0, 300, 300)])
def test_a_cooling_goes_from_hot_to_cold_while_its_share_or_its_moves_last(share, moves, spent):
    search = _search(1000)
    anneal, found = Annealing(search), []
    for temperature in anneal.temperatures(1.0, 0.01, share=share, moves=moves):
        found.append(temperature)
        anneal.spend(anneal.walk(temperature, (50, 5), (), ()))
    assert search.evaluations == anneal.made == spent
    assert found == pytest.approx([0.01 ** (at * 50 / spent) for at in range(spent // 50)])


def test_a_weight_soon_forbids_an_excess_and_is_never_light():
    assert reweighed(0.01, False) == reweighed(0.01, True) == EXCESS_WEIGHT
    assert reweighed(2 * EXCESS_WEIGHT, True) > 2 * EXCESS_WEIGHT > reweighed(2 * EXCESS_WEIGHT, False) > EXCESS_WEIGHT
    assert reweighed(MOST, True) == MOST
    assert reweighed(0.02, True, 10.0, 0.1, 0.0) == pytest.approx(0.2)
    assert reweighed(0.02, False, 10.0, 0.1, 0.0) == pytest.approx(0.002)
