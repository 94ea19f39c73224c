"""The inputs of Topoformer against paths and matrices written out, and networkx."""

import naive
import networkx as nx
import numpy as np
import pytest
import scipy.sparse.linalg
from models.seeds import seeds
from schedopt import GraphBuilder
from schedopt.core.search.search import Cancelled
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.policies.topoformer import features as laplacian
from schedopt.policies.topoformer.features import op_features, positional_encoding


def layered(ops, seed=0):
    return layered_graph(LayeredParameters(nodes=ops), np.random.default_rng([50, seed]), "layered")


def of_edges(ops, edges):
    """A graph without tensors."""
    builder = GraphBuilder("edges")
    for op in range(ops):
        builder.add_op("", control=[first for first, second in edges if second == op])
    return builder.build()


def chain(ops, first=0):
    return [(first + op, first + op + 1) for op in range(ops - 1)]


def copies(graph, count):
    shifts = np.arange(count)[:, None] * graph.num_ops
    edges = zip(*((shifts + ends).ravel().tolist() for ends in graph.edges), strict=True)
    return of_edges(graph.num_ops * count, list(edges))


def branches(count, length):
    """One source, `count` chains beside each other, one target."""
    end = count * length + 1
    edges = []
    for first in range(1, end, length):
        edges += [(0, first), *chain(length, first), (first + length - 1, end)]
    return of_edges(end + 1, edges)


def undirected(graph):
    joined = nx.Graph(list(zip(*(ends.tolist() for ends in graph.edges), strict=True)))
    joined.add_nodes_from(range(graph.num_ops))
    return joined


def assert_smoothest(graph, encoding, matrix):
    """The columns are orthogonal eigenvectors of `matrix`, of its least eigenvalues after one zero per component."""
    count = encoding.shape[1]
    components = nx.number_connected_components(undirected(graph))
    expected = np.linalg.eigvalsh(matrix)[components : components + count]
    found = encoding[:, : len(expected)] / np.sqrt(graph.num_ops)
    assert not encoding[:, len(expected) :].any()
    assert found.T @ found == pytest.approx(np.eye(len(expected)), abs=1e-9)
    values = np.diag(found.T @ matrix @ found)
    assert values == pytest.approx(expected, abs=1e-9)
    assert matrix @ found == pytest.approx(found * values, abs=1e-9)


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_the_first_eight_are_costs_degrees_and_hops(seed):
    rng = np.random.default_rng([51, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 20)))
    from_source = [naive.hops(plain.before, op) for op in plain.ops]
    to_target = [naive.hops(plain.after, op) for op in plain.ops]
    rows = [
        [
            plain.own[op],
            plain.workspace[op],
            len(plain.before[op]),
            len(plain.after[op]),
            min(from_source[op]),
            max(from_source[op]),
            min(to_target[op]),
            max(to_target[op]),
        ]
        for op in plain.ops
    ]
    expected = [[v / max(column) if max(column) else 0.0 for v in column] for column in zip(*rows, strict=True)]
    assert op_features(graph)[:, :8] == pytest.approx(np.array(expected).T, rel=1e-6)


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_eigenvectors_of_random_graphs_of_several_components(seed):
    rng = np.random.default_rng([52, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 40)), edges=[0.5, 1.0, 2.0][seed % 3])
    assert_smoothest(graph, positional_encoding(graph, 20), naive.normalised_laplacian(plain))


LARGE = {
    "layered": lambda: layered(700),
    "long": lambda: of_edges(700, chain(700)),
    "shallow": lambda: of_edges(600, [(0, op) for op in range(1, 600)]),
    "copies": lambda: copies(layered(30), 25),
    "pairs": lambda: copies(of_edges(2, [(0, 1)]), 300),
    "short branches": lambda: branches(200, 3),
    "long branches": lambda: branches(25, 28),
    "partly alone": lambda: of_edges(900, list(zip(*(ends.tolist() for ends in layered(600).edges), strict=True))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_eigenvectors_of_large_graphs_whatever_their_spectrum(name):
    graph = LARGE[name]()
    matrix = nx.normalized_laplacian_matrix(undirected(graph), nodelist=range(graph.num_ops)).toarray()
    encoding = positional_encoding(graph, 20)
    assert_smoothest(graph, encoding, matrix)
    assert (encoding == positional_encoding(graph, 20)).all()
    assert (encoding != 0).any(axis=0).all()


@pytest.mark.parametrize("missing", [["_by_products"], ["_by_products", "_by_inverse"]])
def test_a_solver_that_fails_is_replaced_by_the_next(missing, monkeypatch):
    graph = layered(600)
    expected = positional_encoding(graph, 20)

    def fail(*arguments):
        raise scipy.sparse.linalg.ArpackError(-9999)

    for name in missing:
        monkeypatch.setattr(laplacian, name, fail)
    assert positional_encoding(graph, 20) == pytest.approx(expected, abs=1e-6)


def test_of_entries_as_large_the_first_is_positive():
    """Every eigenvector of a chain is symmetric or antisymmetric, so each entry has a twin."""
    for ops in (9, 10):
        encoding = positional_encoding(of_edges(ops, chain(ops)), 20)[:, : ops - 1]
        magnitude = np.abs(encoding).round(9)
        first = (magnitude == magnitude.max(axis=0)).argmax(axis=0)
        assert (encoding[first, np.arange(ops - 1)] > 0).all()


def test_graphs_without_eigenvectors():
    for graph in (of_edges(1, []), of_edges(30, [])):
        assert not op_features(graph).any()
    alone = op_features(of_edges(2, [(0, 1)]), eigenvectors=3)[:, 8:]
    assert np.abs(alone) == pytest.approx(np.array([[1, 0, 0], [1, 0, 0]]))
    assert op_features(layered(40), eigenvectors=0).shape == (40, 8)


@pytest.mark.parametrize("missing", [[], ["_by_products"]])
def test_eigenvectors_are_given_up_from_within(monkeypatch, missing):
    def refuse(*given):
        raise RuntimeError

    for name in missing:
        monkeypatch.setattr(laplacian, name, refuse)
    looks = iter(range(5))

    def look():
        if next(looks) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        positional_encoding(layered(600), 20, look)
    assert list(looks) == [4]
