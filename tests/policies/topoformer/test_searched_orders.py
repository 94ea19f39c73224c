"""Orders to imitate: searched once per graph, kept on disk, and checked when they are read."""

import json
from functools import partial

import numpy as np
import pytest
from schedopt.core.base.errors import FormatError
from schedopt.core.model.verifier import verify
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.solve.solve import solve
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer import training as searching
from schedopt.policies.topoformer.training import searched_orders


def layered(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [layered_graph(LayeredParameters(nodes=size), rng, f"graph-{size}") for size in sizes]


@pytest.fixture
def counted(monkeypatch):
    """Count the searches."""
    names = []

    def search(evaluations, seed, problem):
        names.append(problem.graph.name)
        return solve(problem, "order-search", evaluations=evaluations, seed=seed).schedule.op_order()

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
