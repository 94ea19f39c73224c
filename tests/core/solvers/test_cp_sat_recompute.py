"""CP-SAT with retention intervals: its optimum is that of trying everything; what it proves holds for any runs."""

import math

import naive
import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Problem, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.exact.recompute import RetentionModel, most_useful_runs

UNAIDED = "cp-sat:hint=0"


def draw(rng, most_ops):
    """Draw a graph with views, control edges, several outputs, final tensors, workspace and ops that run once."""
    while True:
        ops = int(rng.integers(2, most_ops + 1))
        graph, plain = naive.random_graph(rng, ops, runs_once=0.1, edges=2.0, whole_runtimes=True)
        if graph.runtime.any():
            return graph, plain


def solved(graph, method=UNAIDED, **settings):
    return solve(Problem(graph, recompute=True, **settings), method, time_limit=120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(60, quick=1))
def test_the_optimum_is_that_of_trying_everything(seed):
    """Least time under a limit, and least peak within a time, for up to two runs of each op; bounds for any number."""
    rng = np.random.default_rng([1720, seed])
    for _ in range(2):
        graph, plain = draw(rng, 5)
        front, of_all = naive.runs_front(plain, 2), naive.runs_front(plain)
        for time, peak in front[-2:]:
            result = solved(graph, task="runtime", memory_limit=max(1, peak))
            assert result.value == pytest.approx(time, rel=1e-12)
            assert result.lower_bound <= naive.least_time(of_all, max(1, peak)) * (1 + 1e-12)
            limit = max(time, math.fsum(plain.runtime))
            result = solved(graph, runtime_limit=limit)
            assert result.value == peak
            assert result.lower_bound <= naive.least_peak_within(of_all, limit)


@pytest.mark.parametrize("seed", seeds(30, quick=2))
def test_with_the_order_of_first_runs_kept_it_is_the_best_of_those(seed):
    rng = np.random.default_rng([1721, seed])
    graph, plain = draw(rng, 4)
    order = graph.input_order.tolist()
    prices = [
        (sum(plain.runtime[op] for op in runs), max(naive.replay_runs(plain, runs)))
        for runs in naive.run_sequences(plain, 2)
        if list(dict.fromkeys(runs)) == order
    ]
    limit = max(1, min(peak for _, peak in prices))
    result = solved(graph, f"{UNAIDED}:fixed=1", task="runtime", memory_limit=limit)
    assert result.value <= min(time for time, peak in prices if peak <= limit)  # equal, but for the input order's price
    assert result.lower_bound <= naive.least_time(naive.runs_front(plain), limit) * (1 + 1e-12)


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_no_op_has_to_run_oftener_than_its_readers(seed):
    """So more runs than these give nothing."""
    rng = np.random.default_rng([1722, seed])
    graph, plain = draw(rng, 4)
    most = max(most_useful_runs(graph))
    if most <= 4:
        assert naive.runs_front(plain, most) == naive.runs_front(plain)


def fan(count):
    """`source` is read by so many ops, each of which takes so much that it cannot be kept meanwhile."""
    builder = schedopt.GraphBuilder("fan")
    source = builder.add_op("source", outputs=[100], runtime=1.0)
    last = []
    for k in range(count):
        reader = builder.add_op(f"reader{k}", inputs=[(source, 0), *last], outputs=[1], runtime=1.0)
        big = builder.add_op(f"big{k}", inputs=[(reader, 0)], outputs=[1], workspace=200, runtime=1.0)
        last = [(big, 0)]
    return builder.build()


def test_more_copies_find_what_two_cannot():
    """Here the third run is needed: with two no schedule keeps the limit, which proves nothing of three."""
    graph = fan(3)
    two = solved(graph, "cp-sat:hint=0:copies=2", task="runtime", memory_limit=202)
    three = solved(graph, "cp-sat:hint=0:copies=3", task="runtime", memory_limit=202)
    assert (three.status, three.value) == ("optimal", 9.0)
    assert two.status == "limit-not-met" and not two.is_proven_infeasible
    assert any("at most 2 times keeps the limit" in note for note in two.notes)


def test_what_is_proven_of_some_runs_is_proven_of_all_where_more_would_take_longer():
    graph = fan(3)
    assert most_useful_runs(graph)[0] == 3
    search = Search(Problem(graph, "runtime", memory_limit=202, recompute=True))
    search.offer_order(graph.input_order)
    model = RetentionModel(search, 2, False)
    assert model.least_outside == 2.0  # a third run of the source is its second extra microsecond
    assert [model.bound_of_all(bound) for bound in (8.0, 20.0, math.inf)] == [8.0, 9.0, 9.0]
    assert RetentionModel(search, 3, False).bound_of_all(math.inf) == math.inf


def test_the_peak_within_a_time_is_proven_where_more_runs_take_longer():
    graph = fan(3)
    search = Search(Problem(graph, runtime_limit=8.0, recompute=True))
    search.offer_order(graph.input_order)
    assert RetentionModel(search, 2, False).bound_of_all(203.0) == 203.0
    search = Search(Problem(graph, runtime_limit=9.0, recompute=True))
    search.offer_order(graph.input_order)
    assert RetentionModel(search, 2, False).bound_of_all(203.0) == 0


@pytest.mark.slow
def test_runtimes_that_are_whole_in_no_unit_are_within_the_rounding():
    graph = sketch(f"a -> 100 us={1 / 3}; b: a -> 10 us={1 / 7}; c: b -> 10 us=1 work=200; d: c a -> 1 us=1", "thirds")
    result = solved(graph, task="runtime", memory_limit=220)
    total = float(graph.runtime.sum())
    assert result.value == pytest.approx(total + 1 / 3, rel=1e-12)
    assert result.lower_bound <= result.value * (1 + 1e-12)
    assert solved(graph, runtime_limit=total + 0.34).value == 220
    assert solved(graph, runtime_limit=total + 0.33).value == 320


def test_a_limit_that_only_the_search_proves_out_of_reach_is_said_to_be_so():
    """Kept or made again, both outputs of `source` are there beside that of `middle`."""
    graph = sketch("source -> 40 5 us=1 work=4; middle: source.1 -> 13 us=1 work=4; end: middle source -> us=1", "both")
    assert solved(graph, task="runtime", memory_limit=62).status == "optimal"
    result = solved(graph, task="runtime", memory_limit=61)
    assert result.is_proven_infeasible
    assert any("a search of all schedules ended without one" in note for note in result.notes)
