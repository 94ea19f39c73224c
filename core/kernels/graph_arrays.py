"""The graph as the kernels take it: plain read-only arrays under names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..base.errors import UsageError
from ..graph.graph import CostGraph


class GraphArrays(NamedTuple):
    """A `CostGraph` for the kernels of the multi-device cost model; CSR pairs are `*_ptr` and the rest."""

    runtime: FloatArray
    workspace: IntArray
    persistent: IntArray
    output_ptr: IndexArray
    tensor_size: IntArray
    alias_of: IndexArray
    is_final: BoolArray
    is_control: BoolArray
    producer: IndexArray
    input_ptr: IndexArray
    inputs: IndexArray
    consumer_ptr: IndexArray
    consumers: IndexArray


def graph_arrays(graph: CostGraph, devices: int) -> GraphArrays:
    """Collect the arrays of a graph."""
    if graph.num_ops + graph.num_tensors * devices >= 2**31:
        raise UsageError(f"{graph.name}: too many tensors times devices ({graph.num_tensors} x {devices})")
    return GraphArrays(
        graph.runtime,
        graph.workspace,
        graph.persistent,
        graph.output_ptr,
        graph.tensor_size,
        graph.alias_of,
        graph.is_final,
        graph.is_control,
        graph.tensor_producer,
        *graph.inputs,
        *graph.consumers,
    )


def most_transfers(g: GraphArrays, devices: int) -> int:
    """Return how many transfers a schedule has at most: a tensor goes to each other device that reads it, once."""
    return int(np.minimum(np.diff(g.consumer_ptr), devices - 1).sum())
