"""Topoformer's encoder: attention masked by topological relations (4.1, eq. 4-5); and those beside it (5.3, B)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
        heard = self.graph.heard(said, self.graph.softmax(scores))
        return heard.view_as(queries).to(queries.dtype)


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


class TopologicalAttention(nn.Module):
    """Multi-head attention, each head masked by one relation; heads concatenated and projected to the width (eq. 4)."""

    def __init__(self, width: int, heads: Sequence[int], head_width: int, tied: bool = False) -> None:
        super().__init__()
        self.head_width = head_width
        # which of the groups of heads that have parameters of their own listens along each relation
        self.groups = (0, 1, 2, 0, 1, 2, 3) if tied else tuple(range(RELATIONS))
        self.sizes = [heads[self.groups.index(group)] for group in range(max(self.groups) + 1)]
        self.query, self.key, self.value = (nn.Linear(width, sum(self.sizes) * head_width) for _ in range(3))
        self.project = nn.Linear(sum(heads) * head_width, width)
        self.heard = nn.Identity()  # who listens to modules, as Ctrl-C does, can stop between relations

    def forward(self, embeddings: Tensor, relations: Sequence[Edges | Pairs | None]) -> Tensor:
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


class AttentionEncoder(nn.Module):
    """Embeds each op by layers of attention; a subclass says who listens to whom."""

    def __init__(self, inputs: int, width: int, attentions: Iterable[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(Layer(width, attention) for attention in attentions)

    def relations(self, batch: GraphBatch) -> Any:
        """Return who listens to whom, as the attentions take it."""
        raise NotImplementedError

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return embeddings, shape `(graphs, ops, width)`; of no meaning where padded."""
        relations = self.relations(batch)
        embeddings: Tensor = self.embed(batch.features)
        for layer in self.layers:
            embeddings = layer(embeddings, relations)
        return embeddings


class TopoformerEncoder(AttentionEncoder):
    """Embeds each op, given the others and how they are related to it (Topoformer 4.1)."""

    def __init__(
        self, inputs: int, layers: int, width: int, heads: Sequence[int], head_width: int, tied: bool = False
    ) -> None:
        super().__init__(inputs, width, (TopologicalAttention(width, heads, head_width, tied) for _ in range(layers)))
        self.heads = heads

    def relations(self, batch: GraphBatch) -> list[Edges | Pairs | None]:
        """Return the seven relations; None without heads."""
        return [
            (Edges(pairs) if isinstance(pairs, MessageGraph) else Pairs(pairs)) if count else None
            for pairs, count in zip(relations_of(batch), self.heads, strict=True)
        ]


class MlpEncoder(nn.Module):
    """Embeds each op by its own features alone: the layers without their messages (eq. 5)."""

    def __init__(self, inputs: int, layers: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(layers)
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return embeddings, shape `(graphs, ops, width)`; of no meaning where padded."""
        embeddings: Tensor = self.embed(batch.features)
        for layer in self.layers:
            embeddings = embeddings + layer(embeddings)
        return embeddings


class TransformerEncoder(AttentionEncoder):
    """Embeds each op with attention to all ops of its graph, itself included."""

    def __init__(self, inputs: int, layers: int, width: int, heads: int, head_width: int) -> None:
        super().__init__(inputs, width, (_Attention(width, heads, head_width) for _ in range(layers)))

    def relations(self, batch: GraphBatch) -> Tensor:
        """Return which op listens to which, `[graph, listener, speaker]`; broadcasts."""
        return batch.is_op[:, None, :]


class EdgeTransformerEncoder(TransformerEncoder):
    """The same along the DAG's edges alone, both ways, and to itself: the "GNN encoder" of appendix B."""

    def relations(self, batch: GraphBatch) -> Tensor:
        """Return which op listens to which, `[graph, listener, speaker]`."""
        graphs, ops = batch.is_op.shape
        producers, consumers = batch.edges
        hears = torch.eye(ops, dtype=torch.bool, device=batch.is_op.device).repeat(graphs, 1, 1)
        flat = hears.view(graphs * ops, ops)
        flat[consumers, producers % ops] = True
        flat[producers, consumers % ops] = True
        return hears


class GatEncoder(AttentionEncoder):
    """Embeds each op with graph attention along the DAG's edges (Velickovic et al., ICLR 2018), not to itself."""

    def __init__(
        self, inputs: int, layers: int, width: int, heads: int, head_width: int, bidirectional: bool = True
    ) -> None:
        super().__init__(inputs, width, (_GraphAttention(width, heads, head_width) for _ in range(layers)))
        self.bidirectional = bidirectional

    def relations(self, batch: GraphBatch) -> MessageGraph:
        """Return the edges from speakers to listeners."""
        edges = batch.edges
        speakers, listeners = torch.cat((edges, edges.flip(0)), dim=1) if self.bidirectional else edges
        return MessageGraph(speakers, listeners, batch.reduction.sizes)


class _Attention(nn.Module):
    """Multi-head attention under a mask; heads concatenated and projected to the width."""

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.query, self.key, self.value = (nn.Linear(width, heads * head_width) for _ in range(3))
        self.project = nn.Linear(heads * head_width, width)

    def forward(self, embeddings: Tensor, hears: Tensor) -> Tensor:
        queries, keys, values = (
            linear(embeddings).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )  # (graphs, heads, ops, head width)
        heard = F.scaled_dot_product_attention(queries, keys, values, attn_mask=hears[:, None])
        messages: Tensor = self.project(heard.transpose(1, 2).flatten(2))
        return messages


class _GraphAttention(nn.Module):
    """Graph attention over a batch of graphs; heads projected to the width."""

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.convolution = GatConvolution(width, head_width, heads)
        self.project = nn.Linear(heads * head_width, width)

    def forward(self, embeddings: Tensor, graph: MessageGraph) -> Tensor:
        heard = self.convolution(embeddings.flatten(0, 1), graph)
        messages: Tensor = self.project(heard).view_as(embeddings)
        return messages
