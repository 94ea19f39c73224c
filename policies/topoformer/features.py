"""Features that Topoformer's networks see: of ops with the Laplacian encoding (C.5), relations, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.base.arrays import BoolArray, FloatArray, IndexArray
from ...core.bounds.order_proofs import dense, partial_order
from ...core.graph.graph import CostGraph
from ..networks.message_passing import MessageGraph

Features = NDArray[np.float32]
NODE_FEATURES = 8


def op_features(graph: CostGraph, *, eigenvectors: int = 20, look: Callable[[], None] = lambda: None) -> Features:
    """Return the input features of every op, shape `(ops, NODE_FEATURES + eigenvectors)`."""
    # The first eight are divided by their largest value in the graph. Then come the eigenvectors, see
    # `positional_encoding`, not divided. C.5 names one source and one target; there may be several.
    sources, targets = graph.edges
    plain = np.column_stack(
        (
            graph.buffers.own,
            graph.workspace,  # where layered graphs keep what the paper calls the bytes of parameters
            np.bincount(targets, minlength=graph.num_ops),  # how many ops it waits for
            np.bincount(sources, minlength=graph.num_ops),  # how many wait for it
            *_hops(*graph.predecessors, graph.input_order),  # from a source
            *_hops(*graph.successors, graph.input_order[::-1]),  # to a target
        )
    )
    largest = plain.max(axis=0)
    encoding = positional_encoding(graph, eigenvectors, look)
    return np.hstack((plain / np.where(largest > 0, largest, 1), encoding)).astype(np.float32)


def _hops(pointers: IndexArray, neighbours: IndexArray, order: IndexArray) -> tuple[list[int], list[int]]:
    """Return the fewest and the most hops to an op without neighbours; neighbours come earlier in `order`."""
    starts, near = pointers.tolist(), neighbours.tolist()
    fewest, most = [0] * len(order), [0] * len(order)
    for op in order.tolist():
        if starts[op] < starts[op + 1]:
            beside = near[starts[op] : starts[op + 1]]
            fewest[op] = 1 + min(fewest[other] for other in beside)
            most[op] = 1 + max(most[other] for other in beside)
    return fewest, most


# Up to these many ops a dense solver is exact and as fast as Lanczos.
DENSE_OPS = 512
RESTARTS = 40
# Added to every eigenvalue before the Laplacian, which is singular, is inverted.
SHIFT = 1e-4
RIPPLE = 1e-12
# Relative difference below which magnitudes, or eigenvalues, count as equal.
SAME = 1e-6


def positional_encoding(graph: CostGraph, count: int, look: Callable[[], None] = lambda: None) -> FloatArray:
    """Return the smoothest eigenvectors of the normalised Laplacian, smoothest first, shape `(ops, count)`."""
    # Of I - D^-1/2 A D^-1/2, where A joins ops by edges taken both ways. The trivial eigenvector of each component, of
    # eigenvalue 0, is left out; columns that a graph lacks are zeros. The largest entry of each column (the first
    # within one millionth) is positive; within an eigenvalue that occurs several times, the choice is arbitrary.
    # Columns have the norm sqrt(ops), so that entries do not shrink as graphs grow (ours).
    encoding = np.zeros((graph.num_ops, count))
    joined, ends = np.unique(np.concatenate(graph.edges), return_inverse=True)
    if count and len(joined):
        vectors = _smoothest(len(joined), ends.reshape(2, -1), count, look)
        magnitude = np.abs(vectors)
        largest = np.argmax(magnitude >= (1 - SAME) * magnitude.max(axis=0), axis=0)
        signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
        encoding[joined, : vectors.shape[1]] = vectors * signs * np.sqrt(graph.num_ops)
    return encoding


def _smoothest(ops: int, edges: Any, count: int, look: Callable[[], None]) -> Any:
    """Return up to `count` unit eigenvectors of the least eigenvalues that are not 0; every op has an edge."""
    from scipy.linalg import eigh
    from scipy.sparse import coo_array, csr_array, diags_array
    from scipy.sparse.csgraph import connected_components

    one_way = coo_array((np.ones(edges.shape[1]), tuple(edges)), (ops, ops))
    adjacency = (one_way + one_way.T).tocsr()
    degree = adjacency.sum(axis=0)
    scale = diags_array(1 / np.sqrt(degree))
    laplacian = (diags_array(np.ones(ops)) - scale @ adjacency @ scale).tocsc()
    components, component = connected_components(adjacency, directed=False)
    weight = np.sqrt(degree / np.bincount(component, degree)[component])
    trivial = csr_array((weight, (np.arange(ops), component)), (ops, components))
    if ops > max(DENSE_OPS, 10 * count):
        for solver in (_by_products, _by_inverse):
            try:
                return solver(laplacian, trivial, count, look)
            except (RuntimeError, MemoryError):  # not converged, or too much fill-in
                continue
    # Eigenvalues are at most 2: the trivial ones become 3 instead of 0, the last of all.
    raised = laplacian.toarray() + 3 * (trivial @ trivial.T).toarray()
    last = min(count, ops - components) - 1
    return eigh(raised, subset_by_index=(0, last), overwrite_a=True, check_finite=False)[1]


def _by_products(laplacian: Any, trivial: Any, count: int, look: Callable[[], None]) -> Any:
    """Multiply only: fast where the spectrum has gaps, as in wide or random graphs; long ones do not converge."""

    def apply(x: Any) -> Any:
        look()
        return 3 * x - laplacian @ x

    return _largest(apply, trivial, count, RESTARTS)


def _by_inverse(laplacian: Any, trivial: Any, count: int, look: Callable[[], None]) -> Any:
    """Factorise, then solve: few steps whatever the gaps, and long graphs, which need it, fill in little."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    shifted = laplacian + diags_array(np.full(laplacian.shape[0], SHIFT))
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    look()
    factors = splu(shifted.tocsc(), **symmetric)

    def apply(x: Any) -> Any:
        look()
        return factors.solve(x)

    return _largest(apply, trivial, count, 10 * RESTARTS)


def _largest(apply: Callable[[Any], Any], trivial: Any, count: int, restarts: int) -> Any:
    """Return the eigenvectors of the largest eigenvalues of a positive operator, the trivial ones left out."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    ops = trivial.shape[0]
    rng = np.random.default_rng(0)
    start, ripple = rng.standard_normal(ops), RIPPLE * rng.random(ops)
    transposed = trivial.T.tocsr()
    values, vectors = np.zeros(0), np.zeros((ops, 0))

    def project(x: Any) -> Any:
        return x - trivial @ (transposed @ x) - vectors @ (vectors.T @ x)

    def multiply(x: Any) -> Any:
        inside = project(x.ravel())
        return project(apply(inside) + ripple * inside)

    operator = LinearOperator((ops, ops), matvec=multiply, dtype=np.float64)
    lanczos = partial(eigsh, operator, which="LA", v0=start, ncv=max(20, 3 * count), maxiter=restarts)
    for _ in range(count):
        more, beside = lanczos(k=count, tol=10 * RIPPLE)
        values, vectors = np.append(values, more), np.column_stack((vectors, beside))
        best = np.argsort(-values, kind="stable")[:count]
        values, vectors = values[best], vectors[:, best]
        if lanczos(k=1, tol=SAME, return_eigenvectors=False)[0] <= (1 + 2 * SAME) * values[-1]:
            break
    return vectors


@dataclass(frozen=True, eq=False)
class EncodedGraph:
    """A network's view of one graph, as arrays."""

    graph: CostGraph  # the graph itself
    features: np.ndarray  # features of the ops, shape `(ops, inputs)`, float32; see `op_features`
    # edges of the transitive reduction, and the other edges, as `(producers, consumers)`
    reduction: tuple[IndexArray, IndexArray]
    other_edges: tuple[IndexArray, IndexArray]
    before: BoolArray  # whether op j must run before op i, at `before[i, j]`; shape `(ops, ops)`


def encode(graph: CostGraph, eigenvectors: int = 20, look: Callable[[], None] = lambda: None) -> EncodedGraph:
    """Compute a network's view of a graph (Topoformer 4.1, C.5); `look` is called now and then, and may raise."""
    order = partial_order(graph)
    look()
    before = dense(order.before, graph.num_ops)
    features = op_features(graph, eigenvectors=eigenvectors, look=look)
    return EncodedGraph(graph, features, order.reduction, order.other_edges, before)


class GraphBatch(NamedTuple):
    """Several graphs padded to the same number of ops."""

    features: Tensor  # features of the ops, zero where padded, shape `(graphs, ops, inputs)`, float32
    is_op: Tensor  # whether there is an op, or padding; shape `(graphs, ops)`
    # edges from producers to consumers, between rows of the flattened `(graphs * ops)`
    reduction: MessageGraph
    other_edges: MessageGraph
    before: Tensor  # whether op j must run before op i, at `before[g, i, j]`; shape `(graphs, ops, ops)`

    def to(self, device: torch.device) -> GraphBatch:
        """Return the batch on a device."""
        return GraphBatch(*(part.to(device) for part in self))  # type: ignore[arg-type]

    @property
    def edges(self) -> Tensor:
        """Producers and consumers of all edges, shape `(2, edges)`."""
        return torch.cat([torch.stack((g.sources, g.targets)) for g in (self.reduction, self.other_edges)], dim=1)


def batch_of(graphs: Sequence[EncodedGraph]) -> GraphBatch:
    """Pad graphs to the largest of them and stack them."""
    ops = max(graph.graph.num_ops for graph in graphs)
    features = np.zeros((len(graphs), ops, graphs[0].features.shape[1]), np.float32)
    is_op, before = np.zeros((len(graphs), ops), bool), np.zeros((len(graphs), ops, ops), bool)
    for at, graph in enumerate(graphs):
        count = graph.graph.num_ops
        features[at, :count] = graph.features
        is_op[at, :count] = True
        before[at, :count, :count] = graph.before
    return GraphBatch(
        torch.from_numpy(features),
        torch.from_numpy(is_op),
        MessageGraph.batch([graph.reduction for graph in graphs], [ops] * len(graphs)),
        MessageGraph.batch([graph.other_edges for graph in graphs], [ops] * len(graphs)),
        torch.from_numpy(before),
    )
