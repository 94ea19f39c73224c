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
    """Return the input features of every op, shape `(ops, NODE_FEATURES + eigenvectors)`.

    The first eight, each divided by its largest value in the graph (zeros stay zeros), are

    1. the bytes of its outputs, without views and control;
    2. its workspace, which is where layered graphs keep what the paper calls the bytes of parameters
       (`docs/concepts/cost-model.md`);
    3. and 4. how many ops it waits for, and how many wait for it, by data or control;
    5. and 6. the fewest and the most hops from a source, an op that waits for none;
    7. and 8. the fewest and the most hops to a target, an op that none waits for.

    The paper's graphs have one source and one target; where there are several, any of them counts, and each is
    at distance 0 from itself. Then come the eigenvectors of the Laplacian, see `positional_encoding`, not divided.
    """
    sources, targets = graph.edges
    plain = np.column_stack(
        (
            graph.buffers.own,
            graph.workspace,
            np.bincount(targets, minlength=graph.num_ops),
            np.bincount(sources, minlength=graph.num_ops),
            *_hops(*graph.predecessors, graph.input_order),
            *_hops(*graph.successors, graph.input_order[::-1]),
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
