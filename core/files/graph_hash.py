"""The hash of a graph, by which files know what they were made for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np

from ..graph.annotations import NO_ANNOTATIONS
from ..graph.graph import CostGraph
from .costgraph import format_graph


def graph_hash(graph: CostGraph) -> str:
    """Return the SHA-256 of what a graph holds, but for its name."""
    rounded = np.round(graph.runtime)
    digest = hashlib.sha256(format_graph(replace(graph, runtime=rounded, annotations=NO_ANNOTATIONS), "binary"))
    if np.any(graph.runtime != rounded):
        digest.update(graph.runtime.tobytes())
    return digest.hexdigest()


def structure_hash(graph: CostGraph) -> str:
    """Return the SHA-256 by which a schedule file names its graph: of all that an order and its memory rest on."""
    digest = hashlib.sha256(json.dumps(graph.op_names).encode())
    for values in (
        graph.output_ptr,
        graph.tensor_size,
        graph.alias_of,
        graph.is_final,
        graph.is_control,
        graph.read_ptr,
        graph.read_tensor,
        graph.persistent,
    ):
        digest.update(values.astype("<i8").tobytes())
    return digest.hexdigest()
