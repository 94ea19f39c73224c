"""The diameter of a graph: how far apart two of its ops are."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..base.arrays import csr
from ..graph.graph import CostGraph
from ..kernels.reach import breadth_first

_SINGLE_SOURCES = 32
_SOURCES_AT_ONCE = 64
_VISITS_AT_ONCE = 2**26  # of edges; Ctrl-C is heard between them


def diameter(graph: CostGraph) -> int:
    """Return the longest shortest path of the largest component, edges taken both ways (REGAL figure 6)."""
    # Searches from single ops bound how far every op reaches (Takes and Kosters 2013); those that may reach farther
    # than any before are then searched from, many at once.
    ops, (before, after) = np.arange(graph.num_ops), graph.edges
    pointers, neighbours = csr(np.concatenate((before, after)), np.concatenate((after, before)), len(ops))
    edges = coo_matrix((np.ones_like(before), (before, after)), (len(ops), len(ops)))
    _, component = connected_components(edges, directed=False)
    members = component == np.argmax(np.bincount(component))
    least, most, longest = np.zeros_like(ops), np.where(members, members.sum() - 1, 0), 0
    for turn in range(_SINGLE_SOURCES):
        left = ops[most > longest]
        if not len(left):
            return longest
        source = left[np.argmin(least[left])] if turn % 2 else left[np.argmax(most[left])]
        (farthest,), distance = breadth_first(pointers, neighbours, np.array([source], np.int32))
        most = np.minimum(most, farthest + distance)
        least = np.maximum(least, np.maximum(distance, farthest - distance))
        most[source], longest = farthest, max(longest, int(farthest))
    left = ops[most > longest]
    left = left[np.argsort(-most[left], kind="stable")]
    while len(left) and most[left[0]] > longest:
        few = min(_SOURCES_AT_ONCE, _VISITS_AT_ONCE // len(neighbours)) or 1
        count = few if most[left[0]] > few else _SOURCES_AT_ONCE  # an edge is visited once per level or source at most
        farthest, _ = breadth_first(pointers, neighbours, left[:count].astype(np.int32))
        longest, left = max(longest, int(farthest.max())), left[count:]
    return longest


def warm_up() -> None:
    """Compile the kernel."""
    breadth_first(*csr(np.array([0, 1]), np.array([1, 0]), 2), np.zeros(1, np.int32))
