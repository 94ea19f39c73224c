"""Messages along edges: through DGL, or through torch alone where DGL cannot be installed, with the same weights."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class Receivers:
    """Where edges lead: adds up or averages the messages on them, any number of times."""

    def __init__(self, targets: Tensor, nodes: int) -> None:
        self.targets, self.nodes = targets, nodes
        self.graph: Any = _graph(targets, nodes) if uses_dgl(targets.device.type) else None

    @cached_property
    def counts(self) -> Tensor:
        """How many edges lead to each node, and 1 where none does; shape `(nodes,)`."""
        return torch.bincount(self.targets, minlength=self.nodes).clamp(min=1)

    def sum(self, messages: Tensor) -> Tensor:
        """Add up the messages that reach each node."""
        if self.graph is not None:
            heard: Tensor = _dgl().ops.copy_e_sum(self.graph, messages)  # what update_all calls, without its frames
            return heard
        return messages.new_zeros(self.nodes, *messages.shape[1:]).index_add(0, self.targets, messages)

    def mean(self, messages: Tensor) -> Tensor:
        """Average the messages that reach each node; argument and result as for `sum`."""
        return self.sum(messages) / self.counts.view(-1, *[1] * (messages.dim() - 1))


def edge_softmax(scores: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """Normalise scores over the edges that lead to the same node."""
    if uses_dgl(scores.device.type):
        weights: Tensor = _dgl().ops.edge_softmax(_graph(targets, nodes), scores)
        return weights
    index = targets.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
    largest = scores.new_full((nodes, *scores.shape[1:]), -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    raised = torch.exp(scores - largest[targets])
    return raised / Receivers(targets, nodes).sum(raised)[targets]


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

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Return the messages to each node."""
        layer, (sources, targets), nodes = self.layer, edges, len(features)
        with torch.autocast(features.device.type, enabled=False):
            values: Tensor = layer.fc(features.to(layer.fc.weight.dtype)).unflatten(1, layer.attn_l.shape[1:])
            of_source, of_target = ((values * attention).sum(-1) for attention in (layer.attn_l, layer.attn_r))
            scores = F.leaky_relu(of_source[sources] + of_target[targets], NEGATIVE_SLOPE)
            weights = edge_softmax(scores, targets, nodes)
            heard = Receivers(targets, nodes).sum(weights[:, :, None] * values[sources]).flatten(1)
            biased: Tensor = heard + layer.bias
            return biased


def _graph(targets: Tensor, nodes: int) -> Any:
    return _dgl().graph((targets, targets), num_nodes=nodes)
