"""Memory limits that are proven out of reach: the claim against trying everything, and its sentence."""

import naive
import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from schedopt.core.problem.problem import Problem
from schedopt.core.report.explanation import why_none_fits
from schedopt.core.solve.solve import solve


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_what_is_called_infeasible_has_no_schedule_at_all(seed):
    rng = np.random.default_rng([410, seed])
    devices = 1 + seed % 2
    graph, plain = naive.random_graph(rng, {1: 6, 2: 4}[devices], edges=1.8, whole_runtimes=True)
    least = naive.best_schedule(plain, devices, "memory")[1]
    for task in ("memory", "runtime"):
        for limit in (max(1, least // 2), max(1, least - 1), least):
            result = solve(Problem(graph, task, devices, memory_limit=limit), "input" if task == "memory" else "lpmf")
            if result.is_proven_infeasible:
                assert (result.status, limit < least) == ("infeasible", True)
            else:
                assert result.status == "limit-not-met" or result.is_feasible


def graph_with_weights():
    builder = schedopt.GraphBuilder("net")
    builder.add_op("a", outputs=[3 * 2**20], persistent=2**20)
    builder.add_op("b", inputs=[(0, 0)], outputs=[2**20])
    return builder.build()


def test_the_sentence_names_the_limit_what_is_needed_and_the_weights():
    problem = Problem(graph_with_weights(), memory_limit=4 * 2**20)
    assert why_none_fits(problem, 0) == (
        "no order of net fits in 4.00 MiB: every order needs at least 5.00 MiB, of which 1.00 MiB are weights"
    )
    assert "5.25 MiB" in why_none_fits(problem, 5.25 * 2**20)
    assert why_none_fits(Problem(graph_with_weights(), memory_limit=6 * 2**20), 0) == ""
    assert why_none_fits(Problem(graph_with_weights()), 0) == ""


def test_on_several_devices_it_is_each_that_is_too_small():
    problem = Problem(graph_with_weights(), "runtime", devices=2, memory_limit=2**20)
    assert why_none_fits(problem, 10.0) == (
        "no schedule on 2 devices of net fits in 1.00 MiB each: every schedule needs at least 4.00 MiB on one of them"
    )


def test_a_search_of_all_that_ended_without_one_is_a_proof():
    problem = Problem(graph_with_weights(), "runtime", devices=2, memory_limit=4 * 2**20)
    assert why_none_fits(problem, float("inf")).endswith("fits in 4.00 MiB: a search of all ended without one")
