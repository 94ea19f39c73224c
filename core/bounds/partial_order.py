"""The partial order that a graph puts on its ops: closure, reduction and incomparable pairs (Topoformer 3.1, 4.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import BoolArray, IndexArray, frozen
from ..graph.graph import CostGraph
from ..kernels.orders.partial_order import close, mark_implied

Bits = NDArray[np.uint64]
Edges = tuple[IndexArray, IndexArray]


class PartialOrder(NamedTuple):
    """Which op must come before which; a set of ops is a row of 64-bit words, op `j` bit `j % 64` of word `j // 64`.

    The seven graphs of Topoformer 4.1 are `reduction`, `other_edges`, what `before` holds beyond the edges, the
    reverses of these three, and `incomparable`.
    """

    # before, after: shape `(ops, words)`: the strict ancestors of each op, and its strict descendants
    before: Bits
    after: Bits
    reduction: Edges  # `(sources, targets)`, sorted by target: the edges of the transitive reduction
    other_edges: Edges  # the same for all other edges between ops; longer paths imply them


def partial_order(graph: CostGraph) -> PartialOrder:
    """Return the order that data and control edges put on the ops of a graph."""
    ops, words = graph.num_ops, (graph.num_ops + 63) // 64
    closures = np.zeros((2, ops, words), np.int64)
    close(*graph.predecessors, graph.input_order, closures[0])
    close(*graph.successors, graph.input_order[::-1].copy(), closures[1])
    pointers, sources = graph.predecessors
    is_implied = np.empty(len(sources), bool)
    mark_implied(pointers, sources, closures[0], np.empty(words, np.int64), is_implied)
    targets = np.repeat(np.arange(ops), np.diff(pointers))

    def edges(chosen: BoolArray) -> Edges:
        return frozen(sources[chosen], np.int32), frozen(targets[chosen], np.int32)

    closures.setflags(write=False)
    before, after = closures.view(np.uint64)
    return PartialOrder(before, after, edges(~is_implied), edges(is_implied))


def incomparable(order: PartialOrder) -> Bits:
    """Return per op the others that may come before it as well as after it, shape `(ops, words)`."""
    ops = np.arange(len(order.before))
    one = np.uint64(1)
    others = ~(order.before | order.after)
    others[ops, ops >> 6] &= ~(one << (ops & 63).astype(np.uint64))
    if len(ops) % 64:
        others[:, -1] &= (one << np.uint64(len(ops) % 64)) - one
    return others


def dense(bits: NDArray[np.uint64] | NDArray[np.int64], ops: int) -> BoolArray:
    """Turn rows of words, shape `(rows, words)`, into a matrix of truth values, shape `(rows, ops)`."""
    return np.unpackbits(bits.view(np.uint8), axis=1, count=ops, bitorder="little").view(np.bool_)
