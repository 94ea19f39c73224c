"""A graph as sequences need it that may run an op several times, on one device; rules as in `core.model.unrolled`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray, csr, sorted_csr
from ...graph.graph import CostGraph


class RunGraph(NamedTuple):
    """A graph as sequences of runs need it; control tensors are edges between ops."""

    # read_ptr, reads: CSR op -> the distinct tensors it reads
    read_ptr: IndexArray
    reads: IndexArray
    # made_ptr, made: CSR op -> the tensors it makes
    made_ptr: IndexArray
    made: IndexArray
    # alias, size, is_final, producer: per tensor: what it is a view of or -1, bytes, whether it is kept, and its op
    alias: IndexArray
    size: IntArray
    is_final: BoolArray
    producer: IndexArray
    # pred_ptr, preds, succ_ptr, succs: CSR op -> ops that it reads or waits for, and those that read it or wait for it
    pred_ptr: IndexArray
    preds: IndexArray
    succ_ptr: IndexArray
    succs: IndexArray
    # wait_ptr, waits, follow_ptr, follows: CSR op -> ops that it waits for by control edges, and those that so wait for
    # it
    wait_ptr: IndexArray
    waits: IndexArray
    follow_ptr: IndexArray
    follows: IndexArray
    # runs_once, runtime, workspace, rank: per op: whether it may not run again, microseconds, bytes, its place in the
    # input order
    runs_once: BoolArray
    runtime: FloatArray
    workspace: IntArray
    rank: IndexArray
    persistent: int  # bytes throughout


def run_graph(graph: CostGraph) -> RunGraph:
    """Return the arrays of a graph."""
    ops, tensors = graph.num_ops, np.arange(graph.num_tensors)
    readers = np.repeat(np.arange(ops), np.diff(graph.inputs[0]))
    is_data = ~graph.is_control[graph.inputs[1]]
    waiting, waited = readers[~is_data], graph.tensor_producer[graph.inputs[1][~is_data]]
    rank = np.empty(ops, np.int32)
    rank[graph.input_order] = np.arange(ops)
    data = tensors[~graph.is_control]
    return RunGraph(
        *csr(readers[is_data], graph.inputs[1][is_data], ops),
        *csr(graph.tensor_producer[data], data, ops),
        graph.alias_of,
        graph.tensor_size,
        graph.is_final,
        graph.tensor_producer,
        *graph.predecessors,
        *graph.successors,
        *csr(waiting, waited, ops),
        *sorted_csr(waited, waiting, ops),
        graph.runs_once,
        graph.runtime,
        graph.workspace,
        rank,
        int(graph.persistent.sum()),
    )
