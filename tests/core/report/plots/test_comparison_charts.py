"""The charts of a comparison, by hand: profiles count what failed, improvements what is the same."""

import math

import pytest
from schedopt.core.report.plots.comparison_charts import (
    best_ratios,
    draw_comparison,
)
from schedopt.core.report.summaries import Cell, by_graph


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
