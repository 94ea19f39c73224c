"""One order for a range of sizes: its peaks are those of the true graphs, its bounds hold, and what is proven is."""

from itertools import permutations

import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import GraphBuilder, Problem, ProgramError, Schedule, ScheduleError
from schedopt.core.model.verifier import verify
from schedopt.core.programs.pipeline import SizedGraph, plan_range
from schedopt.core.programs.runtime import cost_of
from schedopt.core.solve.solve import solve


def two_branches(size, *, power=1):
    """Two branches whose first tensors grow with the size, or do not: which goes first depends on it."""
    builder = GraphBuilder("branches")
    grown = size**power
    source = builder.add_op("source", outputs=[10])
    wide = builder.add_op("wide", inputs=[(source, 0)], outputs=[100 * grown])
    narrow = builder.add_op("narrow", inputs=[(wide, 0)], outputs=[40 * grown])
    big = builder.add_op("big", inputs=[(source, 0)], outputs=[1000], persistent=7)
    small = builder.add_op("small", inputs=[(big, 0)], outputs=[400])
    builder.add_op("join", inputs=[(narrow, 0), (small, 0)], outputs=[grown], final=[True])
    return builder.build()


def orders_of(graph):
    for order in permutations(range(graph.num_ops)):
        try:
            verify(Problem(graph), Schedule.single_device(list(order)))
        except ScheduleError:
            continue
        yield order


def quick(problem):
    return solve(problem, time_limit=1)


def worst_gaps(read, sizes):
    """Of every order, how far it is above the best one of each size, at the worst of them."""
    graphs = [read(size) for size in sizes]
    peaks = [[cost_of(graph, order).peak for order in orders_of(graphs[0])] for graph in graphs]
    least = [min(row) for row in peaks]
    return [max(np.divide(column, least)) - 1 for column in zip(*peaks, strict=True)]


@pytest.mark.parametrize("power", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_peaks_and_bounds_are_those_of_the_true_graphs(power):
    """Linear sizes are all examined, others at some of them; what is not imported is not claimed."""
    sizes, reads = range(1, 31), []

    def read(size):
        reads.append(size)
        return two_branches(size, power=power)

    plan = plan_range(SizedGraph(read, sizes), quick)
    assert plan.is_linear == (power == 1)
    assert plan.is_whole == plan.is_linear
    assert len(reads) < len(sizes)
    assert [row.size for row in plan.rows][::2] == [1, 30]
    for row in plan.rows:
        graph = two_branches(row.size, power=power)
        assert row.peak == cost_of(graph, plan.order).peak
        assert row.program_order == cost_of(graph, graph.input_order.tolist()).peak
        assert row.bound <= min(cost_of(graph, order).peak for order in orders_of(graph)) <= row.peak


@pytest.mark.slow
def test_the_worst_gap_is_the_least_where_no_order_is_good_everywhere():
    """Small sizes ask for one branch first, large ones for the other: what is found is the best of all orders."""

    def read(size):
        builder = GraphBuilder("opposed")
        source = builder.add_op("source", outputs=[1])
        ends = []
        for name, first, last in (("a", 1000 * size, 600 * size), ("b", 30_000, 18_000)):
            start = builder.add_op(f"{name}0", inputs=[(source, 0)], outputs=[first])
            ends.append((builder.add_op(f"{name}1", inputs=[(start, 0)], outputs=[last]), 0))
        builder.add_op("join", inputs=ends, outputs=[1])
        return builder.build()

    plan = plan_range(SizedGraph(read, range(1, 61)), quick)
    assert not plan.is_close
    assert plan.is_whole
    assert plan.worst_gap == pytest.approx(min(worst_gaps(read, range(1, 61, 6))), abs=0.03)


def test_a_program_with_other_ops_is_refused():
    def read(size):
        return sketch(f"{'a' if size < 8 else 'b'} -> {size}", "net")

    with pytest.raises(ProgramError, match="its ops differ at size 9"):
        SizedGraph(read, range(1, 10))
