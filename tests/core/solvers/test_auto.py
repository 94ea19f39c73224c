"""How `auto` shares its budget out: the rows of its table."""

import naive
import numpy as np
import pytest
from schedopt import Machine, Problem, Search
from schedopt.core.solvers import portfolio
from schedopt.core.solvers.portfolio import ROWS, steps_for

PAID = {"bandwidth": 1e6, "latency": 3.0}
LIMIT = {"memory_limit": 10**6}


def shares(ops, task, settings, is_counted):
    graph, _ = naive.random_graph(np.random.default_rng(231), ops)
    return [(step.method, step.share) for step in steps_for(Problem(graph, task, **settings), is_counted=is_counted)]


@pytest.mark.parametrize(
    ("ops", "task", "settings", "is_counted", "wanted"),
    [
        (80, "memory", {}, False, [("order-search", 1.0)]),
        (80, "memory", {"devices": 2}, False, [("annealing", 1.0)]),
        (50, "memory", {"devices": 2}, False, [("annealing", 0.75), ("step-search", 0.5), ("cp-sat", 1.0)]),
        (50, "memory", {"devices": 2}, True, [("annealing", 0.6), ("step-search", 1.0)]),
        (50, "runtime", {"devices": 9}, False, [("annealing", 0.6), ("step-search", 1.0)]),
        (80, "runtime", {"devices": 2} | PAID, False, [("annealing", 0.4), ("step-search", 1.0)]),
        (310, "runtime", {"devices": 2} | LIMIT, False, [("annealing", 0.9), ("step-search", 1.0)]),
        (20, "memory", {"recompute": True} | LIMIT, True, [("recompute", 1.0)]),
    ],
)
def test_the_first_row_that_fits_says_what_is_run(ops, task, settings, is_counted, wanted):
    assert shares(ops, task, settings, is_counted) == wanted


def test_large_graphs_on_several_devices_begin_with_a_list_schedule(monkeypatch):
    """Even where no time is left for heuristics."""
    run = []
    monkeypatch.setattr(portfolio, "LARGEST_ORDERED", 10)
    monkeypatch.setattr(portfolio, "SHARE_OF_HEURISTICS", 0.0)
    monkeypatch.setattr(portfolio, "_run", lambda search, step: run.append(step.method))
    graph, _ = naive.random_graph(np.random.default_rng(232), 80)
    portfolio._search_alone(Search(Problem(graph, "runtime", devices=2), deadline=1e300))
    assert run[:3] == ["input", "heft", "annealing"]


def test_every_problem_has_a_row_without_a_proof():
    assert len(ROWS) <= 12
    kinds = {kind for row in ROWS for kind in row.kinds}
    for kind in kinds:
        last = [row for row in ROWS if kind in row.kinds][-1]
        assert last.most_ops == float("inf")
        assert all(step.method != "cp-sat" for step in last.steps)


def test_methods_that_refuse_a_problem_are_left_out():
    different = Machine.equal(2, 1e9)
    assert shares(20, "memory", {"machine": different}, False)[-1] == ("cp-sat", 1.0)
