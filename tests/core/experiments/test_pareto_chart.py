"""The chart of a front: its points, and below them what is proven out of reach."""

import pytest
import schedopt
from schedopt.core.experiments.pareto_search import Sweep
from schedopt.core.search.options import ParetoOptions


@pytest.fixture(scope="module")
def front():
    """Return the front of a graph with two points."""
    builder = schedopt.GraphBuilder("pa<i>r")
    source = builder.add_op("source", outputs=[4096], runtime=1.0)
    middle = builder.add_op("middle", inputs=[(source, 0)], outputs=[1024], runtime=5.0)
    heavy = builder.add_op("heavy", inputs=[(middle, 0)], outputs=[8192], runtime=9.0)
    light = builder.add_op("light", inputs=[(heavy, 0)], outputs=[16], runtime=5.0)
    builder.add_op("sink", inputs=[(light, 0), (source, 0)], outputs=[16])
    return Sweep(builder.build(), ParetoOptions(points=3, evaluations=200)).execute()


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


def test_a_page_has_chart_and_table_and_no_name_breaks_out(front):
    page = front.page()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 1
    assert "13.00 KiB" in page
    assert "<i>" not in page
