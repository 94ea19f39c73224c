"""Lower bounds: golden values by hand, and the minimum cut against enumeration of all closed sets."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem
from schedopt.core.bounds import bounds
from schedopt.core.bounds.bounds import (
    critical_path,
    is_met,
    last_step_need,
    lower_bound,
    memory_bound,
    min_cut_bound,
    min_cuts,
    runtime_bound,
)
from schedopt.core.solve.solve import solve


def views():
    """a (100) -> v (30, view of a) -> w (60, view of v); r reads a, v and w; every op has weights."""
    return sketch("a -> 100 keep=7; v: a -> 30@0; w: v -> 60@0 keep=4; r: v w -> 5 6 work=9 keep=2", "views")


def test_memory_bound_by_hand():
    graph = views()
    assert memory_bound(Problem(graph)) == 13 + 120
    assert memory_bound(Problem(graph, devices=2)) == 107  # op a with its own weights
    assert lower_bound(Problem(graph, "memory", 2)) == 107


def test_persistent_bytes_are_shared_by_the_devices_at_best_rounded_up():
    graph = sketch("a -> keep=5; b -> keep=5; c -> keep=5", "weights")
    assert [memory_bound(Problem(graph, devices=d)) for d in (1, 2, 3, 4)] == [15, 8, 5, 5]


def test_runtime_bound_by_hand():
    """A chain of 2 + 3 + 1 beside an op of 20, then six more of 4."""
    builder = GraphBuilder("times")
    builder.add_op("a", outputs=[1], runtime=2.0)
    builder.add_op("b", inputs=[(0, 0)], runtime=3.0)
    builder.add_op("c", control=[1], runtime=1.0)
    builder.add_op("d", runtime=20.0)
    for number in range(6):
        builder.add_op(f"e{number}", runtime=4.0)
    graph = builder.build()
    assert critical_path(graph) == 20.0
    assert [runtime_bound(Problem(graph, "runtime", d)) for d in (1, 2, 4)] == [50.0, 25.0, 20.0]


@pytest.mark.parametrize("ops", [4, 2_400])
@pytest.mark.parametrize("machine", [None, "equal", "one is slower"])
def test_what_waits_for_an_op_shares_the_devices_after_it(ops, machine):
    """An op of as long as all its readers together, which neither the path nor the work alone bounds; any size."""
    builder = GraphBuilder("fan")
    builder.add_op("first", outputs=[1], runtime=float(ops))
    for reader in range(ops):
        builder.add_op(f"reader{reader}", inputs=[(0, 0)], runtime=1.0)
    is_slower = machine == "one is slower"
    devices = Device("a"), Device("b", speed=1 / 3 if is_slower else 1.0)
    where = {"machine": Machine(devices, np.inf, 0.0)} if machine else {"devices": 2}
    bound = lower_bound(Problem(builder.build(), "runtime", **where))
    assert bound == pytest.approx(ops * (1.75 if is_slower else 1.5), rel=1e-6)


def test_runtime_bound_is_a_multiple_of_what_all_times_are_multiples_of():
    """Three ops of 4 on two devices take 8, not 6; with transfers of 2 the unit is 2, and 0.5 makes it no unit."""
    ops = "a -> 8 us=4; b -> 8 us=4; c -> 8 us=4"
    graph = sketch(ops)
    assert runtime_bound(Problem(graph, "runtime", 2)) == 8.0
    assert runtime_bound(Problem(graph, "runtime", 5)) == 4.0
    assert runtime_bound(Problem(graph, "runtime", 2, latency=2.0)) == pytest.approx(6.0)
    assert runtime_bound(Problem(sketch(f"{ops}; d -> us=0.5"), "runtime", 2)) == 6.25


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_last_step_need_is_the_least_over_the_ops_that_can_be_last(seed):
    rng = np.random.default_rng([24, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 11)))
    everything = frozenset(plain.ops)
    steps = (
        plain.resident(everything - {op}) + plain.own[op] + plain.workspace[op]
        for op in plain.ops
        if not plain.after[op]
    )
    assert last_step_need(graph, graph.buffers) == min(steps)


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_min_cut_bound_is_the_largest_term_of_any_op(seed):
    """Whatever order it is given, although it tries only the steps that can still raise the bound."""
    rng = np.random.default_rng([22, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 11)))
    terms = (naive.least_arrival(plain, op) + plain.own[op] + plain.workspace[op] for op in plain.ops)
    largest = sum(plain.persistent) + max(terms)
    for _ in range(2):
        order = np.array(naive.random_order(rng, plain))
        assert min_cut_bound(Problem(graph), order) == largest
        assert min_cut_bound(Problem(graph), order, known=largest + 3) == largest + 3
        assert min_cut_bound(Problem(graph, devices=2), order, known=np.inf) == np.inf  # proven infeasible


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_min_cuts_name_the_set_of_least_memory(seed, monkeypatch):
    """Of one network for all ops, and, as in large graphs, of one for each."""
    monkeypatch.setattr(bounds, "LARGEST_NETWORK", 10**6 * (seed % 2))
    rng = np.random.default_rng([25, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 11)))
    order = np.array(naive.random_order(rng, plain))
    memory = np.array(naive.order_step_memory(plain, order.tolist())) - sum(plain.persistent)
    cuts = list(min_cuts(graph.buffers, order, memory, -1))
    for op, (term, side) in zip(order[np.argsort(-memory, kind="stable")].tolist(), cuts, strict=False):
        first = frozenset(np.flatnonzero(side).tolist())
        assert op not in first
        assert all(set(plain.before[other]) <= first for other in first | {op})
        assert term == plain.resident(first) + plain.own[op] + plain.workspace[op]
    assert cuts


def test_min_cut_sees_what_others_hold_while_an_op_runs():
    """`between` reads nothing, but runs after two branches of 10 bytes and before the join that reads them."""
    ops = "big0 -> 50; small0: big0 -> 10; big1 -> 50; small1: big1 -> 10; between: !small0 !small1 -> 45"
    graph = sketch(f"{ops}; join: small0 small1 !between -> 1", "join")
    assert memory_bound(Problem(graph)) == 60  # small0: 50 + 10
    assert min_cut_bound(Problem(graph), graph.input_order) == 65  # between: 2 x 10 + 45


@pytest.mark.filterwarnings("error")
def test_bytes_up_to_the_largest_sum_do_not_overflow():
    graph = sketch(f"a -> {2**62}; b: a -> {2**62 - 1}", "huge")
    result = solve(Problem(graph), "input")
    assert result.value == memory_bound(Problem(graph)) == 2**63 - 1
    assert min_cut_bound(Problem(graph), graph.input_order) <= 2**63 - 1


def test_a_bound_in_bytes_is_met_only_exactly():
    """Bytes are whole numbers: one byte more is not the bound, however large both are."""
    bound = 5 * 10**12
    assert is_met(bound, bound)
    assert not is_met(bound + 1, bound)


def test_a_bound_in_microseconds_is_met_up_to_the_rounding_of_sums():
    assert is_met(sum([0.1] * 10), 1.0)
    assert is_met(1.0, sum([0.1] * 10))
    assert not is_met(1.0 + 1e-9, 1.0)
