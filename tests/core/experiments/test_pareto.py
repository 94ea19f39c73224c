"""The front of peak against time: each point verified, none beaten, bounds that hold of all, resumed and stopped."""

import threading
from contextlib import closing
from dataclasses import replace
from itertools import permutations

import naive
import numpy as np
import pytest
import schedopt
from models.small_graphs import chain_of, diamond, trade
from schedopt import UsageError
from schedopt.core.experiments.pareto_front import LimitBound, front_points
from schedopt.core.experiments.pareto_search import Sweep, SweepFile
from schedopt.core.search.options import ParetoOptions

QUICK = ParetoOptions(points=4, evaluations=300)


def kept_or_made_again(name="kept", runtimes=(1.0, 5.0, 5.0, 5.0, 5.0)):
    """A large tensor that the first and the last op need, while the third needs all the room there is.

    Kept, the peak is 4096 + 1024 + 8192 bytes; made again, for as long as the first op runs, it is 1024 + 8192.
    """
    return trade(name, runtimes)


def values(front):
    """Return peak, time and the bounds on both of each point, times to some decimals."""
    rows = [(point.peak_memory, point.time, point.time_bound, point.peak_bound) for point in front.points]
    return [tuple(round(value, 9) for value in row) for row in rows]


@pytest.mark.slow
def test_both_ends_by_hand():
    front = Sweep(kept_or_made_again(), QUICK).execute()
    assert values(front) == [(13312, 21.0, 21.0, 13312), (9216, 22.0, 22.0, 9216)]
    assert [point.added_runs for point in front.points] == [0, 1]
    assert [100 * front.added_share(point) for point in front.points] == [0, pytest.approx(100 / 21)]
    assert front.least_peak == 9216
    assert front.is_complete


def test_one_schedule_that_has_both():
    front = Sweep(chain_of(5), QUICK).execute()
    assert values(front) == [(9, 10.0, 10.0, 9)]
    assert "One schedule has both the least peak and the least time (proven)." in front.summary()
    assert front.is_complete
    assert front.searches == 2


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_no_point_is_beaten_and_bounds_hold_of_every_point(devices):
    rng = np.random.default_rng(0)
    for _ in range(8):
        graph = naive.build(naive.random_spec(rng, 9))
        if not graph.runtime.any():
            continue
        settings = replace(QUICK, devices=devices, evaluations=100)
        front = Sweep(graph, settings).execute()
        assert front.is_complete
        for point in front.points:
            result = point.result
            unlimited = replace(result.problem, memory_limit=None)  # a search that misses its limit may find a point
            totals = schedopt.verify(unlimited, result.schedule)
            assert (totals.peak, totals.runtime) == (point.peak_memory, pytest.approx(result.runtime))
            assert point.time >= point.time_bound
            assert point.peak_memory >= point.peak_bound >= front.least_peak
        for one, other in permutations(front.points, 2):
            assert one.peak_memory > other.peak_memory or one.time > other.time, "beaten"
            if other.peak_memory <= one.peak_memory:
                assert other.time >= one.time_bound
            if other.time <= one.time:
                assert other.peak_memory >= one.peak_bound
        limits = [bound.limit for bound in front.bounds]
        assert limits == sorted(limits, reverse=True)
        times = [bound.time for bound in front.bounds]
        assert times == sorted(times)


def test_two_devices_trade_the_makespan():
    front = Sweep(diamond(), replace(QUICK, devices=2)).execute()
    assert (front.points[0].time, front.points[0].time_bound) == (6.0, 6.0)
    assert front.added_share(front.points[0]) == 0
    assert not any(point.added_runs for point in front.points)
    assert "makespan on 2 devices" in front.title()
    assert "runs again" not in front.summary()


def results_of(*prices):
    """Return a schedule of a graph once per price."""
    found = schedopt.solve(chain_of(3), "input")
    prices = [{"peak_per_device": np.array([peak]), "clock_per_device": np.array([time])} for peak, time in prices]
    return [(replace(found, simulation=replace(found.simulation, **price)), 1) for price in prices]


def test_what_others_beat_is_dropped():
    found = results_of((10, 5.0), (10, 4.0), (12, 4.0), (8, 9.0), (7, 9.0), (20, 3.0), (20, 3.0), (30, 3.0 + 1e-15))
    points = front_points(schedopt.Problem(chain_of(3)), found, [])
    assert [(point.peak_memory, point.time) for point in points] == [(20, 3.0), (10, 4.0), (7, 9.0)]


def test_a_bound_holds_of_all_that_keep_its_limit_and_of_the_peak_of_what_is_quicker():
    bounds = [LimitBound(20, 3.0), LimitBound(15, 3.5), LimitBound(10, 6.0)]
    points = front_points(schedopt.Problem(chain_of(3)), results_of((20, 3.0), (12, 5.0), (9, 9.0)), bounds)
    assert [point.time_bound for point in points] == [3.0, 3.5, 6.0]
    assert [point.peak_bound for point in points] == [16, 11, 1]


@pytest.mark.slow
def test_it_goes_on_from_its_file(tmp_path, monkeypatch):
    graph, path = kept_or_made_again(), tmp_path / "front.jsonl"
    first = schedopt.pareto(graph, points=3, evaluations=300, resume=path)
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == first.searches == 4
    path.write_text("".join(lines[:3]) + '{"key": "torn')

    def solve(*arguments, **options):
        solved.append(options)
        return real(*arguments, **options)

    solved, real = [], schedopt.core.experiments.pareto_search.solve_and_place
    monkeypatch.setattr("schedopt.core.experiments.pareto_search.solve_and_place", solve)
    again = schedopt.pareto(graph, points=3, evaluations=300, resume=path)
    assert (values(again), len(solved)) == (values(first), 1)
    assert again.points[1].result.order == first.points[1].result.order
    schedopt.pareto(graph, points=3, evaluations=301, resume=path)
    assert len(solved) == 1 + 4, "another budget is another search"


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished(tmp_path):
    interrupt, path = threading.Event(), tmp_path / "front.jsonl"

    def progress(done, what):
        said.append((done, what))
        if done == 2:
            interrupt.set()

    said = []
    with closing(SweepFile(path)) as file:
        sweep = Sweep(kept_or_made_again(), QUICK)
        sweep.file = file
        front = sweep.execute(progress, interrupt)
    assert (front.is_complete, front.searches, front.planned) == (False, 2, 5)
    assert [done for done, _ in said] == [0, 1, 2]
    assert said[2][1] == "the least time within 11.7 KiB"
    assert len(path.read_text().splitlines()) == 2
    assert all(point.time >= point.time_bound for point in front.points)
    front = schedopt.pareto(kept_or_made_again(), points=4, evaluations=300, resume=path)
    assert front.is_complete


def test_several_devices_without_runtimes_have_nothing_to_trade():
    with pytest.raises(UsageError, match="no op has a runtime, so that on 2 devices there is no time to trade"):
        schedopt.pareto(kept_or_made_again(runtimes=(0,) * 5), devices=2)


@pytest.fixture(scope="module")
def front():
    """Return the front of a graph with two points."""
    return Sweep(trade("pa<i>r", (1, 5, 9, 5, 0)), ParetoOptions(points=3, evaluations=200)).execute()


def line(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def test_points_and_bound_are_where_they_belong(front):
    axes = front.plot()
    points = line(axes, "schedules")
    assert list(zip(points.get_xdata(), points.get_ydata(), strict=True)) == [(13, 20), (9, 21)]
    assert axes.get_xlabel() == "peak memory, KiB"
    assert axes.get_ylabel() == "time, us"
    bound = line(axes, "lower bound")
    stairs = list(zip(bound.get_xdata(), bound.get_ydata(), strict=True))
    for x, y in stairs[:-1]:  # the last one goes up where no schedule is
        assert y <= (20 if x >= 13 else 21)
    assert stairs[-1][0] == 9
    assert line(axes, "program order").get_xdata()[0] == 13
