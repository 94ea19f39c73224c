"""Batches of graphs as REGAL's networks see them: multigraphs, an edge per op that reads a tensor (REGAL A.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..networks.network import joined, joined_nodes
from .features import SearchedGraph


class MultigraphBatch(NamedTuple):
    """Several graphs as one, the nodes and edges of each after those of the one before; nothing is padded."""

    # features, shapes `(nodes, inputs)` and `(edges, EDGE_FEATURES)`, float32
    nodes: Tensor
    edges: Tensor
    # nodes that each edge leads from and to, shape `(edges,)`, int64
    producers: Tensor
    consumers: Tensor
    graph_of_node: Tensor  # number of the graph that each node is in, shape `(nodes,)`, int64
    sizes: Tensor  # number of nodes of each graph, shape `(graphs,)`, int64
    order: Tensor  # nodes of each graph in topological order, one graph after the other, shape `(nodes,)`, int64
    # features that are alike in all graphs, shape `(nodes, ratios)`, float32; none where the network sees none
    ratios: Tensor

    def means(self, values: Tensor) -> Tensor:
        """Average values of nodes, shape `(nodes, ...)`, over each graph, shape `(graphs, ...)`."""
        sums = values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.graph_of_node, values)
        return sums / self.sizes.view(-1, *[1] * (values.dim() - 1))

    def to(self, device: torch.device) -> MultigraphBatch:
        """Return the batch on a device."""
        return MultigraphBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def multigraph_batch(graphs: Sequence[SearchedGraph], *, ratios: bool = False) -> MultigraphBatch:
    """Put graphs of one task and number of devices into one batch, with their ratios for a network that sees them."""
    sizes = [len(graph.nodes) for graph in graphs]
    return MultigraphBatch(
        joined([graph.nodes for graph in graphs]),
        joined([graph.edges for graph in graphs]),
        joined_nodes([graph.producers for graph in graphs], sizes),
        joined_nodes([graph.consumers for graph in graphs], sizes),
        torch.from_numpy(np.repeat(np.arange(len(graphs)), sizes)),
        torch.tensor(sizes),
        joined_nodes([graph.problem.graph.input_order for graph in graphs], sizes),
        joined([graph.ratios if ratios else graph.nodes[:, :0] for graph in graphs]),
    )


def lines(batch: MultigraphBatch) -> Tensor:
    """Return the nodes of each graph in topological order, shape `(graphs, longest)`; -1 where there are no more."""
    of_graphs: tuple[Tensor, ...] = torch.split(batch.order, batch.sizes.tolist())  # type: ignore[no-untyped-call]
    return pad_sequence(list(of_graphs), batch_first=True, padding_value=-1)


def sequences(nodes: Tensor, batch: MultigraphBatch) -> Tensor:
    """Line up `(..., nodes, width)` by graphs and their topological order, shape `(..., graphs, longest, width)`."""
    return nodes[..., lines(batch).clamp(min=0), :]


def nodes_of(sequences: Tensor, batch: MultigraphBatch) -> Tensor:
    """Undo `sequences`: back from `(..., graphs, longest, width)` to `(..., nodes, width)`."""
    rows = sequences[..., lines(batch) >= 0, :]
    return torch.zeros_like(rows).index_copy(-2, batch.order, rows)
