"""Teachers: what they choose, against what they say they choose, and whether BRKGA is better for it."""

import numpy as np
import pytest
from models.small_graphs import chain_of, sketch
from schedopt import GraphBuilder, Problem, Search
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.placements import brkga
from schedopt.core.solvers.placements.brkga import GeneDistribution, evolve
from schedopt.datasets.synthetic import SyntheticParameters, synthetic_graph
from schedopt.policies.regal.actions import ActionParameters, dequantise
from schedopt.policies.regal.features import searched_graph
from schedopt.policies.regal.teachers import TEACHERS

LEVELS = ActionParameters(placement=4, scheduling=16, crossover=10, transfers=16)
BY_TIME, BY_ORDER = "cut-and-time-64", "cut-and-order-64"


def searched(graph, task="runtime", devices=2, seed=0):
    return searched_graph(Search(Problem(graph, task=task, devices=devices), seed=seed, max_evaluations=400))


def chosen(teacher, seen, levels=LEVELS):
    return TEACHERS[teacher](seen, levels)


def synthetic(seed, nodes=40):
    parameters = SyntheticParameters(nodes_low=nodes, nodes_high=nodes)
    return synthetic_graph(parameters, "watts-strogatz", np.random.default_rng(seed))


def two_parts(ops=12):
    """Two dense parts with one edge between them, listed in turns; returns the graph and the part of each op."""
    builder = GraphBuilder("two parts")
    parts = np.arange(2 * ops) % 2
    for op in range(2 * ops):
        before = [(other, 0) for other in range(op) if parts[other] == parts[op]]
        before += [(ops - 1, 0)] if op == ops else []
        builder.add_op(f"op{op}", inputs=before, outputs=[10], runtime=5.0)
    return builder.build(), parts


def device_of(actions, devices=2):
    """Return the device of the largest mean affinity: the means are every second head."""
    return actions[:, 0 : 2 * devices : 2].argmax(1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("teacher", [BY_TIME, "cut-and-time-16"])
def test_parts_with_few_edges_between_them_come_apart(teacher, seed):
    graph, parts = two_parts()
    placement = device_of(chosen(teacher, searched(graph, seed=seed)))
    assert (placement == parts).all() or (placement != parts).all()


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("task", ["runtime", "memory"])
def test_devices_share_the_weight(task, devices):
    graph = synthetic(1, nodes=80)
    actions = chosen(BY_TIME if task == "runtime" else BY_ORDER, searched(graph, task, devices))
    written = np.bincount(graph.tensor_producer, graph.tensor_size, graph.num_ops)
    weight = graph.runtime if task == "runtime" else written
    shares = np.bincount(device_of(actions, devices), weight, devices) / weight.sum()
    np.testing.assert_allclose(shares, 1 / devices, atol=0.1)


def test_priorities_fall_along_edges_and_a_transfer_is_between_its_op_and_the_reader():
    graph = synthetic(2)
    actions = chosen(BY_TIME, searched(graph))
    scheduling, transfers = actions[:, 4], actions[:, -2]
    producers, consumers = graph.edges
    assert (scheduling[producers] >= transfers[producers]).all()
    assert (transfers[producers] >= scheduling[consumers]).all()
    assert scheduling.max() - scheduling.min() > 8


def test_priorities_follow_an_order_of_low_peak():
    graph = synthetic(3)
    actions = chosen(BY_ORDER, searched(graph, "memory"))
    order = solve(Problem(graph), "order-search:proofs=0", evaluations=600).schedule.op_order()
    assert (np.diff(actions[order, 4]) <= 0).all()
    assert actions[order[0], 4] == 15 and actions[order[-1], 4] == 0


def test_levels_of_alpha_and_beta_are_the_nearest_to_the_same_distributions():
    """Beta(1, 1) is among them; wanted are a mean of 0.8 or 0.2 and alpha + beta = 4, and alpha + beta = 16."""
    seen, levels = searched(synthetic(4)), ActionParameters(placement=4, scheduling=16, levels="alpha-beta")
    plain, taught = (
        dequantise(chosen(teacher, seen, levels), seen.problem.graph, 2, levels) for teacher in ("uniform", BY_TIME)
    )
    ops = len(seen.nodes)
    assert (plain.alpha == 1).all() and (plain.beta == 1).all()
    pairs = set(zip(taught.alpha[: 2 * ops], taught.beta[: 2 * ops], strict=True))
    assert pairs == {(4.0, 1.0), (1.0, 4.0)}
    assert np.abs(np.log2((taught.alpha + taught.beta)[2 * ops : 3 * ops] / 16)).max() < 0.3


@pytest.mark.parametrize(
    ("task", "teacher", "least"),
    [
        ("runtime", BY_TIME, 0.05),
        pytest.param("memory", BY_ORDER, 0.03, marks=pytest.mark.slow),
        pytest.param("memory", "ordered", 0.0, marks=pytest.mark.slow),
    ],
)
def test_brkga_is_better_for_it(task, teacher, least):
    ratios = []
    for seed in range(6):
        problem = Problem(synthetic(seed, nodes=100), task=task, devices=2)
        seen = searched(problem.graph, task)
        values = []
        for distribution in (dequantise(chosen(teacher, seen), problem.graph, 2, LEVELS), GeneDistribution()):
            search = Search(problem, seed=seed, max_evaluations=2000)
            evolve(search, brkga.Parameters(), distribution)
            values.append(search.best_value)
        ratios.append(values[0] / values[1])
    assert np.mean(ratios) < 1 - least


@pytest.mark.slow
def test_the_plan_is_imitated_on_its_own_devices_or_all_on_the_first():
    """A chain whose transfers take long stays on one device; two parts come apart, called as the features call them."""
    problem = Problem(chain_of(8), "runtime", devices=2, latency=100.0)
    seen = searched_graph(Search(problem, seed=0, max_evaluations=400))
    assert (device_of(chosen("planned", seen)) == 0).all()
    assert (np.diff(chosen("planned", seen)[:, 4]) < 0).all()  # the mean priorities fall along the order
    for seed in range(4):
        graph, parts = two_parts()
        seen = searched(graph, seed=seed)
        placement = device_of(chosen("planned", seen))
        assert (placement == parts).all() or (placement != parts).all()
        found = seen.nodes[:, -3:-1]
        assert found[np.arange(24), placement].sum() >= found[np.arange(24), 1 - placement].sum()


@pytest.mark.slow
def test_the_smallest_graphs():
    for task in ("runtime", "memory"):
        for teacher in TEACHERS:
            assert chosen(teacher, searched(sketch("op -> 4 us=1"), task)).shape == (1, 11)
