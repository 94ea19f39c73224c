"""The layer that all encoders share (Topoformer 4.1, eq. 4-5)."""

from __future__ import annotations

from torch import Tensor, nn


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
        messages: Tensor = self.perceptron(self.perceptron_norm(embeddings))
        return embeddings + messages
