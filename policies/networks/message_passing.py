"""Messages along edges: through DGL, or through torch alone where DGL cannot be installed, with the same weights."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.base.arrays import IndexArray
from .network import joined_nodes

Reduce = Literal["mean", "sum"]
NEGATIVE_SLOPE = 0.2


@cache
def uses_dgl(device: str = "cpu") -> bool:
    """Whether messages between tensors on a type of device (`tensor.device.type`) run through DGL."""
    dgl = _dgl()
    if dgl is None or device != "cuda":
        return dgl is not None and device == "cpu"
    try:
        dgl.graph(([0], [0])).to(device)
    except dgl.DGLError:
        return False
    return True


@cache
def _dgl() -> Any:
    """Return the module, or None if it is missing or does not fit this torch."""
    os.environ["DGLBACKEND"] = "pytorch"
    try:
        dgl = importlib.import_module("dgl")
    except (ImportError, OSError):
        return None
    dgl.utils.set_num_threads(torch.get_num_threads())
    return dgl


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let networks use so many threads of the processor, in torch and in DGL, and then as many as before."""
    # Messages of small graphs take DGL ten times as long on several threads as on one, where other processes run.
    before = torch.get_num_threads()
    try:
        _set_threads(count)
        yield
    finally:
        _set_threads(before)


def _set_threads(count: int) -> None:
    torch.set_num_threads(count)
    if _dgl.cache_info().currsize and (dgl := _dgl()) is not None:  # else it takes over what torch has, once loaded
        dgl.utils.set_num_threads(count)


class MessageGraph:
    """Edges that carry messages, of one graph or of several as one: DGL's graph, or torch's sums without DGL."""

    def __init__(self, sources: Tensor, targets: Tensor, sizes: Tensor, graph: Any = None) -> None:
        # ends of the edges, shape `(edges,)`; number of nodes of each graph, shape `(graphs,)`; all int64
        self.sources, self.targets, self.sizes = sources, targets, sizes
        self.nodes: int = int(sizes.sum())
        self.graph: Any = None
        if len(targets) and uses_dgl(targets.device.type):  # along no edges DGL would return nothing, not zeros
            self.graph = graph or _dgl().graph((sources, targets), num_nodes=self.nodes)

    @classmethod
    def batch(cls, edges: Sequence[tuple[IndexArray, IndexArray]], sizes: Sequence[int]) -> MessageGraph:
        """Join graphs, given as sources and targets of edges, the nodes and edges of each after the one before."""
        sources, targets = (joined_nodes([pair[end] for pair in edges], sizes) for end in (0, 1))
        whole = None
        if uses_dgl():
            dgl, alone = _dgl(), [tuple(end.astype(np.int64) for end in pair) for pair in edges]
            whole = dgl.batch([dgl.graph(pair, num_nodes=size) for pair, size in zip(alone, sizes, strict=True)])
        return cls(sources, targets, torch.tensor(sizes), whole)

    def to(self, device: torch.device) -> MessageGraph:
        """Return the graph on a device."""
        if device == self.targets.device:
            return self
        return MessageGraph(*(part.to(device) for part in (self.sources, self.targets, self.sizes)))

    @cached_property
    def reversed(self) -> MessageGraph:
        """The same edges from targets to sources."""
        return MessageGraph(self.targets, self.sources, self.sizes)

    @cached_property
    def graph_of_node(self) -> Tensor:
        """Number of the graph that each node is in, shape `(nodes,)`."""
        return torch.arange(len(self.sizes), device=self.sizes.device).repeat_interleave(self.sizes)

    @cached_property
    def counts(self) -> Tensor:
        """How many edges lead to each node, and 1 where none does; shape `(nodes,)`."""
        return torch.bincount(self.targets, minlength=self.nodes).clamp(min=1)

    def means(self, values: Tensor) -> Tensor:
        """Average values of nodes, shape `(nodes, ...)`, over each graph, shape `(graphs, ...)`."""
        sums = values.new_zeros(len(self.sizes), *values.shape[1:]).index_add(0, self.graph_of_node, values)
        return sums / self.sizes.view(-1, *[1] * (values.dim() - 1))

    def of_ends(self, how: Literal["add", "dot"], of_sources: Tensor, of_targets: Tensor) -> Tensor:
        """Add the values at an edge's ends, or multiply them and add up the last axis, which stays with length 1."""
        if self.graph is None:
            source, target = of_sources.index_select(0, self.sources), of_targets.index_select(0, self.targets)
            return source + target if how == "add" else (source * target).sum(-1, keepdim=True)
        with self.graph.local_scope():
            self.graph.ndata.update(source=of_sources, target=of_targets)
            self.graph.apply_edges(getattr(_dgl().function, f"u_{how}_v")("source", "target", "both"))
            both: Tensor = self.graph.edata["both"]
            return both

    def softmax(self, scores: Tensor) -> Tensor:
        """Normalise scores over the edges that lead to the same node."""
        if self.graph is not None:
            weights: Tensor = _dgl().ops.edge_softmax(self.graph, scores)
            return weights
        index = self.targets.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
        largest = scores.new_full((self.nodes, *scores.shape[1:]), -torch.inf)
        largest = largest.scatter_reduce(0, index, scores.detach(), "amax")
        raised = torch.exp(scores - largest[self.targets])
        return raised / self.heard(edges=raised)[self.targets]

    def heard(self, nodes: Tensor | None = None, edges: Tensor | None = None, reduce: Reduce = "sum") -> Tensor:
        """Add up or average messages to each node: values of sources or edges, or their product; 0 without edges."""
        if self.graph is None:
            sent: Any = 1 if nodes is None else nodes.index_select(0, self.sources)
            sent = sent if edges is None else sent * edges
            sums: Tensor = sent.new_zeros(self.nodes, *sent.shape[1:]).index_add(0, self.targets, sent)
            return sums / self.counts.view(-1, *[1] * (sums.dim() - 1)) if reduce == "mean" else sums
        function, graph = _dgl().function, self.graph
        with graph.local_scope():
            if edges is None:
                graph.ndata["node"], message = nodes, function.copy_u("node", "sent")
            elif nodes is None:
                graph.edata["edge"], message = edges, function.copy_e("edge", "sent")
            else:
                graph.ndata["node"], graph.edata["edge"] = nodes, edges
                message = function.u_mul_e("node", "edge", "sent")
            graph.update_all(message, getattr(function, reduce)("sent", "heard"))
            heard: Tensor = graph.ndata["heard"]
            return heard


class GatConvolution(nn.Module):
    """Graph attention layer (Velickovic et al., ICLR 2018) with `dgl.nn.GATConv`'s parameters, in full precision."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.layer: Any = nn.Module()
        self.layer.fc = nn.Linear(inputs, heads * outputs, bias=False)
        self.layer.attn_l, self.layer.attn_r = (nn.Parameter(torch.empty(1, heads, outputs)) for _ in range(2))
        self.layer.bias = nn.Parameter(torch.zeros(heads * outputs))
        for parameter in (self.layer.fc.weight, self.layer.attn_l, self.layer.attn_r):
            nn.init.xavier_normal_(parameter, gain=nn.init.calculate_gain("relu"))

    def forward(self, features: Tensor, graph: MessageGraph) -> Tensor:
        """Return the messages to each node."""
        layer = self.layer
        with torch.autocast(features.device.type, enabled=False):
            values: Tensor = layer.fc(features.to(layer.fc.weight.dtype)).unflatten(1, layer.attn_l.shape[1:])
            of_ends = ((values * attention).sum(-1, keepdim=True) for attention in (layer.attn_l, layer.attn_r))
            weights = graph.softmax(F.leaky_relu(graph.of_ends("add", *of_ends), NEGATIVE_SLOPE))
            biased: Tensor = graph.heard(values, weights).flatten(1) + layer.bias
            return biased
