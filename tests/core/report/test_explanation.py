"""What is said of a peak on one device: proven of every order, who holds it, and what recomputation could give."""

from dataclasses import replace

import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from models.small_graphs import chain_of
from naive.graphs import random_graph
from schedopt.core.bounds.bounds import memory_bound, recomputation_bound
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.report import explanation
from schedopt.core.report.explanation import WIDTH, explain, held_at, runs_again
from schedopt.core.report.peak_holders import alive_at_peak


def branches(annotations=None, persistent=0, skip=0):
    """Two branches of one input, all wide before the first is narrow: 10 + 8 + 8 KiB, branch by branch 10 + 8 + 1."""
    builder = schedopt.GraphBuilder("branches")
    kib = 1024
    builder.add_op("start", outputs=[10 * kib], persistent=persistent)
    builder.add_op("wide1", inputs=[(0, 0)], outputs=[8 * kib])
    builder.add_op("wide2", inputs=[(0, 0)], outputs=[8 * kib])
    builder.add_op("narrow1", inputs=[(1, 0)], outputs=[kib])
    builder.add_op("narrow2", inputs=[(2, 0)], outputs=[kib])
    builder.add_op("join", inputs=[(3, 0), (4, 0)], outputs=[kib, skip], is_final=True)
    return builder.build(annotations or Annotations())


def test_an_order_that_is_better_and_optimal():
    first, second, third = schedopt.solve(branches()).explain().splitlines()
    assert first == "No order needs less than 19.0 KiB (proven); program order needs 26.0 KiB."
    assert second == "Peak: start 10.0 KiB (53%), wide1 8.00 KiB (42%), narrow1 1.00 KiB (5%)."
    assert third == "Even with recomputation nothing goes below 18.0 KiB (op wide1)."


def test_program_order_that_is_already_optimal():
    explained = schedopt.solve(chain_of(5)).explain().splitlines()
    assert explained[0] == "Program order is already optimal: no order needs less than 9 B."
    assert explained[2] == "Recomputation cannot help: op4 alone needs as much."


def test_a_method_that_proves_nothing_claims_nothing():
    said = schedopt.solve(branches(), "input").explain().splitlines()[0]
    assert said == "No order better than program order was found; none is below 18.0 KiB (proven)."
    worse = explain(Problem(branches()), Schedule.single_device(np.array([0, 1, 2, 3, 4, 5])), 20_000, 19_456)
    assert worse[0] == "Peak 26.0 KiB, program order 19.5 KiB; no order is below 19.0 KiB (proven)."


def test_the_bound_of_a_search_under_a_limit_is_not_that_of_all_orders():
    result = replace(schedopt.solve(branches(), memory_limit=1024), lower_bound=19.0 * 1024 + 5)
    assert result.status == "infeasible"
    result = replace(result, is_proven_infeasible=False)
    first = result.explain().splitlines()[0]
    assert first == "Peak 19.0 KiB, program order 26.0 KiB; no order is below 18.0 KiB (proven)."


def test_a_recomputation_that_could_save_little_is_said_to(monkeypatch):
    builder = schedopt.GraphBuilder("held")
    builder.add_op("small", outputs=[10])
    builder.add_op("large", outputs=[1000])
    builder.add_op("join", inputs=[(0, 0), (1, 0)], outputs=[1])
    asked = Problem(builder.build()), Schedule.single_device(np.arange(3)), 1011, 1000
    assert explain(*asked)[2] == "Recomputation cannot help: join alone needs as much."
    monkeypatch.setattr(explanation, "recomputation_bound", lambda graph: (1000, 1))
    assert explain(*asked)[2] == "Recomputation could save at most 11 B."


def test_tensors_are_named_in_the_users_words_and_resident_bytes_by_role():
    annotations = Annotations(
        modules=("", "left", "right", "left", "right", ""),
        lines=("m.py:1", "m.py:2", "m.py:2", "m.py:3", "m.py:3", "m.py:4"),
        residents=(
            Resident("left.weight", "parameter", 9000, 0),
            Resident("x", "input", 1000, 0),
            Resident("unread", "buffer", 5000, -1),
        ),
    )
    graph = branches(annotations, persistent=10_240)
    peak = alive_at_peak(Problem(graph), Schedule.single_device(graph.input_order))
    assert [words for words, _ in held_at(graph, peak)] == [
        "start [m.py:1]",
        "parameters",
        "wide1 [left, m.py:2]",
        "wide2 [right, m.py:2]",
        "inputs",
        "other persistent bytes",
    ]


def test_what_stays_to_the_end_may_be_what_no_schedule_is_below():
    builder = schedopt.GraphBuilder("results")
    for op in range(4):
        builder.add_op(f"op{op}", outputs=[1024], is_final=True)
    result = schedopt.solve(builder.build())
    assert result.explain().splitlines()[2] == "Recomputation cannot help: what stays to the end is as much."


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_the_held_bytes_are_the_peak_and_no_order_is_below_the_bounds(seed):
    graph, _ = random_graph(np.random.default_rng(seed), 12)
    result = schedopt.solve(graph, "dfs")
    explained = explain(result.problem, result.schedule, int(result.input_value), int(result.lower_bound))
    held = held_at(graph, alive_at_peak(result.problem, result.schedule))
    assert sum(size for _, size in held) == result.peak_memory
    assert held == sorted(held, key=lambda held: -held[1])
    least, op = recomputation_bound(graph)
    assert least <= memory_bound(Problem(graph)) <= result.lower_bound
    first, second, third = explained
    assert op < 0 or graph.op_names[op] in third or third.startswith("Recomputation could save")
    assert len(first) <= WIDTH
    assert len(second) <= WIDTH or len(held) == 1 or " more" in second


@pytest.mark.parametrize(("runtime", "said"), [(2.0, "layer2 +2 us"), (0.0, "layer2 +1 run")])
def test_what_runs_again_is_named(runtime, said):
    builder = schedopt.GraphBuilder("training")
    for k in range(4):
        builder.add_op(f"layer{k}", inputs=[(k - 1, 0)] if k else [], outputs=[100], runtime=runtime)
    for k in reversed(range(4)):
        inputs = [(k, 0)] if k == 3 else [(k, 0), (6 - k, 0)]
        builder.add_op(f"back{k}", inputs=inputs, outputs=[10], runtime=runtime)
    problem = schedopt.Problem(builder.build(), task="runtime", memory_limit=320, recompute=True)
    again = schedopt.Schedule.single_device([0, 1, 2, 3, 4, 2, 5, 6, 7])
    assert runs_again(problem, again) == f"Runs again: {said}."
    assert runs_again(problem, schedopt.Schedule.single_device(range(8))) == ""
    often = schedopt.Schedule.single_device([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7])
    assert runs_again(problem, often).startswith("Runs again: layer0 +"), "what adds most comes first"
    result = schedopt.solve(problem, "recompute", evaluations=2000)
    assert result.explain() == runs_again(problem, result.schedule)
    assert result.explain().startswith("Runs again: ")
