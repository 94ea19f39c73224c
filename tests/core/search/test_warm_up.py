"""Warming up: every method that a run may use runs once, on a tiny graph, with the parameters asked for."""

import naive
import numpy as np
import pytest
from schedopt.core.problem.problem import Problem
from schedopt.core.search import warm_up as module
from schedopt.core.search.method_spec import parse_method

GRAPH = naive.random_graph(np.random.default_rng(171), 40)[0]


@pytest.fixture
def ran(monkeypatch):
    """Record what is run: name, ops, memory limit, parameters."""
    runs = []

    def load(name):
        def solve(search, parameters):
            runs.append((name, search.problem.graph.num_ops, search.problem.memory_limit, parameters))
            search.offer_order(search.problem.graph.input_order)

        return solve

    monkeypatch.setattr(module, "load", load)
    return runs


@pytest.mark.parametrize(
    ("problem", "last"), [(Problem(GRAPH), "order-search"), (Problem(GRAPH, "runtime", 2, latency=1.0), "cp-sat")]
)
def test_what_a_method_calls_runs_too(ran, problem, last):
    module.warm_up(problem, parse_method("auto"))
    names = [name for name, *_ in ran]
    assert names[0] == "input"
    assert names[-1] == last
    assert ("gp-dfs" in names) == ("annealing" in names) == (problem.task == "runtime")
    assert {ops for _, ops, *_ in ran} == {4}


def test_a_solver_for_a_time_limit_alone_is_not_loaded_for_evaluations(ran):
    problem = Problem(GRAPH, "runtime", 2, latency=1.0)
    module.warm_up(problem, parse_method("auto"), 100)
    module.warm_up(problem, parse_method("auto:evaluations=100"))
    names = [name for name, *_ in ran]
    assert names.count("step-search") == 2
    assert "cp-sat" not in names
