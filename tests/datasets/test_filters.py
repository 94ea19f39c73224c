"""Which graphs are kept: those with room, those that improve, and one of those that are alike."""

import itertools
import pickle
import re

import networkx
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import GraphBuilder, Problem
from schedopt.core.solve.solve import solve
from schedopt.datasets.filters import (
    KeepImproving,
    dedup_key,
    has_room,
    has_single_order,
    in_degree_sequence,
    plain_value,
    topology_hash,
)
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.synthetic import SyntheticParameters, synthetic_graph


def build(*ops):
    """Ops as `(inputs, size, runtime)`."""
    rows = (f"{at}: {' '.join(map(str, ins))} -> {size} us={us}" for at, (ins, size, us) in enumerate(ops))
    return sketch("; ".join(rows))


SINGLE = build(([], 5, 5))
CHAIN = build(([], 5, 1), ([0], 9, 2), ([1], 2, 3))
# 0 and 1 make 9 bytes, of which 2 and 3 keep 1: the file's order holds 19 bytes, 0 2 1 3 holds 11.
PAIRS = build(([], 9, 2), ([], 9, 2), ([0], 1, 2), ([1], 1, 2), ([2, 3], 1, 1))
PAIRS_IN_ORDER = build(([], 9, 2), ([0], 1, 2), ([], 9, 2), ([2], 1, 2), ([1, 3], 1, 1))
# The last op needs 10 + 1 bytes whatever comes before it.
JOINED = build(([], 5, 1), ([], 5, 1), ([0, 1], 1, 1))
FREE = build(([], 0, 0), ([], 0, 0), ([0, 1], 0, 0))


@pytest.mark.parametrize(
    ("graph", "task", "devices", "expected"),
    [
        (SINGLE, "memory", 1, False),
        (SINGLE, "runtime", 2, False),
        (CHAIN, "memory", 1, False),
        (CHAIN, "runtime", 2, False),
        (FREE, "memory", 1, False),
        (FREE, "runtime", 2, False),
        (PAIRS, "memory", 1, True),
        (PAIRS, "runtime", 2, True),
        (PAIRS, "runtime", 1, False),
        (PAIRS_IN_ORDER, "memory", 1, True),
        (JOINED, "memory", 1, False),
    ],
)
def test_room(graph, task, devices, expected):
    assert has_room(task, devices, graph) is expected


def test_a_chain_with_final_outputs_has_a_single_order():
    graph = sketch("a -> 5f; b: !a -> 5", "chain")
    assert has_single_order(graph) and not has_room("memory", 1, graph)
    assert not has_single_order(PAIRS)


@pytest.mark.parametrize(("few", "many", "kept"), [(100, 82, True), (100, 81, True), (100, 83, False), (0, 0, False)])
def test_improvement_is_measured_from_1000_to_10000_evaluations(monkeypatch, few, many, kept):
    calls = []

    def value(problem, evaluations, seed, enough=0.0):
        calls.append((problem.task, problem.devices, evaluations, seed, enough))
        return float(few if evaluations == 1000 else many)

    monkeypatch.setattr("schedopt.datasets.filters.plain_value", value)
    assert KeepImproving(0.18)(PAIRS, np.random.default_rng(0)) is kept
    assert [call[:3] for call in calls] == [("runtime", 2, 1000), ("runtime", 2, 10000)]
    assert calls[0][3] == calls[1][3] and calls[0][4] == 0 and calls[1][4] == pytest.approx(0.82 * few)


def test_a_search_that_ends_when_enough_is_found_decides_as_a_whole_one():
    ended = []
    for seed in range(6):
        graph = synthetic_graph(SyntheticParameters(), "erdos-renyi", np.random.default_rng(seed))
        problem = Problem(graph, task="runtime", devices=2)
        few, many = (solve(problem, "brkga", evaluations=count, seed=seed).value for count in (300, 1500))
        assert plain_value(problem, 300, seed) == few
        for share in (0.01, 0.03, 0.1):
            enough = few * (1 - share)
            found = plain_value(problem, 1500, seed, enough)
            assert (found <= enough) is (many <= enough)
            ended.append(found > many)
    assert any(ended)


def test_a_filter_is_a_value():
    """What it prints is hashed, so it must name what it keeps and nothing of the process that it is in."""
    keep, other = KeepImproving(0.18), KeepImproving(0.2)
    assert keep == KeepImproving(0.18) == pickle.loads(pickle.dumps(keep)) != other
    assert repr(keep) != repr(other)
    assert not re.search("0x|object at", repr(keep))


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
