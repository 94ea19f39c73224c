"""The topology hash does not see names, order or costs, and sees every edge."""

import itertools

import networkx
import numpy as np
import pytest
from schedopt.core.graph.builder import GraphBuilder
from schedopt.datasets.filters import dedup_key, in_degree_sequence, topology_hash
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.synthetic import SyntheticParameters


def relabelled(graph, rng):
    """The same ops in a random order with other names, ids and costs."""
    builder = GraphBuilder("relabelled")
    ids = rng.permutation(10 * graph.num_ops)[: graph.num_ops].tolist()
    for op in rng.permutation(graph.num_ops).tolist():
        reads = graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist()
        producer = graph.tensor_producer
        data = [t for t in reads if not graph.is_control[t]]
        builder.add_op(
            f"other{op}",
            op_id=ids[op],
            inputs=[(ids[producer[t]], t - int(graph.output_ptr[producer[t]])) for t in data],
            control=[ids[producer[t]] for t in reads if graph.is_control[t]],
            outputs=rng.integers(1, 99, sum(not graph.is_control[t] for t in graph.outputs(op))).tolist(),
            runtime=float(rng.integers(99)),
        )
    return builder.build()


def from_edges(count, data, control=()):
    builder = GraphBuilder("small")
    for op in range(count):
        builder.add_op(
            str(op),
            inputs=[(a, 0) for a, b in data if b == op],
            control=[a for a, b in control if b == op],
            outputs=[1],
        )
    return builder.build()


@pytest.mark.parametrize("family", [LayeredParameters(nodes=60), SyntheticParameters()])
def test_relabelling_changes_neither_key(family):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        graph = family.draw(seed, rng)
        other = relabelled(graph, rng)
        assert topology_hash(other) == topology_hash(graph)
        assert in_degree_sequence(other) == in_degree_sequence(graph)


def test_direction_kind_and_number_of_ops_count():
    chain = [(0, 1), (1, 2)]
    graphs = [
        from_edges(3, chain),
        from_edges(3, [(0, 1), (0, 2)]),
        from_edges(3, [(0, 2), (1, 2)]),
        from_edges(3, [(0, 1)], [(1, 2)]),
        from_edges(3, [(1, 2)], [(0, 1)]),
        from_edges(3, chain, [(0, 1)]),
        from_edges(4, chain),
    ]
    assert len({topology_hash(graph) for graph in graphs}) == len(graphs)


def test_agrees_with_isomorphism_on_all_graphs_of_four_ops():
    pairs = list(itertools.combinations(range(4), 2))
    groups = {}
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        edges = [pair for pair, is_in in zip(pairs, chosen, strict=True) if is_in]
        digraph = networkx.DiGraph(edges)
        digraph.add_nodes_from(range(4))
        groups.setdefault(topology_hash(from_edges(4, edges)), []).append(digraph)
    assert len(groups) == 31  # unlabelled acyclic digraphs of four nodes (OEIS A003087)
    for same in groups.values():
        assert all(networkx.is_isomorphic(same[0], other) for other in same)


def test_the_hash_stays_as_data_sets_on_disk_have_it():
    assert topology_hash(from_edges(3, [(0, 1), (1, 2)], [(0, 2)])) == "24406a86462601c8"


def test_in_degrees_count_distinct_producers():
    graph = from_edges(4, [(0, 3), (1, 3), (1, 2)], [(0, 3), (0, 1)])
    assert in_degree_sequence(graph) == (2, 1, 1, 0)
    one, other = from_edges(4, [(0, 1), (2, 3)]), from_edges(4, [(0, 1), (0, 2)])
    assert dedup_key(one, "in-degrees", "x") == dedup_key(other, "in-degrees", "y")
    assert topology_hash(one) != topology_hash(other)
