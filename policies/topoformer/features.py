"""Features of ops: what Topoformer knows of each before any message is passed (C.5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...core.base.arrays import IndexArray
from ...core.graph.graph import CostGraph
from .laplacian import positional_encoding

Features = NDArray[np.float32]
NODE_FEATURES = 8


def op_features(graph: CostGraph, *, eigenvectors: int = 20, look: Callable[[], None] = lambda: None) -> Features:
    """Return the input features of every op, shape `(ops, NODE_FEATURES + eigenvectors)`."""
    # The first eight are divided by their largest value in the graph. Then come the eigenvectors, see
    # `positional_encoding`, not divided. The paper's graphs have one source and one target; any of several counts here.
    sources, targets = graph.edges
    plain = np.column_stack(
        (
            graph.buffers.own,
            graph.workspace,  # where layered graphs keep what the paper calls the bytes of parameters
            np.bincount(targets, minlength=graph.num_ops),  # how many ops it waits for
            np.bincount(sources, minlength=graph.num_ops),  # how many wait for it
            *_hops(*graph.predecessors, graph.input_order),  # from a source
            *_hops(*graph.successors, graph.input_order[::-1]),  # to a target
        )
    )
    largest = plain.max(axis=0)
    encoding = positional_encoding(graph, eigenvectors, look)
    return np.hstack((plain / np.where(largest > 0, largest, 1), encoding)).astype(np.float32)


def _hops(pointers: IndexArray, neighbours: IndexArray, order: IndexArray) -> tuple[list[int], list[int]]:
    """Return the fewest and the most hops to an op without neighbours; neighbours come earlier in `order`."""
    starts, near = pointers.tolist(), neighbours.tolist()
    fewest, most = [0] * len(order), [0] * len(order)
    for op in order.tolist():
        if starts[op] < starts[op + 1]:
            beside = near[starts[op] : starts[op + 1]]
            fewest[op] = 1 + min(fewest[other] for other in beside)
            most[op] = 1 + max(most[other] for other in beside)
    return fewest, most
