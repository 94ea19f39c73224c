"""Graph partition and DFS: sizes of the parts, the cut, the order on a device, and the merge."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import GraphBuilder, Problem, Schedule
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements.gp_dfs import device_orders, merge, partition


def never():
    return False


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 7, 64])
@pytest.mark.parametrize("ops", [1, 6, 41])
def test_parts_have_their_share_of_the_ops(devices, ops):
    graph, _ = naive.random_graph(np.random.default_rng(ops), ops)
    placement = partition(graph, devices, np.random.default_rng(0), never)
    counts = np.bincount(placement, minlength=devices)
    assert len(counts) == devices
    assert counts.sum() == ops
    assert counts.max() - counts.min() <= np.log2(devices) + 1


@pytest.mark.parametrize("seed", range(8))
def test_two_clusters_joined_by_a_thin_edge_are_told_apart(seed):
    builder = GraphBuilder("clusters")
    for at in range(20):
        near = [(p, 0) for p in range(at % 2, at, 2)][-3:]
        builder.add_op(f"op{at}", inputs=near + ([(18, 0)] if at == 19 else []), outputs=[1 if at == 18 else 100])
    placement = partition(builder.build(), 2, np.random.default_rng(seed), never)
    assert len(set(placement[0::2])) == len(set(placement[1::2])) == 1


def test_the_branch_with_more_bytes_comes_first():
    """Neither branch has extra users: the heavy one runs first although it comes later in the file."""
    graph = sketch(
        "light -> 1; light2: light -> 1; heavy -> 100; heavy2: heavy -> 1; join: light2 heavy2 -> 1", "branches"
    )
    assert device_orders(graph, np.zeros(5, np.int32), 1) == [[2, 3, 0, 1, 4]]


def test_the_branch_with_more_users_comes_before_the_one_with_more_bytes():
    graph = sketch("heavy -> 100; shared -> 1; one: shared -> 1; join: heavy one -> 1; other: shared -> 1", "users")
    assert device_orders(graph, np.zeros(5, np.int32), 1) == [[1, 2, 0, 3, 4]]


@pytest.mark.parametrize("seed", seeds(30, quick=4))
@pytest.mark.parametrize("devices", [1, 2, 3, 6])
def test_any_placement_gives_device_orders_and_a_valid_merge(seed, devices):
    rng = np.random.default_rng([141, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 25)))
    placement = rng.integers(0, devices, graph.num_ops).astype(np.int32)
    orders = device_orders(graph, placement, devices)
    for device, order in enumerate(orders):
        assert sorted(order) == [op for op in plain.ops if placement[op] == device]
        for at, op in enumerate(order):
            assert {p for p in plain.before[op] if placement[p] == device} <= set(order[:at])
    problem = Problem(graph, "memory", devices, bandwidth=2e6, latency=0.5)
    schedule = merge(problem, placement, orders)
    verify(problem, schedule)
    assert schedule.placement(graph).tolist() == placement.tolist()
    if devices == 1:
        assert schedule.op_order().tolist() == orders[0]
    for step, item in enumerate(schedule.items.tolist()):  # every transfer serves the next op
        if item < 0:
            reader = next(v for v in schedule.items[step:].tolist() if v >= 0)
            assert ~item in [plain.index[t] for t in plain.reads[reader]]


def test_it_is_one_evaluation_and_its_seed_draws_the_start():
    graph, _ = naive.random_graph(np.random.default_rng(142), 40, edges=2.0)
    problem = Problem(graph, devices=2)
    results = [solve(problem, "gp-dfs", seed=seed) for seed in range(6)]
    assert {result.evaluations for result in results} == {1}
    assert len({result.value for result in results}) > 1
    order = device_orders(graph, np.zeros(40, np.int32), 1)[0]
    alone = simulate(Problem(graph), Schedule.single_device(np.array(order)))
    assert solve(Problem(graph), "gp-dfs").value == alone.peak
