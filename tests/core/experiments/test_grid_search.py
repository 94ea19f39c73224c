"""The grids are what the paper says, and the race keeps the best settings and fair scores."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from schedopt import Comparison, UsageError
from schedopt.core.experiments.grid_search import GRIDS, Grid, check_apart, confirm, plan, race, runs_of
from schedopt.core.report.summaries import Cell
from schedopt.core.search.options import CompareOptions
from schedopt.core.search.registry import methods_where

GRID = Grid("brkga", tuple({"chromosomes": count} for count in (100, 40, 50, 60, 70, 80)))


def test_the_registry_says_which_methods_have_a_grid():
    assert set(GRIDS) == set(methods_where(lambda method: method.trainer == "grid_search"))
    assert all(grid.method == name for name, grid in GRIDS.items())


def graphs(count):
    made = [naive.random_graph(np.random.default_rng([160, at]), 5)[0] for at in range(count)]
    return [replace(graph, name=f"graph{at}") for at, graph in enumerate(made)]


class Pretend:
    """Executes an experiment by looking values up: `values[chromosomes][graph]`."""

    def __init__(self, values):
        self.values, self.ran = values, []

    def __call__(self, experiment):
        cells = [self.cell(run.problem.graph.name, run.spec) for run in experiment.runs.values()]
        self.ran.append((len(experiment.methods), experiment.graphs))
        return Comparison(
            experiment.settings, experiment.methods, experiment.reference, experiment.graphs, tuple(cells), len(cells)
        )

    def cell(self, graph, spec):
        value = self.values[spec.parameters.chromosomes][int(graph.removeprefix("graph"))]
        status = "failed" if value is None else "feasible"
        return Cell(graph, "", 5, spec.text, 0, status, value, excess=0, error="Boom: none")


def chromosomes(ranking):
    return [GRID.specs[summary.method]["chromosomes"] for summary in ranking]


@pytest.mark.parametrize(
    ("arguments", "rounds", "runs"),
    [
        ((648, 100, 8, 0.2), [(648, 8), (130, 40), (26, 100)], 648 * 8 + 130 * 32 + 26 * 60),
        ((12, 30, 30, 0.25), [(12, 30)], 360),
        ((12, 30, 50, 0.25), [(12, 30)], 360),
        ((5, 8, 1, 0.5), [(5, 1), (3, 2), (2, 4), (2, 8)], 5 + 3 + 4 + 8),
        ((1, 4, 1, 0.25), [(1, 1), (1, 4)], 4),
        ((3, 3, 1, 0.99), [(3, 1), (3, 2), (3, 3)], 9),
    ],
)
def test_rounds_by_hand(arguments, rounds, runs):
    assert plan(*arguments) == rounds
    assert runs_of(plan(*arguments)) == runs


def test_a_race_ranks_by_the_mean_improvement_per_graph():
    """50 improves by 10% and 30%, 40 by 40% and -10%; in bytes the order would be the other way round."""
    values = {100: [1000, 10], 40: [600, 11], 50: [900, 7], 60: [1000, 10], 70: [2000, 10], 80: [3000, 20]}
    (ranking,) = race(GRID, graphs(2), CompareOptions(), plan(6, 2, 2, 0.5), Pretend(values))
    assert chromosomes(ranking) == [50, 40, 100, 60, 70, 80]
    assert [s.improvement.mean for s in ranking] == pytest.approx([20, 15, 0, 0, -50, -150])
    assert ranking[0].improvement.standard_error == pytest.approx(10)


def test_each_round_drops_the_worst_but_never_the_defaults_and_prices_new_graphs_only():
    values = {100: [10] * 4, 40: [9, 9, 12, 12], 50: [8, 8, 8, 8], 60: [7, 9.5, 1, 1], 70: [12] * 4, 80: [9.5] * 4}
    execute = Pretend(values)
    rounds = list(race(GRID, graphs(4), CompareOptions(), plan(6, 4, 1, 0.5), execute))
    assert [chromosomes(ranking) for ranking in rounds] == [[60, 50, 40, 80, 100, 70], [50, 60, 100], [50, 100]]
    assert execute.ran == [(6, ("graph0",)), (3, ("graph1",)), (2, ("graph2", "graph3"))]


def test_a_failed_run_ends_the_search():
    values = {count: [1.0] for count in (100, 40, 50, 70, 80)} | {60: [None]}
    with pytest.raises(UsageError, match="chromosomes=60 failed on graph0: Boom: none"):
        list(race(GRID, graphs(1), CompareOptions(), plan(6, 1, 1, 0.5), Pretend(values)))


def test_the_winner_is_confirmed_against_the_defaults():
    execute = Pretend({100: [10, 10], 50: [9, 8]})
    summary = confirm(GRID, "brkga:chromosomes=50", graphs(2), CompareOptions(), execute)
    assert (summary.improvement.mean, summary.wins, summary.graphs) == (pytest.approx(15), 2, 2)
    assert confirm(GRID, GRID.reference, graphs(2), CompareOptions(), execute).improvement.mean == 0


def test_held_out_graphs_are_others():
    one, two, three = graphs(3)
    check_apart([one, two], [three])
    with pytest.raises(UsageError, match="the held-out graph copy is searched on as graph1"):
        check_apart([one, two], [three, replace(two, name="copy")])
