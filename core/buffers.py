"""One device: the graph reduced to what its memory depends on.

All views of a tensor share its buffer, so the memory after a set S of ops is a function of S alone: a buffer
is alive if its producer is in S and it is final or some op that touches it is not in S.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .graph import BoolArray, CostGraph, IndexArray, IntArray, csr, distinct_pairs, frozen


class Buffers(NamedTuple):
    """The one-device memory model as arrays, read by the kernels.

    Parameters
    ----------
    size, producer, is_final
        Per buffer, shape `(buffers,)`: bytes, the op that allocates it, whether it is kept to the end.
    user_ptr, users
        CSR buffer -> the distinct ops that read it or a view of it.
    used_ptr, used
        CSR op -> the distinct buffers it reads.
    made_ptr
        Buffers are sorted by producer: those of op `v` are `made_ptr[v]` up to `made_ptr[v + 1]`.
    own
        Per op, shape `(ops,)`: bytes it allocates for outputs.
    workspace
        Per op: temporary bytes while it runs.
    predecessor_ptr, predecessors, successor_ptr, successors
        CSR op -> distinct ops it waits for, and that wait for it.
    """

    size: IntArray
    producer: IndexArray
    is_final: BoolArray
    user_ptr: IndexArray
    users: IndexArray
    used_ptr: IndexArray
    used: IndexArray
    made_ptr: IndexArray
    own: IntArray
    workspace: IntArray
    predecessor_ptr: IndexArray
    predecessors: IndexArray
    successor_ptr: IndexArray
    successors: IndexArray


def unread_bytes(b: Buffers) -> IntArray:
    """Return the bytes that each op allocates and that are freed at once, for nothing reads or keeps them; `(ops,)`."""
    unread = (np.diff(b.user_ptr) == 0) & ~b.is_final
    total = np.zeros(len(b.own), np.int64)
    np.add.at(total, b.producer[unread], b.size[unread])
    return total


def buffers_of(graph: CostGraph) -> Buffers:
    """Reduce a graph to its buffers; persistent bytes, resident throughout, are left out."""
    data = ~graph.is_control
    roots = np.flatnonzero(data & (graph.alias_of < 0))
    buffer_of_root = np.full(graph.num_tensors, -1, np.int64)
    buffer_of_root[roots] = np.arange(len(roots))
    buffer = buffer_of_root[graph.root]

    is_final = np.zeros(len(roots), bool)
    is_final[buffer[data & graph.is_final]] = True
    pointers, consumers = graph.consumers
    tensors = np.repeat(np.arange(graph.num_tensors), np.diff(pointers))
    held = data[tensors]
    buffers, ops = distinct_pairs(buffer[tensors[held]], consumers[held])
    user_ptr, users = csr(buffers, ops, len(roots))
    used_ptr, used = csr(ops, buffers, graph.num_ops)
    producer = graph.tensor_producer[roots]
    size = graph.tensor_size[roots]
    own = np.zeros(graph.num_ops, np.int64)
    np.add.at(own, producer, size)
    made_ptr = np.searchsorted(producer, np.arange(graph.num_ops + 1))
    return Buffers(
        frozen(size, np.int64),
        frozen(producer, np.int32),
        frozen(is_final, np.bool_),
        user_ptr,
        users,
        used_ptr,
        used,
        frozen(made_ptr, np.int32),
        frozen(own, np.int64),
        graph.workspace,
        *graph.predecessors,
        *graph.successors,
    )
