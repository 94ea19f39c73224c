"""Topoformer, appendix A: each algorithm keeps what its text says."""

import itertools
import math

import numpy as np
import pytest
from schedopt.datasets.layered import (
    LayeredParameters,
    assign_edges,
    assign_nodes,
    assign_skip_connections,
    draw_costs,
    edge_budget,
    layered_graph,
)


def layers_of(graph):
    layer = [int(name.partition("/")[0].removeprefix("layer")) for name in graph.op_names]
    return np.array(layer)


@pytest.mark.parametrize("width", [0.25, 0.375, 0.5])
@pytest.mark.parametrize("nodes", [1, 2, 17, 500])
def test_algorithm_1_layer_sizes_are_in_the_range_of_equation_12(width, nodes):
    parameters = LayeredParameters(nodes=nodes, width_low=width, width_high=width)
    target = math.ceil(math.sqrt(nodes * (1 / width - 1)))
    low, high = math.ceil(nodes / target * 0.25), math.floor(nodes / target * 1.75)
    for seed in range(20):
        layers = assign_nodes(parameters, np.random.default_rng(seed))
        assert [op for layer in layers for op in layer] == list(range(nodes))
        assert all(low <= len(layer) <= max(low, high) for layer in layers[:-1])
        assert 1 <= len(layers[-1]) <= max(low, high)


def test_equation_13_by_hand():
    assert edge_budget(4, 6, 0.2) == 10  # 4.8 + 4.8 = 9.6
    assert edge_budget(3, 5, 0) == 5
    assert edge_budget(3, 5, 1) == 15
    assert edge_budget(2, 2, 0.25) == 3  # 1 + 1.5 = 2.5, up


@pytest.mark.parametrize("density", [0, 0.2, 0.7, 1])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (1, 7), (7, 1), (1, 1), (12, 12), (9, 4, 20, 1, 6)])
def test_algorithm_2_edges(sizes, density):
    starts = np.cumsum((0, *sizes)).tolist()
    layers = [range(a, b) for a, b in itertools.pairwise(starts)]
    for seed in range(5):
        edges = assign_edges(layers, density, np.random.default_rng(seed))
        assert len(set(edges)) == len(edges)
        for first, second in itertools.pairwise(layers):
            between = [(a, b) for a, b in edges if a in first]
            assert all(b in second for _, b in between)
            assert len(between) == edge_budget(len(first), len(second), density)
            assert {a for a, _ in between} == set(first)
            assert {b for _, b in between} == set(second)
            large, end = (first, 0) if len(first) >= len(second) else (second, 1)
            of_op = [sum(edge[end] == op for edge in between) for op in large]
            assert max(of_op) - min(of_op) <= 1


def test_algorithm_2_edges_of_an_op_are_neighbours_below_it():
    layers = [range(9), range(9, 14)]
    edges = assign_edges(layers, 0.5, np.random.default_rng(0))
    centers = []
    for op in layers[0]:
        targets = sorted(b for a, b in edges if a == op)
        assert targets == list(range(targets[0], targets[-1] + 1))
        centers.append(sum(targets) / len(targets))
    assert centers == sorted(centers)
    assert (min(b for a, b in edges if a == 0), max(b for a, b in edges if a == 8)) == (9, 13)


def test_algorithm_3_skips_at_least_one_layer():
    layers = [range(10 * layer, 10 * layer + 10) for layer in range(6)]
    seen = set()
    for seed in range(50):
        skips = assign_skip_connections(layers, 86, 0.14, np.random.default_rng(seed))
        assert len(skips) == 14  # 86 * 0.14 / 0.86, exactly
        for source, target in skips:
            seen.add((source // 10, target // 10))
            assert -1 <= target % 10 - source % 10 <= 2
    assert seen == {(s, t) for s in range(4) for t in range(s + 2, 6)}


def test_costs_are_one_of_each_per_layer_and_positive():
    graph = layered_graph(LayeredParameters(), np.random.default_rng(0))
    layer = layers_of(graph)
    for costs in (graph.tensor_size, graph.workspace):
        of_layer = [set(costs[layer == number].tolist()) for number in range(layer.max() + 1)]
        assert all(len(values) == 1 for values in of_layer)
        assert len(set.union(*of_layer)) == layer.max() + 1
        assert costs.min() > 0
    assert not graph.runtime.any() and not graph.persistent.any()
    assert (np.diff(graph.output_ptr) == 1).all()


def test_mixture_has_the_moments_of_the_papers_one():
    parameters = LayeredParameters()
    costs = draw_costs(parameters, 200_000, np.random.default_rng(0)) / parameters.unit
    rng = np.random.default_rng(1)  # the mixture of appendix A by plain rejection
    component = rng.choice(4, 400_000, p=[0.3, 0.3, 0.3, 0.1])
    drawn = rng.normal(np.array([0.5, 1, 3, 5])[component], np.array([0.5, 1, 1, 1])[component])
    expected = drawn[drawn > 0]
    assert costs.mean() == pytest.approx(expected.mean(), rel=0.01)
    assert costs.std() == pytest.approx(expected.std(), rel=0.01)
    assert np.quantile(costs, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(expected, [0.1, 0.5, 0.9]), rel=0.03)


def test_every_op_but_those_at_the_ends_has_producers_and_consumers():
    for seed in range(10):
        graph = layered_graph(LayeredParameters(nodes=200), np.random.default_rng(seed))
        layer = layers_of(graph)
        sources, targets = graph.edges
        assert set(targets.tolist()) == set(np.flatnonzero(layer > 0).tolist())
        assert set(sources.tolist()) == set(np.flatnonzero(layer < layer.max()).tolist())
        skipped = layer[targets] - layer[sources]
        adjacent = int((skipped == 1).sum())
        sizes = np.bincount(layer).tolist()
        assert adjacent == sum(edge_budget(a, b, 0.2) for a, b in itertools.pairwise(sizes))
        assert 0.7 * adjacent * 0.14 / 0.86 <= (skipped > 1).sum() <= adjacent * 0.14 / 0.86 + 1
