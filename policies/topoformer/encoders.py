"""Topoformer's encoder: attention masked by topological relations (4.1, eq. 4-5); and those beside it (5.3, B)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..networks.message_passing import GatConvolution, MessageGraph
from .features import GraphBatch

# Along the transitive reduction, the edges outside it, and the pairs of the transitive closure that no edge joins; the
# same three backwards; and the ops that need not come before or after. See section 4.1; each pair of ops is in one.
RELATIONS = 7
DENSE = (False, False, True, False, False, True, True)
LISTENERS_AT_ONCE = 128
Encoder = Literal[
    "topoformer", "topoformer-edges", "mlp", "transformer", "edge-transformer", "gat", "gat-bidirectional"
]


def relations_of(batch: GraphBatch) -> tuple[MessageGraph | Tensor, ...]:
    """Split all pairs of distinct ops of each graph into the seven relations, see `RELATIONS`; who listens to whom."""
    # Dense ones are truth values `[graph, listener, speaker]`, shape `(graphs, ops, ops)`.
    graphs, ops, _ = batch.before.shape
    producers, consumers = batch.edges
    closure = batch.before.clone()
    closure.view(graphs * ops, ops)[consumers, producers % ops] = False
    incomparable = batch.is_op[:, :, None] & batch.is_op[:, None, :]
    incomparable &= ~(batch.before | batch.before.transpose(1, 2))
    incomparable.diagonal(dim1=1, dim2=2).fill_(False)
    back = (batch.reduction.reversed, batch.other_edges.reversed, closure.transpose(1, 2))
    return (batch.reduction, batch.other_edges, closure, *back, incomparable)


class Edges:
    """Attention along a relation of few pairs."""

    def __init__(self, graph: MessageGraph) -> None:
        self.graph = graph

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the messages to each op, zero if there is nobody; all of shape `(graphs, ops, heads, head width)`."""
        # Half precision would save little here, so none is used inside.
        precision = torch.promote_types(queries.dtype, torch.float32)
        asked, offered, said = (tensor.flatten(0, 1).to(precision) for tensor in (queries, keys, values))
        scores = self.graph.of_ends("dot", offered, asked) * queries.shape[-1] ** -0.5  # (edges, heads, 1)
        return self.graph.heard(said, self.graph.softmax(scores)).view_as(queries).to(queries.dtype)


class Pairs:
    """Attention along a relation of many pairs, a stretch of listeners at a time, from first to last speaker."""

    def __init__(self, pairs: Tensor) -> None:
        self.stretches: list[tuple[slice, Tensor, Tensor]] = []
        for stretch in torch.split(pairs, LISTENERS_AT_ONCE, dim=1):
            speakers = stretch.any(1).any(0).nonzero().flatten().tolist() or [0]
            heard = slice(speakers[0], speakers[-1] + 1)
            part = stretch[:, None, :, heard]
            hears = part.any(-1, keepdim=True)
            self.stretches.append((heard, part | ~hears, hears))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the messages to each op, zero if there is nobody; all of shape `(graphs, ops, heads, head width)`."""
        queries, keys, values = (tensor.transpose(1, 2) for tensor in (queries, keys, values))
        messages = []
        of_stretches = torch.split(queries, LISTENERS_AT_ONCE, dim=2)
        for of_stretch, (heard, mask, hears) in zip(of_stretches, self.stretches, strict=True):
            message = F.scaled_dot_product_attention(of_stretch, keys[:, :, heard], values[:, :, heard], mask)
            messages.append(message * hears)
        return torch.cat(messages, dim=2).transpose(1, 2)


class Mask:
    """Attention of each op to those that truth values `[graph, listener, speaker]` name, at least one of each graph."""

    def __init__(self, hears: Tensor) -> None:
        self.hears = hears[:, None]

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the messages to each op; all of shape `(graphs, ops, heads, head width)`."""
        queries, keys, values = (tensor.transpose(1, 2) for tensor in (queries, keys, values))
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.hears).transpose(1, 2)


class TopologicalAttention(nn.Module):
    """Multi-head attention, each head along one relation; heads concatenated and projected to the width (eq. 4)."""

    def __init__(self, width: int, heads: Sequence[int], head_width: int, tied: bool = False) -> None:
        super().__init__()
        self.head_width = head_width
        # which of the groups of heads that have parameters of their own listens along each relation
        self.groups = (0, 1, 2, 0, 1, 2, 3) if tied else tuple(range(len(heads)))
        self.sizes = [heads[self.groups.index(group)] for group in range(max(self.groups) + 1)]
        self.query, self.key, self.value = (nn.Linear(width, sum(self.sizes) * head_width) for _ in range(3))
        self.project = nn.Linear(sum(heads) * head_width, width)
        self.heard = nn.Identity()  # who listens to modules, as Ctrl-C does, can stop between relations

    def forward(self, embeddings: Tensor, relations: Sequence[Edges | Pairs | Mask | None]) -> Tensor:
        """Return the messages, shape `(graphs, ops, width)`, for embeddings of that shape."""
        queries, keys, values = (
            torch.split(linear(embeddings).unflatten(-1, (-1, self.head_width)), self.sizes, dim=2)
            for linear in (self.query, self.key, self.value)
        )
        heard = [
            self.heard(relation.attend(queries[group], keys[group], values[group]))
            for group, relation in zip(self.groups, relations, strict=True)
            if relation is not None
        ]
        messages: Tensor = self.project(torch.cat(heard, dim=2).flatten(2))
        return messages


class GraphAttention(nn.Module):
    """Graph attention along edges (Velickovic et al., ICLR 2018); heads projected to the width."""

    def __init__(self, width: int, heads: Sequence[int], head_width: int) -> None:
        super().__init__()
        self.convolution = GatConvolution(width, head_width, heads[0])
        self.project = nn.Linear(heads[0] * head_width, width)

    def forward(self, embeddings: Tensor, graph: MessageGraph) -> Tensor:
        """Return the messages, shape `(graphs, ops, width)`, for embeddings of that shape."""
        messages: Tensor = self.project(self.convolution(embeddings.flatten(0, 1), graph)).view_as(embeddings)
        return messages


class Layer(nn.Module):
    """One attention layer: messages, then a perceptron per op, both added, both on normalised input (eq. 4, 5)."""

    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, embeddings: Tensor, relations: object) -> Tensor:
        """Return embeddings of the same shape, `(graphs, ops, width)`."""
        embeddings = embeddings + self.attention(self.attention_norm(embeddings), relations)
        changed: Tensor = embeddings + self.perceptron(self.perceptron_norm(embeddings))
        return changed


class SilentLayer(nn.Sequential):
    """One layer of an encoder that sees an op's own features alone: the perceptron of `Layer` (eq. 5)."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, embeddings: Tensor, relations: None) -> Tensor:  # type: ignore[override]
        """Return embeddings of the same shape, `(graphs, ops, width)`."""
        changed: Tensor = embeddings + super().forward(embeddings)  # type: ignore[no-untyped-call]
        return changed


class LayeredEncoder(nn.Module):
    """Embeds each op by layers; `relations` says who listens to whom."""

    def __init__(
        self, embed: nn.Module, layers: Iterable[nn.Module], relations: Callable[[GraphBatch], Any] = lambda batch: None
    ) -> None:
        super().__init__()
        self.embed, self.layers, self.relations = embed, nn.ModuleList(layers), relations

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return embeddings, shape `(graphs, ops, width)`; of no meaning where padded."""
        relations = self.relations(batch)
        embeddings: Tensor = self.embed(batch.features)
        for layer in self.layers:
            embeddings = layer(embeddings, relations)
        return embeddings


def make_encoder(
    name: Encoder, inputs: int, layers: int, width: int, heads: Sequence[int], head_width: int, tied: bool = False
) -> LayeredEncoder:
    """Build the encoder of this name: Topoformer's, whose relations have `heads`, or one of a single relation."""
    if name == "mlp":
        return LayeredEncoder(nn.Linear(inputs, width), (SilentLayer(width) for _ in range(layers)))
    attention: Callable[[], nn.Module] = partial(TopologicalAttention, width, heads, head_width)
    if name.startswith("topoformer"):
        attention = partial(TopologicalAttention, width, heads, head_width, tied)
        relations: Callable[[GraphBatch], Any] = partial(_seven_relations, heads)
    elif name.startswith("gat"):  # not to itself
        attention = partial(GraphAttention, width, heads, head_width)
        relations = partial(_all_edges, name == "gat-bidirectional")
    else:  # to itself, too
        relations = _all_ops if name == "transformer" else _neighbours
    return LayeredEncoder(nn.Linear(inputs, width), (Layer(width, attention()) for _ in range(layers)), relations)


def _seven_relations(heads: Sequence[int], batch: GraphBatch) -> list[Edges | Pairs | None]:
    """Return Topoformer's seven relations (4.1); None without heads."""
    return [
        (Edges(pairs) if isinstance(pairs, MessageGraph) else Pairs(pairs)) if count else None
        for pairs, count in zip(relations_of(batch), heads, strict=True)
    ]


def _all_ops(batch: GraphBatch) -> list[Mask]:
    """Let each op listen to all of its graph."""
    return [Mask(batch.is_op[:, None, :])]


def _neighbours(batch: GraphBatch) -> list[Mask]:
    """Let each op listen along the DAG's edges, both ways: the "GNN encoder" of appendix B."""
    graphs, ops = batch.is_op.shape
    producers, consumers = batch.edges
    hears = torch.eye(ops, dtype=torch.bool, device=batch.is_op.device).repeat(graphs, 1, 1)
    flat = hears.view(graphs * ops, ops)
    flat[consumers, producers % ops] = True
    flat[producers, consumers % ops] = True
    return [Mask(hears)]


def _all_edges(is_both_ways: bool, batch: GraphBatch) -> MessageGraph:
    """Return the edges from speakers to listeners."""
    edges = batch.edges
    speakers, listeners = torch.cat((edges, edges.flip(0)), dim=1) if is_both_ways else edges
    return MessageGraph(speakers, listeners, batch.reduction.sizes)
