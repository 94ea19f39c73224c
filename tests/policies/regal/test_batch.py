"""Batches of REGAL's graphs: one after the other, nothing padded, and lined up for recurrent networks."""

import naive
import numpy as np
import torch
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.policies.regal.batch import lines, multigraph_batch, nodes_of, sequences
from schedopt.policies.regal.features import searched_graph


def searched(problem):
    return searched_graph(Search(problem, seed=0, max_evaluations=150))


def test_a_batch_puts_graphs_one_after_the_other():
    problems = [
        Problem(naive.random_graph(np.random.default_rng([64, ops]), ops)[0], "runtime", 2) for ops in (9, 1, 14)
    ]
    graphs = [searched(problem) for problem in problems]
    batch = multigraph_batch(graphs)
    assert batch.sizes.tolist() == [9, 1, 14]
    assert batch.graph_of_node.tolist() == [0] * 9 + [1] + [2] * 14
    starts = [0, 9, 10]
    for at, (graph, start) in enumerate(zip(graphs, starts, strict=True)):
        mine = batch.graph_of_node == at
        assert (batch.nodes[mine].numpy() == graph.nodes).all()
        edges = mine[batch.producers]
        assert (batch.producers[edges].numpy() == graph.producers + start).all()
        assert (batch.consumers[edges].numpy() == graph.consumers + start).all()
        assert (batch.edges[edges].numpy() == graph.edges).all()
        assert (batch.order[mine].numpy() == graph.problem.graph.input_order + start).all()
    assert len(batch.edges) == sum(len(graph.edges) for graph in graphs)
    assert all(torch.equal(one, other) for one, other in zip(batch.to(torch.device("cpu")), batch, strict=True))


def test_sequences_line_nodes_up_in_topological_order_and_back():
    problems = [Problem(naive.random_graph(np.random.default_rng([65, ops]), ops)[0], "memory", 2) for ops in (4, 7)]
    batch = multigraph_batch([searched(problem) for problem in problems])
    nodes = torch.arange(3 * 11 * 2, dtype=torch.float32).reshape(3, 11, 2)
    lined = sequences(nodes, batch)
    assert lined.shape == (3, 2, 7, 2)
    orders = [problem.graph.input_order.tolist() for problem in problems]
    assert lines(batch).tolist() == [[*orders[0], -1, -1, -1], [4 + op for op in orders[1]]]
    assert torch.equal(lined[:, 0, :4], nodes[:, orders[0]])
    assert torch.equal(lined[:, 1], nodes[:, [4 + op for op in orders[1]]])
    assert torch.equal(nodes_of(lined, batch), nodes)
