"""Topoformer's encoder: attention masked by the topological relations between ops (Topoformer 4.1, eq. 4-5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .graph_batch import GraphBatch
from .message_passing import edge_softmax, sum_messages

RELATIONS = 7
DENSE = (False, False, True, False, False, True, True)
SCORES_AT_ONCE = 2**25


@dataclass(frozen=True)
class Heads:
    """How many attention heads listen along each relation; zero leaves the relation out.

    Parameters
    ----------
    reduction, other_edges, closure
        Heads that listen to producers: along the transitive reduction, the edges outside it, and the pairs of the
        transitive closure that no edge joins.
    reduction_back, other_edges_back, closure_back
        The same backwards: heads that listen to consumers.
    incomparable
        Heads that listen to the ops that need not come before or after.
    are_tied
        Whether a relation and its reverse share their parameters, and so their number of heads.
    """

    reduction: int = 4
    other_edges: int = 4
    closure: int = 4
    reduction_back: int = 4
    other_edges_back: int = 4
    closure_back: int = 4
    incomparable: int = 4
    are_tied: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """Heads of the seven relations."""
        forward = (self.reduction, self.other_edges, self.closure)
        back = forward if self.are_tied else (self.reduction_back, self.other_edges_back, self.closure_back)
        return (*forward, *back, self.incomparable)

    @property
    def groups(self) -> tuple[slice, ...]:
        """The heads of each relation among those that have parameters of their own."""
        counts = self.counts
        start, groups = 0, list[slice]()
        for relation, count in enumerate(counts):
            if self.are_tied and 3 <= relation < 6:
                groups.append(groups[relation - 3])
            else:
                groups.append(slice(start, start + count))
                start += count
        return tuple(groups)

    @property
    def distinct(self) -> int:
        """Heads with parameters of their own."""
        return max(group.stop for group in self.groups)


class Relations(NamedTuple):
    """The pairs of ops of the seven relations of section 4.1, `(listener, speaker)`; each pair is in one.

    Parameters
    ----------
    edges
        The four sparse ones: `(speakers, listeners)`, rows of the flattened `(graphs * ops)`.
    closure, closure_back, incomparable
        The dense ones, shape `(graphs, ops, ops)`.
    """

    edges: tuple[Tensor, Tensor, Tensor, Tensor]
    closure: Tensor
    closure_back: Tensor
    incomparable: Tensor


def relations_of(batch: GraphBatch) -> Relations:
    """Split all pairs of distinct ops of each graph into the seven relations."""
    graphs, ops, _ = batch.before.shape
    producers, consumers = torch.cat((batch.reduction, batch.other_edges), dim=1)
    closure = batch.before.clone()
    closure.view(graphs * ops, ops)[consumers, producers % ops] = False
    incomparable = batch.is_op[:, :, None] & batch.is_op[:, None, :]
    incomparable &= ~(batch.before | batch.before.transpose(1, 2))
    incomparable.diagonal(dim1=1, dim2=2).fill_(False)
    edges = (batch.reduction, batch.other_edges, batch.reduction.flip(0), batch.other_edges.flip(0))
    return Relations(edges, closure, closure.transpose(1, 2).contiguous(), incomparable)


class TopologicalAttention(nn.Module):
    """Multi-head attention, each head masked by one relation; heads concatenated and projected (eq. 4).

    An op that has nobody to listen to along a relation hears zero there. Equation 4 adds the concatenation to the
    embedding, which fits no width but its own, so it is projected to the width (DESIGN 7).

    Parameters
    ----------
    width, heads, head_width
        Of the embeddings, per relation, and of each head's queries, keys and values.
    """

    def __init__(self, width: int, heads: Heads, head_width: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.query, self.key, self.value = (nn.Linear(width, heads.distinct * head_width) for _ in range(3))
        self.project = nn.Linear(sum(heads.counts) * head_width, width)

    def forward(self, embeddings: Tensor, relations: Relations) -> Tensor:
        """Return the messages, shape `(graphs, ops, width)`, for embeddings of that shape."""
        split = (-1, self.head_width)
        queries, keys, values = (
            linear(embeddings).unflatten(-1, split) for linear in (self.query, self.key, self.value)
        )
        heard = [
            _along_edges(queries[:, :, group], keys[:, :, group], values[:, :, group], pairs)
            if isinstance(pairs, tuple)
            else _masked(queries[:, :, group], keys[:, :, group], values[:, :, group], pairs)
            for group, pairs in self._groups(relations)
        ]
        return self.project(torch.cat(heard, dim=2).flatten(2))

    def _groups(self, relations: Relations) -> Iterator[tuple[slice, Tensor | tuple[Tensor, Tensor]]]:
        reduction, other_edges, reduction_back, other_edges_back = (tuple(edges) for edges in relations.edges)
        pairs = (
            reduction,
            other_edges,
            relations.closure,
            reduction_back,
            other_edges_back,
            relations.closure_back,
            relations.incomparable,
        )
        for group, of_relation in zip(self.heads.groups, pairs, strict=True):
            if group.stop > group.start:
                yield group, of_relation


def _along_edges(queries: Tensor, keys: Tensor, values: Tensor, edges: tuple[Tensor, Tensor]) -> Tensor:
    """Attention of listeners to speakers; all of shape `(graphs, ops, heads, head width)`."""
    speakers, listeners = edges
    nodes = queries.shape[0] * queries.shape[1]
    scores = (queries.flatten(0, 1)[listeners] * keys.flatten(0, 1)[speakers]).sum(-1) * queries.shape[-1] ** -0.5
    weights = edge_softmax(scores, listeners, nodes)
    messages = weights[..., None] * values.flatten(0, 1)[speakers]
    return sum_messages(messages, listeners, nodes).view_as(queries)


def _masked(queries: Tensor, keys: Tensor, values: Tensor, pairs: Tensor) -> Tensor:
    """Attention where `pairs[graph, listener, speaker]`; a few listeners at a time if the scores are many."""
    graphs, ops, _ = pairs.shape
    queries, keys, values = (tensor.transpose(1, 2) for tensor in (queries, keys, values))
    rows = max(1, SCORES_AT_ONCE // (graphs * ops))
    heard = []
    for start in range(0, ops, rows):
        part = pairs[:, None, start : start + rows]
        has_any = part.any(-1, keepdim=True)
        message = F.scaled_dot_product_attention(
            queries[:, :, start : start + rows], keys, values, attn_mask=part | ~has_any
        )
        heard.append(message * has_any)
    return torch.cat(heard, dim=2).transpose(1, 2)


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
        return embeddings + self.perceptron(self.perceptron_norm(embeddings))


class TopoformerEncoder(nn.Module):
    """Embeds each op, given the others and how they are related to it (Topoformer 4.1).

    Parameters
    ----------
    inputs
        Features per op.
    layers, width
        The paper's are 4 and 256.
    heads, head_width
        The paper's are 10 per relation, of 64.
    """

    def __init__(self, inputs: int, layers: int, width: int, heads: Heads, head_width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(Layer(width, TopologicalAttention(width, heads, head_width)) for _ in range(layers))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return embeddings, shape `(graphs, ops, width)`; of no meaning where padded."""
        relations = relations_of(batch)
        embeddings = self.embed(batch.features)
        for layer in self.layers:
            embeddings = layer(embeddings, relations)
        return embeddings
