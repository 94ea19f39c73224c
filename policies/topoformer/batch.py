"""Graphs as the networks see them: padded features, edges, and which op must come before which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import BoolArray, IndexArray
from ...core.bounds.order_proofs import dense, partial_order
from ...core.graph.graph import CostGraph
from .features import op_features


@dataclass(frozen=True, eq=False)
class EncodedGraph:
    """What a network sees of one graph, as arrays."""

    graph: CostGraph  # the graph itself
    features: np.ndarray  # features of the ops, shape `(ops, inputs)`, float32; see `op_features`
    # edges of the transitive reduction, and the other edges, as `(producers, consumers)`
    reduction: tuple[IndexArray, IndexArray]
    other_edges: tuple[IndexArray, IndexArray]
    before: BoolArray  # whether op j must run before op i, at `before[i, j]`; shape `(ops, ops)`


def encode(graph: CostGraph, eigenvectors: int = 20, look: Callable[[], None] = lambda: None) -> EncodedGraph:
    """Compute what a network sees of a graph (Topoformer 4.1, C.5); `look` is called now and then, and may raise."""
    order = partial_order(graph)
    look()
    before = dense(order.before, graph.num_ops)
    features = op_features(graph, eigenvectors=eigenvectors, look=look)
    return EncodedGraph(graph, features, order.reduction, order.other_edges, before)


class GraphBatch(NamedTuple):
    """Several graphs padded to the same number of ops."""

    features: Tensor  # features of the ops, zero where padded, shape `(graphs, ops, inputs)`, float32
    is_op: Tensor  # whether there is an op, or padding; shape `(graphs, ops)`
    # producers and consumers, as rows of the flattened `(graphs * ops)`; shape `(2, edges)`
    reduction: Tensor
    other_edges: Tensor
    before: Tensor  # whether op j must run before op i, at `before[g, i, j]`; shape `(graphs, ops, ops)`

    def to(self, device: torch.device) -> GraphBatch:
        """Return the batch on a device."""
        return GraphBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def batch_of(graphs: Sequence[EncodedGraph]) -> GraphBatch:
    """Pad graphs to the largest of them and stack them."""
    ops = max(graph.graph.num_ops for graph in graphs)
    features = np.zeros((len(graphs), ops, graphs[0].features.shape[1]), np.float32)
    is_op = np.zeros((len(graphs), ops), bool)
    before = np.zeros((len(graphs), ops, ops), bool)
    for at, graph in enumerate(graphs):
        count = graph.graph.num_ops
        features[at, :count] = graph.features
        is_op[at, :count] = True
        before[at, :count, :count] = graph.before
    return GraphBatch(
        torch.from_numpy(features),
        torch.from_numpy(is_op),
        _flattened([graph.reduction for graph in graphs], ops),
        _flattened([graph.other_edges for graph in graphs], ops),
        torch.from_numpy(before),
    )


def _flattened(edges: Sequence[tuple[IndexArray, IndexArray]], ops: int) -> Tensor:
    rows = [np.stack(pair).astype(np.int64) + at * ops for at, pair in enumerate(edges)]
    return torch.from_numpy(np.concatenate(rows, axis=1))
