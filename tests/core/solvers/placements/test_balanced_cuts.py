"""Starts that send little: what they are good for, where they are tried, and what they may spend."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from schedopt import GraphBuilder, Problem, Schedule, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import annealing
from schedopt.core.solvers.placements.clusters import even_parts, places_across
from schedopt.core.solvers.placements.makespan_annealing import MakespanAnnealing


def _strands(count, length):
    """Return a graph of strands of ops side by side, interleaved in the input order, that never meet."""
    builder, last = GraphBuilder("strands"), [None] * count
    for step in range(length):
        for strand in range(count):
            inputs = [] if step == 0 else [(last[strand], 0)]
            last[strand] = builder.add_op(f"{strand}:{step}", inputs=inputs, outputs=[100], runtime=1.0)
    return builder.build()


def _placement(problem, ops_per_window, evaluations):
    search = Search(problem, max_evaluations=evaluations, lower_bound=-1.0)
    order = problem.graph.input_order
    search.offer(Schedule.single_device(order))
    return MakespanAnnealing(search).cut(order, ops_per_window, 1.0), search


def test_strands_are_shared_out_evenly_and_little_of_them_is_sent():
    problem = Problem(_strands(6, 12), "runtime", 3, latency=1.0)
    placement, search = _placement(problem, 12, 400)
    of_strands = placement.reshape(12, 6)
    sent = (of_strands[1:] != of_strands[:-1]).sum()
    assert sent <= 66 // 4, "two thirds are of a random placement"
    assert np.ptp(np.bincount(placement, minlength=3)) <= 6
    assert search.evaluations <= 400


@pytest.mark.parametrize("evaluations", [1, 5, 37])
def test_no_more_is_spent_than_there_is(evaluations):
    graph, _ = naive.random_graph(np.random.default_rng(7), 40)
    placement, search = _placement(Problem(graph, "runtime", 4, latency=1.0), 36, evaluations)
    assert search.evaluations == evaluations
    assert 0 <= placement.min() <= placement.max() < 4


def test_runtimes_of_zero_are_no_hindrance():
    graph = _strands(2, 3)
    runtime = np.zeros(graph.num_ops)
    runtime.flags.writeable = False
    placement, _ = _placement(Problem(replace(graph, runtime=runtime), "runtime", 2, latency=1.0), 2, 50)
    assert len(set(placement[::2])) == len(set(placement[1::2])) == 1, "nothing is sent"


def _band(levels, width):
    """Return a graph of levels of ops in random order, each of which reads those about its place, and the places."""
    builder, rng, before, places = GraphBuilder("band"), np.random.default_rng(3), {}, []
    for level in range(levels):
        here = {}
        for place in rng.permutation(width).tolist():
            inputs = [(before[at], 0) for at in (place - 1, place, place + 1) if at in before]
            here[place] = builder.add_op(f"{level}:{place}", inputs=inputs, outputs=[100], runtime=2.0)
            places.append(place)
        before = here
    return builder.build(), np.array(places)


def test_slices_across_levels_are_of_ops_that_exchange_much():
    graph, places = _band(10, 12)
    level = np.arange(120) // 12
    across = places_across(Search(Problem(graph, "runtime", 2, latency=1.0)), level)
    assert abs(np.corrcoef(across, places)[0, 1]) > 0.95
    parts = even_parts(np.lexsort((across, level)), level, graph.runtime, 3)
    assert (np.bincount(3 * level + parts) == 4).all()


def test_parts_share_out_work_and_ops_without_work_are_anywhere():
    level, work = np.array([0, 0, 0, 0, 1, 1, 2]), np.array([3.0, 1, 1, 1, 0, 0, 5])
    parts = even_parts(np.array([0, 1, 2, 3, 4, 5, 6]), level, work, 2)
    assert parts[:4].tolist() == [0, 1, 1, 1]
    assert set(parts[4:].tolist()) <= {0, 1}


@pytest.mark.parametrize(("devices", "share"), [(2, 0.7), (3, 0.6)])
def test_large_graphs_are_sliced_too(devices, share, monkeypatch):
    monkeypatch.setattr(annealing, "LARGEST_IMPATIENT", 100)
    graph, _ = _band(10, 12)
    result = solve(Problem(graph, "runtime", devices, latency=1.0), "annealing", evaluations=25)
    assert result.value < share * graph.runtime.sum(), "0.82 and 0.7 without"
