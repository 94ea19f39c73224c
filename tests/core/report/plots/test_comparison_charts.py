"""The charts of a comparison, by hand: profiles count what failed, improvements what is the same."""

import itertools
import math

import pytest
from matplotlib.figure import Figure
from schedopt.core.report.plots.comparison_charts import (
    best_ratios,
    draw_comparison,
    gap_against_time,
    method_style,
)
from schedopt.core.report.summaries import Cell, Estimate, by_graph


def cell(graph, method, value, status="feasible", seed=0, seconds=1.0, excess=0):
    if status == "failed":
        return Cell(graph, "", 5, method, seed, status, error="X: y")
    return Cell(graph, "", 5, method, seed, status, value=value, excess=excess, lower_bound=1, seconds=seconds)


CELLS = [
    cell("one", "plain", 100),
    cell("one", "better", 50, "optimal"),
    cell("one", "fails", 0, "failed"),
    cell("two", "plain", 10),
    cell("two", "better", 10),
    cell("two", "fails", 9, "infeasible", excess=3),
    cell("three", "plain", 0),
    cell("three", "better", 4),
    cell("three", "fails", 0),
    cell("nobody", "plain", 5, "infeasible", excess=2),
    cell("nobody", "better", 0, "failed"),
    cell("nobody", "fails", 5, "infeasible", excess=2),
]
METHODS = ["plain", "better", "fails"]


def test_ratios_to_the_best_known():
    graphs = by_graph(CELLS)
    assert best_ratios(graphs, "plain") == [2, 1, 1]
    assert best_ratios(graphs, "better") == [1, 1, math.inf]  # the best of the third is 0
    assert best_ratios(graphs, "fails") == [math.inf, math.inf, 1]
    assert best_ratios(graphs, "unknown") == []


def test_a_seed_without_a_schedule_is_not_solved():
    cells = [cell("one", "a", 10), cell("one", "a", 9, "infeasible", seed=1, excess=0), cell("one", "b", 20)]
    assert best_ratios(by_graph(cells), "a") == [math.inf]
    cells = [cell("one", "a", 10), cell("one", "a", 30, seed=1)]
    assert best_ratios(by_graph(cells), "a") == [2]  # the mean over seeds, of the best of any seed


def profile_of(figure):
    """Return the steps of each method: factor -> percent of graphs from there on."""
    axes = next(axes for axes in figure.axes if axes.get_title() == "performance profile")
    return [dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]


@pytest.mark.slow
def test_the_profile_counts_all_graphs_that_someone_solved():
    plain, better, fails = profile_of(draw_comparison(CELLS, METHODS, "plain"))
    assert plain[1] == pytest.approx(200 / 3)
    assert plain[2] == better.get(2, better[max(better)]) + 100 / 3 == pytest.approx(100)
    assert better[max(better)] == pytest.approx(200 / 3)
    assert fails[max(fails)] == pytest.approx(100 / 3)


def test_improvements_name_the_reference_and_count():
    figure = draw_comparison(CELLS, METHODS, "plain")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "better: 1 better, 1 same, 0 worse" in titles  # on the third the reference is 0: no percentage
    assert "fails: 0 better, 1 same, 0 worse" in titles
    assert any(axes.get_xlabel() == "improvement over plain, %" for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == METHODS


def test_quality_against_time_keeps_styles_over_panels():
    numbered = ["a"]
    gap, time = Estimate(5.0, 1.0, 2.0, 3), Estimate(1e-9, None, None, 3)
    nothing = Estimate(None, None, None, 0)
    axes = Figure().subplots()
    handles = gap_against_time(axes, {"b": (gap, time), "c": (nothing, time)}, numbered)
    assert numbered == ["a", "b", "c"]
    assert list(handles) == ["b"]
    point = handles["b"].lines[0]
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (1e-3, 5.0)
    assert point.get_color() == method_style(1)[0]


@pytest.mark.parametrize(("longest", "fewest"), [(0.003, 2), (0.05, 4), (100.0, 4)])
def test_labels_of_times_do_not_overlap(longest, fewest):
    figure = Figure(figsize=(5, 4))
    axes = figure.subplots()
    times = {"a": 0.002, "b": longest}
    gap_against_time(
        axes, {name: (Estimate(5.0, 1.0, 2.0, 3), Estimate(time, None, None, 3)) for name, time in times.items()}, []
    )
    figure.draw_without_rendering()
    left, right = axes.get_window_extent().intervalx
    labels = [*axes.xaxis.get_ticklabels(), *axes.xaxis.get_ticklabels(minor=True)]
    boxes = sorted(label.get_window_extent().intervalx.tolist() for label in labels if label.get_text())
    seen = [box for box in boxes if left <= sum(box) / 2 <= right]
    assert len(seen) >= fewest
    assert all(box[1] < after[0] for box, after in itertools.pairwise(seen))
