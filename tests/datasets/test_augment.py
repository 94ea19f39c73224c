"""Noisy copies (REGAL A.1.2)."""

import numpy as np
import pytest
from schedopt.core.base.errors import GraphError
from schedopt.core.files.costgraph import parse_graph
from schedopt.core.graph.builder import GraphBuilder
from schedopt.datasets.filters import topology_hash
from schedopt.datasets.folder import encoded_copies, noisy_copy
from schedopt.datasets.layered import LayeredParameters, layered_graph


@pytest.fixture
def graph():
    builder = GraphBuilder("original")
    for op in range(300):
        builder.add_op(
            f"op{op}",
            inputs=[(op - 1, 0)] if op else [],
            control=[op - 2] if op > 1 else [],
            outputs=[1_000_000, 2_000_000],
            aliases=[0, -1] if op else None,
            runtime=5000,
            workspace=77,
            persistent=99,
            final=op == 299,
        )
    return builder.build()


def test_every_size_and_runtime_has_its_own_factor_between_half_and_one_and_a_half(graph):
    copy = noisy_copy(graph, np.random.default_rng(0))
    data = ~graph.is_control
    for noisy, original in ((copy.tensor_size[data], graph.tensor_size[data]), (copy.runtime, graph.runtime)):
        factor = noisy / original
        assert factor.min() >= 0.5 and factor.max() <= 1.5
        assert factor.mean() == pytest.approx(1, abs=0.05)
        assert factor.std() == pytest.approx(12**-0.5, abs=0.03)
        assert len(set(factor.tolist())) > 0.9 * len(factor)
    assert np.array_equal(copy.runtime, np.rint(copy.runtime))


def test_everything_else_stays(graph):
    copy = noisy_copy(graph, np.random.default_rng(0))
    assert not copy.tensor_size[graph.is_control].any()
    for name in ("op_ids", "workspace", "persistent", "output_ptr", "alias_of", "is_final", "read_ptr", "read_tensor"):
        assert np.array_equal(getattr(copy, name), getattr(graph, name)), name
    assert copy.op_names == graph.op_names
    assert topology_hash(copy) == topology_hash(graph)
    assert np.array_equal(copy.predecessors[1], graph.predecessors[1])


@pytest.mark.slow
def test_copies_depend_on_seed_number_and_topology_only():
    graphs = [layered_graph(LayeredParameters(nodes=20), np.random.default_rng(seed)) for seed in range(3)]
    pairs = [(graph, topology_hash(graph)) for graph in graphs]
    copies = list(encoded_copies(pairs, 30, 4, ".pb"))
    assert copies == list(encoded_copies(pairs, 30, 4, ".pb", jobs=2))
    assert [(topology, number) for topology, number, _ in copies] == [
        (topology, number) for _, topology in pairs for number in range(1, 31)
    ]
    assert len({data for _, _, data in copies}) == 90
    alone = list(encoded_copies(pairs[2:], 2, 4, ".pb"))
    assert alone == copies[60:62]
    assert alone != list(encoded_copies(pairs[2:], 2, 5, ".pb"))
    assert {topology_hash(parse_graph(data, "copy")) for _, _, data in copies} == {t for _, t in pairs}


def test_copies_that_would_not_fit_are_refused():
    builder = GraphBuilder("huge")
    builder.add_op("a", outputs=[2**62, 2**61])
    with pytest.raises(GraphError, match="huge: the costs of a noisy copy would exceed"):
        for seed in range(100):
            noisy_copy(builder.build(), np.random.default_rng(seed))
