"""The graph as the kernels take it: plain read-only arrays under names."""

from __future__ import annotations

from typing import NamedTuple

from ..graph import BoolArray, CostGraph, FloatArray, IndexArray, IntArray


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


def graph_arrays(graph: CostGraph) -> GraphArrays:
    """Collect the arrays of a graph."""
    input_ptr, inputs = graph.inputs
    consumer_ptr, consumers = graph.consumers
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
        input_ptr,
        inputs,
        consumer_ptr,
        consumers,
    )
