"""The encoders that Topoformer is compared with, in layers like its own (Topoformer 5.3, Table 3; appendix B)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..networks.message_passing import GatConvolution
from .batch import GraphBatch
from .encoders import AttentionEncoder


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
        producers, consumers = torch.cat((batch.reduction, batch.other_edges), dim=1)
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

    def relations(self, batch: GraphBatch) -> Tensor:
        """Return speakers and listeners, shape `(2, edges)`."""
        edges = torch.cat((batch.reduction, batch.other_edges), dim=1)
        return torch.cat((edges, edges.flip(0)), dim=1) if self.bidirectional else edges


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

    def forward(self, embeddings: Tensor, edges: Tensor) -> Tensor:
        heard = self.convolution(embeddings.flatten(0, 1), edges)
        messages: Tensor = self.project(heard).view_as(embeddings)
        return messages
