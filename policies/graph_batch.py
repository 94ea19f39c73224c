"""Graphs as the networks see them: padded features, edges, and which op must come before which."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class GraphBatch(NamedTuple):
    """Several graphs padded to the same number of ops.

    Parameters
    ----------
    features
        Shape `(graphs, ops, inputs)`, float32, zero where padded.
    is_op
        Shape `(graphs, ops)`: false where padded.
    reduction, other_edges
        Shape `(2, edges)`: producers and consumers, as rows of the flattened `(graphs * ops)`.
    before
        Shape `(graphs, ops, ops)`: `before[g, i, j]` if op j must run before op i.
    """

    features: Tensor
    is_op: Tensor
    reduction: Tensor
    other_edges: Tensor
    before: Tensor
