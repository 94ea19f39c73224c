"""How `auto` shares its budget out."""

import naive
import numpy as np
import pytest
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve
from schedopt.core.solvers import portfolio as auto

PAID = {"bandwidth": 1e6, "latency": 3.0}
LIMIT = {"memory_limit": 10**6}
COUNT, SECONDS = {"evaluations": 300}, {"time_limit": 0.2}


@pytest.mark.parametrize(
    ("ops", "settings", "budget", "share"),
    [
        (80, PAID, SECONDS, auto.SHARE_OF_ANNEALING),
        (80, PAID, COUNT, auto.SHARE_IF_LARGE),
        (80, PAID | LIMIT, SECONDS, auto.SHARE_IF_LARGE),
        (80, LIMIT, COUNT, auto.SHARE_OF_ANNEALING),
        (40, PAID | LIMIT, COUNT, auto.SHARE_OF_ANNEALING),
        (310, PAID, SECONDS, auto.SHARE_IF_LARGE),
    ],
)
def test_annealing_has_most_where_a_move_of_steps_costs_too_much(ops, settings, budget, share, monkeypatch):
    shares, run_for = [], auto._run_for

    def seen(search, name, share, **parameters):
        shares.append((name, share))
        run_for(search, name, share, **parameters)

    monkeypatch.setattr(auto, "_run_for", seen)
    graph, _ = naive.random_graph(np.random.default_rng(231), ops)
    solve(Problem(graph, "runtime", 2, **settings), "auto", **budget)
    assert shares == [("annealing", share)]
