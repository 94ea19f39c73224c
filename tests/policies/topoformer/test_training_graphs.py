"""Graphs to train on: the same for the same numbers, with orders worth imitating."""

import itertools

import naive
import numpy as np
import pytest
from schedopt.core.base.parallel import chunks
from schedopt.core.files.costgraph import graph_hash
from schedopt.core.model.verifier import verify
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.solve.solve import solve
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer.training import (
    VALIDATION,
    Source,
    encoded_examples,
    good_order,
)

SOURCE = Source(seed=3, nodes=(10, 20), eigenvectors=4, teacher_width=20)


def layered(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [layered_graph(LayeredParameters(nodes=size), rng, f"graph-{size}") for size in sizes]


def hashes(examples):
    return [graph_hash(example.encoded.graph) for example in examples]


def drawn(source, epoch, graphs, size, first=0):
    return [hashes(source.examples(epoch, part)) for part in chunks(graphs, size)[first:]]


def joined(batches):
    return list(itertools.chain(*batches))


@pytest.mark.slow
def test_graphs_depend_on_seed_epoch_and_number_alone():
    """An epoch begun in the middle or cut into other batches has the same graphs."""
    whole = drawn(SOURCE, 1, 10, 4)
    assert list(map(len, whole)) == [4, 4, 2]
    assert drawn(SOURCE, 1, 10, 4, first=1) == whole[1:]
    assert joined(drawn(SOURCE, 1, 10, 3)) == joined(whole)
    other_seed = Source(seed=4, nodes=(10, 20), eigenvectors=4)
    everything = joined(whole + drawn(SOURCE, 0, 10, 4) + drawn(other_seed, 1, 10, 4))
    everything += hashes(SOURCE.examples(0, range(VALIDATION, VALIDATION + 10)))
    assert len(set(everything)) == 40


def test_orders_to_imitate_are_valid_and_their_peaks_are_those_of_the_simulator():
    for index in range(5):
        example = SOURCE.example(0, index)
        graph = example.encoded.graph
        problem = Problem(graph)
        verify(problem, Schedule.single_device(example.order), peak_per_device=[example.peak])
        assert example.peak <= solve(problem, "bfs").value
    assert Source(seed=3, nodes=(10, 20), eigenvectors=4).example(0, 0).order is None


def test_good_orders_are_optimal_on_small_graphs():
    rng = np.random.default_rng(5)
    for _ in range(10):
        graph, plain = naive.random_graph(rng, 7)
        order = good_order(graph, 1000, rng)
        assert naive.order_peak(plain, order.tolist()) == naive.least_peak(plain)


def test_given_graphs_come_with_their_own_orders():
    graphs = layered(10, 15)
    orders = [graph.input_order for graph in graphs]
    examples = encoded_examples(graphs, orders, eigenvectors=4)
    assert [example.peak for example in examples] == [solve(Problem(graph), "input").value for graph in graphs]
    assert [example.order.tolist() for example in examples] == [order.tolist() for order in orders]
