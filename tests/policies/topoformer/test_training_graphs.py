"""Graphs to train on: the same for the same numbers, all of them once a turn, with orders worth imitating."""

import itertools
import json
from functools import partial

import naive
import numpy as np
import pytest
from schedopt.core.comparison.resume import graph_hash
from schedopt.core.costs.verifier import verify
from schedopt.core.errors import FormatError
from schedopt.core.parallel import chunks
from schedopt.core.problem import Problem
from schedopt.core.schedule import Schedule
from schedopt.core.solve import solve
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer import searched_orders as searching
from schedopt.policies.topoformer.searched_orders import searched_orders
from schedopt.policies.topoformer.training_graphs import (
    VALIDATION,
    Source,
    encoded_examples,
    given_batches,
    good_order,
    layered_batches,
    validation_examples,
)

SOURCE = Source(seed=3, nodes=(10, 20), eigenvectors=4, teacher_width=20)


def layered(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [layered_graph(LayeredParameters(nodes=size), rng, f"graph-{size}") for size in sizes]


def hashes(examples):
    return [graph_hash(example.encoded.graph) for example in examples]


def drawn(source, epoch, graphs, size, first=0, jobs=1):
    return [hashes(batch) for batch in layered_batches(source, epoch, chunks(graphs, size)[first:], jobs)]


def joined(batches):
    return list(itertools.chain(*batches))


def test_graphs_depend_on_seed_epoch_and_number_alone():
    """An epoch begun in the middle, cut into other batches or drawn by other processes has the same graphs."""
    whole = drawn(SOURCE, 1, 10, 4)
    assert list(map(len, whole)) == [4, 4, 2]
    assert drawn(SOURCE, 1, 10, 4, first=1) == whole[1:]
    assert joined(drawn(SOURCE, 1, 10, 3)) == joined(whole)
    assert drawn(SOURCE, 1, 10, 4, jobs=2) == whole
    other_seed = Source(seed=4, nodes=(10, 20), eigenvectors=4)
    everything = joined(whole + drawn(SOURCE, 0, 10, 4) + drawn(other_seed, 1, 10, 4))
    everything += hashes(validation_examples(SOURCE, 10))
    assert len(set(everything)) == 40


def test_sizes_are_within_the_range_and_reach_both_ends():
    sizes = [SOURCE.example(0, index).encoded.graph.num_ops for index in range(80)]
    assert (min(sizes), max(sizes)) == (10, 20)


def test_validation_graphs_are_those_of_numbers_that_no_epoch_has():
    expected = [SOURCE.example(0, VALIDATION + index) for index in range(3)]
    assert hashes(validation_examples(SOURCE, 3)) == hashes(expected)


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


def test_each_turn_takes_every_given_graph_once_in_another_order():
    graphs = layered(10, 11, 12, 13, 14)
    examples = encoded_examples(graphs, [], eigenvectors=4)
    sizes = partial(map, lambda example: example.encoded.graph.num_ops)

    def turns(epoch, first=0):
        ranges = chunks(12, 4)[first:]
        return [size for batch in given_batches(examples, 0, epoch, ranges) for size in sizes(batch)]

    epoch = turns(0)
    assert sorted(epoch[:5]) == sorted(epoch[5:10]) == [10, 11, 12, 13, 14]
    assert len(set(epoch[10:])) == 2
    assert epoch[:5] != epoch[5:10] != turns(1)[:5] != epoch[:5]
    assert turns(0, first=1) == epoch[4:]


def test_given_graphs_come_with_their_own_orders():
    graphs = layered(10, 15)
    orders = [graph.input_order for graph in graphs]
    examples = encoded_examples(graphs, orders, eigenvectors=4)
    assert [example.peak for example in examples] == [solve(Problem(graph), "input").value for graph in graphs]
    assert [example.order.tolist() for example in examples] == [order.tolist() for order in orders]


@pytest.fixture
def counted(monkeypatch):
    """Count the searches."""
    names = []

    def search(evaluations, seed, graph):
        names.append(graph.name)
        return solve(Problem(graph), "order-search", evaluations=evaluations, seed=seed).schedule.op_order()

    monkeypatch.setattr(searching, "_search", search)
    return names


def test_searched_orders_are_kept_and_not_searched_for_again(counted, tmp_path):
    graphs, path = layered(20, 25, 30), tmp_path / "orders.jsonl"
    seen = []
    search = partial(searched_orders, path=path, evaluations=50, seed=0)
    orders = search([*graphs, graphs[0]], on_order=seen.append)
    assert counted == ["graph-20", "graph-25", "graph-30"]
    assert seen == [0, 1, 2, 3]
    for graph, order in zip([*graphs, graphs[0]], orders, strict=True):
        wanted = solve(Problem(graph), "order-search", evaluations=50).value
        verify(Problem(graph), Schedule.single_device(order), peak_per_device=[wanted])
    again = search(graphs[::-1])
    assert len(counted) == 3
    assert [order.tolist() for order in again] == [order.tolist() for order in orders[2::-1]]
    search(graphs[:1], evaluations=60)
    search(graphs[:1], seed=1)
    assert len(counted) == 5


def test_a_search_that_was_stopped_goes_on(counted, tmp_path):
    graphs, path = layered(20, 25, 30), tmp_path / "orders.jsonl"
    search = partial(searched_orders, graphs, path, evaluations=50, seed=0)
    assert search(must_stop=lambda: len(counted) == 2) is None
    path.write_bytes(path.read_bytes() + b'{"key": "to')
    assert [order.size for order in search()] == [20, 25, 30]
    assert counted == ["graph-20", "graph-25", "graph-30"]
    assert [len(json.loads(line)["order"]) for line in path.read_text().splitlines()] == [20, 25, 30]


@pytest.mark.parametrize("text", ["nonsense\n", "[1]\n", '{"no key": 1}\n'])
def test_a_file_of_something_else_is_refused(text, tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"orders\.jsonl: line 1 is not of orders; delete the file"):
        searched_orders(layered(10), path, evaluations=50, seed=0)


def test_a_damaged_order_is_refused(tmp_path):
    graphs, path = layered(10), tmp_path / "orders.jsonl"
    searched_orders(graphs, path, evaluations=50, seed=0)
    record = json.loads(path.read_text())
    whole = record["order"]
    for order in ([whole[1], *whole[1:]], whole[1:], [[0], *whole[1:]], None):
        path.write_text(json.dumps({**record, "order": order}) + "\n")
        with pytest.raises(FormatError, match="the order of graph-10 is damaged"):
            searched_orders(graphs, path, evaluations=50, seed=0)
