"""One device: the graph reduced to what its memory depends on; all views of a tensor share its buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.arrays import BoolArray, IndexArray, IntArray


class Buffers(NamedTuple):
    """The one-device memory model as arrays, read by the kernels."""

    # per buffer, shape `(buffers,)`: bytes, the op that allocates it, whether it is kept to the end
    size: IntArray
    producer: IndexArray
    is_final: BoolArray
    # CSR buffer -> the distinct ops that read it or a view of it
    user_ptr: IndexArray
    users: IndexArray
    # CSR op -> the distinct buffers it reads
    used_ptr: IndexArray
    used: IndexArray
    made_ptr: IndexArray  # buffers are sorted by producer: those of op `v` are `made_ptr[v]` up to `made_ptr[v + 1]`
    own: IntArray  # per op, shape `(ops,)`: bytes it allocates for outputs
    workspace: IntArray  # per op: temporary bytes while it runs
    # CSR op -> distinct ops it waits for, and that wait for it
    predecessor_ptr: IndexArray
    predecessors: IndexArray
    successor_ptr: IndexArray
    successors: IndexArray


def unread_bytes(b: Buffers) -> IntArray:
    """Return the bytes that each op allocates and that are freed at once, for nothing reads or keeps them; `(ops,)`."""
    unread = (np.diff(b.user_ptr) == 0) & ~b.is_final
    total: IntArray = np.zeros(len(b.own), np.int64)
    np.add.at(total, b.producer[unread], b.size[unread])
    return total
