"""The hash of a graph, by which files know what they were made for."""

from __future__ import annotations

import hashlib

import numpy as np

from .files.costgraph import format_graph
from .graph import CostGraph


def graph_hash(graph: CostGraph) -> str:
    """Return the SHA-256 of what a graph holds, but for its name.

    It is that of the graph as binary CostGraphDef, which has whole microseconds; other runtimes, which no
    file can hold, are added.
    """
    digest = hashlib.sha256(format_graph(graph, "binary"))
    if np.any(graph.runtime != np.round(graph.runtime)):
        digest.update(graph.runtime.tobytes())
    return digest.hexdigest()
