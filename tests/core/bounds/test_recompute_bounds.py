"""Bounds of recomputation: never above what trying everything finds, whatever the number of runs."""

import itertools
import math

import naive
import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from schedopt import Problem, Schedule
from schedopt.core.bounds.recompute_bounds import least_recomputed, recompute_bound
from schedopt.core.model.simulator import simulate


def draw(rng, **options):
    """Draw a graph with views, control edges, final tensors, workspace and ops that run once, and all its bests."""
    edges = float(rng.choice([1.4, 2.0, 2.6]))
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 7)), runs_once=0.15, edges=edges, **options)
    return graph, plain, naive.runs_front(plain)


def bound_of(graph, order, **settings):
    memory = simulate(Problem(graph), Schedule.single_device(order)).step_memory
    return recompute_bound(Problem(graph, recompute=True, **settings), order, memory)


def check(graph, plain, order, front, more):
    """Check the bounds under each peak of the front, one byte less, and between two of them, and within its times."""
    memory = simulate(Problem(graph), Schedule.single_device(order)).step_memory
    assert least_recomputed(graph, order, memory)[0] <= front[-1][1]
    peaks, total = [peak for _, peak in front], float(graph.runtime.sum())
    between = [(one + other) // 2 for one, other in itertools.pairwise(peaks)]
    for limit in {max(1, sum(plain.persistent), limit) for peak in peaks for limit in (peak - 1, peak, *between)}:
        bound = bound_of(graph, order, task="runtime", memory_limit=limit)
        assert bound <= naive.least_time(front, limit) * (1 + 1e-12)
    for time in [*(max(total, time) for time, _ in front), total + more]:
        assert bound_of(graph, order, runtime_limit=time) <= naive.least_peak_within(front, time)


@pytest.mark.parametrize("flows", [0, 1, 2, 5])
def test_without_time_for_a_flow_the_bound_is_what_was_found_before(flows):
    graph, _ = naive.random_graph(np.random.default_rng(233), 12, edges=2.0)
    memory = simulate(Problem(graph), Schedule.single_device(graph.input_order)).step_memory
    problem = Problem(graph, "runtime", memory_limit=int(memory.max()) - 1, recompute=True)
    whole = recompute_bound(problem, graph.input_order, memory)
    left = iter([True] * flows)
    some = recompute_bound(problem, graph.input_order, memory, has_time_for=lambda seconds: next(left, False))
    assert graph.runtime.sum() <= some * (1 + 1e-12)
    assert some <= whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40, quick=2))
def test_no_schedule_is_better_than_its_bound(seed):
    """Under limits of bytes and of time; infinite only where no number of runs keeps the limit."""
    rng = np.random.default_rng([1700, seed])
    for _ in range(20):
        graph, plain, front = draw(rng)
        order = np.array(naive.random_order(rng, plain)) if rng.random() < 0.5 else graph.input_order
        if not graph.runtime.any():
            continue
        check(graph, plain, order, front, float(rng.random()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40, quick=2))
def test_bounds_hold_for_sizes_and_times_of_any_magnitude(seed):
    """Bytes up to 10^15, and runtimes that differ by 10 orders of magnitude."""
    rng = np.random.default_rng([1701, seed])
    for _ in range(10):
        spec = naive.random_spec(rng, int(rng.integers(2, 6)), runs_once=0.1, edges=2.0)
        unit = int(rng.choice([1, 10**6 + 3, 10**13 + 37]))
        for op in spec:
            op["outputs"] = [size * unit for size in op["outputs"]]
            op["workspace"] *= unit
            op["runtime"] *= 10.0 ** int(rng.integers(-6, 5))
        graph, plain = naive.build(spec), naive.plain_of_spec(spec)
        if graph.runtime.any():
            check(graph, plain, graph.input_order, naive.runs_front(plain), 0.0)


@pytest.mark.parametrize("seed", seeds(60, quick=3))
def test_a_pebble_game_is_every_order_of_runs(seed):
    """What the bounds are held against is the best of all sequences, as their replay prices them."""
    rng = np.random.default_rng([1702, seed])
    _, plain = naive.random_graph(rng, int(rng.integers(1, 5)), runs_once=0.2, edges=1.8, whole_runtimes=True)
    prices = sorted(
        (sum(plain.runtime[op] for op in order), max(naive.replay_runs(plain, order)))
        for order in naive.run_sequences(plain, 2)
    )
    front = []
    for price in prices:
        if not front or price[1] < front[-1][1]:
            front.append(price)
    assert naive.runs_front(plain, 2) == front
    assert naive.least_time(naive.runs_front(plain), front[-1][1]) <= front[-1][0]


def skips(count, *, control=False, **options):
    """`count` times: `a` is read by `d`, and while `c` runs between them, in 200 bytes, its 100 bytes are too much."""
    builder = schedopt.GraphBuilder("skips")
    last = []
    for k in range(count):
        a = builder.add_op(f"a{k}", inputs=last, outputs=[100], runtime=1.0 + k, **options)
        b = builder.add_op(f"b{k}", inputs=[(a, 0)], outputs=[10], runtime=50.0)
        c = builder.add_op(f"c{k}", inputs=[(b, 0)], outputs=[10], workspace=200, runtime=1.0, control=[a] * control)
        d = builder.add_op(f"d{k}", inputs=[(c, 0), (a, 0)], outputs=[1], runtime=1.0)
        last = [(d, 0)]
    return builder.build()


def test_a_bound_is_met_where_one_op_has_to_run_again():
    graph = skips(1)
    total = graph.runtime.sum()
    assert bound_of(graph, graph.input_order, task="runtime", memory_limit=220) == pytest.approx(total + 1.0)
    assert bound_of(graph, graph.input_order, task="runtime", memory_limit=320) == total
    assert bound_of(graph, graph.input_order, runtime_limit=total + 0.5) > 220
    assert bound_of(graph, graph.input_order, runtime_limit=total + 1.0) == 220


def test_bounds_of_moments_at_which_other_ops_run_again_add_up():
    graph = skips(3)
    total = graph.runtime.sum()
    assert bound_of(graph, graph.input_order, task="runtime", memory_limit=221) == pytest.approx(total + 6.0)


@pytest.mark.parametrize("options", [{"once": True}, {"control": True}])
def test_a_limit_is_out_of_reach_where_what_is_kept_may_not_run_again(options):
    """Be it that it may run only once, or that an op waits for it by a control edge and has run."""
    graph = skips(1, **options)
    assert math.isinf(bound_of(graph, graph.input_order, task="runtime", memory_limit=319))
    assert bound_of(graph, graph.input_order, task="runtime", memory_limit=320) == graph.runtime.sum()
