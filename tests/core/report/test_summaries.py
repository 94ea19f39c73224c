"""Statistics of a comparison, by hand: means, intervals, percentages, ranks, and what is left out of each."""

import math

import pytest
from schedopt.core.report.summaries import (
    Cell,
    by_graph,
    compare_ranks,
    estimate,
    gap_percent,
    improvement_percent,
    summarise,
)


def cell(graph, method, value=None, *, seed=0, status="feasible", excess=0, bound=None, **more):
    """Return a cell; a failed one has no value."""
    excess = None if value is None else excess
    return Cell(graph, "hash", 10, method, seed, status, value, excess=excess, lower_bound=bound, **more)


# Two graphs, the second method better on both and optimal on b.
CELLS = [
    cell("a", "old", 100, bound=50, seconds=1.0, cpu_seconds=3.0),
    cell("a", "new", 80, bound=40, seconds=2.0, cpu_seconds=4.0),
    cell("b", "old", 200, bound=150, seconds=3.0, cpu_seconds=5.0),
    cell("b", "new", 190, bound=190, status="optimal", seconds=2.0, cpu_seconds=4.0),
]


def only(cells, method="new", reference="old"):
    return summarise(cells, [method], reference)[0]


@pytest.mark.parametrize(
    ("values", "mean", "standard_error", "half_width"),
    [
        ([], None, None, None),
        ([7.0], 7.0, None, None),
        ([20.0, 5.0], 12.5, 7.5, 95.29653552),  # t(1) = 12.7062047
        ([1.0, 2.0, 3.0], 2.0, 0.5773502692, 2.484137712),  # t(2) = 4.30265273
        ([4.0] * 5, 4.0, 0.0, 0.0),
        ([1.0, None, 3.0], 2.0, 1.0, 12.7062047),
    ],
)
def test_mean_and_student_interval_by_hand(values, mean, standard_error, half_width):
    found = estimate(values)
    known = [value for value in values if value is not None]
    assert (found.graphs, found.left_out) == (len(known), len(values) - len(known))
    for got, wanted in ((found.mean, mean), (found.standard_error, standard_error), (found.half_width, half_width)):
        assert got == (wanted if wanted is None else pytest.approx(wanted, rel=1e-8))


@pytest.mark.parametrize(
    ("value", "base", "gap"), [(110, 100, 10.0), (80, 100, -20.0), (0, 5, -100.0), (0, 0, 0.0), (3, 0, None)]
)
def test_percentages_and_zero_bases(value, base, gap):
    assert gap_percent(value, base) == gap
    improvement = improvement_percent(value, base)
    assert improvement == (None if gap is None else -gap)
    assert improvement is None or math.copysign(1, improvement) > 0 or improvement < 0  # never -0.0


def test_summary_by_hand():
    new = only(CELLS)
    assert new.improvement.mean == pytest.approx((20 + 5) / 2)
    assert new.improvement.half_width == pytest.approx(95.29653552)
    assert (new.least_improvement, new.most_improvement) == (5, 20)
    assert new.gap_from_best.mean == new.geometric_gap == 0
    assert only(CELLS, "old").geometric_gap == pytest.approx(100 * (math.sqrt(100 / 80 * 200 / 190) - 1))
    assert new.gap_from_bound.mean == pytest.approx((60 + 0) / 2)  # the bounds are 50, of old, and 190, of new
    assert (new.wins, new.ties, new.losses) == (2, 0, 0)
    assert (new.graphs, new.runs, new.optimal, new.feasible, new.optimal_graphs) == (2, 2, 1, 1, 1)
    assert (new.seconds.mean, new.cpu_seconds.mean) == (2.0, 4.0)


def test_the_spread_over_seeds_by_hand():
    """Improvements of the mean of 100 are 20 and 10, of 200 are 5 and 15, so the seeds' means are 12.5 and 12.5."""
    values = {("a", "old"): (90, 110), ("b", "old"): (200, 200), ("a", "new"): (80, 90), ("b", "new"): (190, 170)}
    cells = [cell(g, m, value, seed=seed) for (g, m), both in values.items() for seed, value in enumerate(both)]
    assert only(cells).seed_deviation == pytest.approx(0)
    assert only(cells, "old").seed_deviation == pytest.approx(10 / math.sqrt(2))  # 5 and -5
    cells[-1] = cell("b", "new", 1, seed=1, status="infeasible", excess=1)  # leaves graph a: 20 and 10
    assert only(cells).seed_deviation == pytest.approx(10 / math.sqrt(2))
    assert only(CELLS).seed_deviation is None
    assert only([cell("a", "old", 1), cell("a", "new", 0)], "old").geometric_gap is None


def test_a_graph_is_infeasible_if_no_run_of_any_method_is_feasible():
    over = {"status": "infeasible", "excess": 3}
    cells = [
        *(cell("none", method, 5, **over) for method in ("old", "new")),
        *(cell("one", "old", 5, **over), cell("one", "new", 5)),
        *(cell("failed", method, status="failed") for method in ("old", "new")),
    ]
    assert [(g.graph, g.is_infeasible) for g in by_graph(cells)] == [("none", True), ("one", False), ("failed", False)]


def test_seeds_are_averaged_before_percentages():
    cells = [cell("a", "old", 100), cell("a", "new", 60, seed=0), cell("a", "new", 90, seed=1)]
    new = only(cells)
    assert new.improvement.mean == pytest.approx(25)
    assert new.gap_from_best.mean == pytest.approx(25)  # 75 above the 60 of one seed
    assert (new.graphs, new.runs) == (1, 2)


def test_optimal_on_a_graph_needs_every_seed():
    cells = [cell("a", "new", 60, bound=60, status="optimal"), cell("a", "new", 61, seed=1, bound=50)]
    assert only(cells).optimal_graphs == 0
    assert only(cells[:1]).optimal_graphs == 1


def test_a_zero_base_is_left_out_and_counted():
    cells = [cell("a", "old", 0, bound=0), cell("a", "new", 5, bound=0), cell("b", "old", 10), cell("b", "new", 5)]
    new = only(cells)
    for column, mean in (("improvement", 50), ("gap_from_best", 0)):
        found = getattr(new, column)
        assert (found.mean, found.graphs, found.left_out) == (mean, 1, 1), column
    assert new.gap_from_bound.left_out == 1
    assert (new.wins, new.losses) == (1, 1)


@pytest.mark.parametrize(
    ("new", "old", "outcome"),
    [
        ((9,), (9,), "ties"),
        ((9,), (9 * (1 + 1e-15),), "ties"),
        ((90,), (10, "infeasible", 1), "wins"),
        ((10, "infeasible", 5), (90,), "losses"),
        ((50, "infeasible", 1), (20, "infeasible", 2), "wins"),
        ((50, "infeasible", 2), (20, "infeasible", 2), "losses"),
        ((None, "failed"), (9,), None),
        ((9,), (None, "failed"), None),
    ],
)
def test_wins_ties_losses(new, old, outcome):
    """Of (value, status, excess) each."""
    cells = []
    for method, (value, *rest) in (("new", new), ("old", old)):
        cells.append(cell("a", method, value, **dict(zip(("status", "excess"), rest, strict=False))))
    found = only(cells)
    counts = {"wins": found.wins, "ties": found.ties, "losses": found.losses}
    assert counts == {name: int(name == outcome) for name in counts}


def test_infeasible_and_failed_runs_are_counted_apart_and_in_no_percentage():
    cells = [
        *[cell(graph, "old", 100, bound=50) for graph in "abc"],
        cell("a", "new", 80, bound=50, timed_out=True, seconds=1.0),
        cell("b", "new", 10, status="infeasible", excess=4, bound=50, seconds=3.0),
        cell("b", "new", 11, status="limit-not-met", excess=5, bound=50, seed=1, seconds=3.0),
        cell("c", "new", status="failed", error="ValueError: no"),
    ]
    new = only(cells)
    assert (new.feasible, new.infeasible, new.limit_not_met, new.failed, new.timed_out) == (1, 1, 1, 1, 1)
    assert (new.improvement.mean, new.improvement.graphs, new.improvement.left_out) == (20, 1, 0)
    assert (new.wins, new.ties, new.losses) == (1, 0, 1)
    assert (new.seconds.mean, new.seconds.graphs) == (2.0, 2)
    assert [graph.best for graph in by_graph(cells)] == [80, 100, 100]  # an infeasible 10 is no best


def test_a_partly_failed_method_is_in_no_ranking():
    cells = [cell("a", "old", 9), cell("a", "new", 5), cell("a", "new", seed=1, status="failed", error="E")]
    new = only(cells)
    assert (new.wins, new.ties, new.losses, new.optimal_graphs) == (0, 0, 0, 0)
    assert new.improvement.graphs == 1


@pytest.mark.parametrize(("rank", "other", "sign"), [((0, 1), (0, 2), -1), ((1, 1), (0, 2), 1), ((1, 2), (1, 2), 0)])
def test_excess_goes_before_value(rank, other, sign):
    assert compare_ranks(rank, other) == sign
