"""The diameter of a graph: how far apart two of its ops are."""

from itertools import count

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from ..graph.graph import CostGraph


def diameter(graph: CostGraph) -> int:
    """Return the longest shortest path of the largest component, edges taken both ways (REGAL figure 6)."""
    # Searches from single ops bound how far others reach, until none can reach farther (Takes and Kosters 2013).
    edges = csr_array((np.ones(len(graph.edges[0])), graph.edges), (graph.num_ops, graph.num_ops))
    _, component = connected_components(edges, directed=False)
    members = np.flatnonzero(component == np.argmax(np.bincount(component)))
    edges = (edges + edges.T)[members][:, members]
    least, most, longest = np.zeros(len(members)), np.full(len(members), len(members) - 1.0), 0
    for turn in count():
        left = np.flatnonzero(most > longest)
        if not len(left):
            break
        source = left[least[left].argmin() if turn % 2 else most[left].argmax()]
        distance = dijkstra(edges, indices=source, unweighted=True)
        farthest = int(distance.max())
        most = np.minimum(most, farthest + distance)
        least = np.maximum(least, np.maximum(distance, farthest - distance))
        most[source], longest = farthest, max(longest, farthest)
    return longest
