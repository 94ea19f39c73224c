"""Tensors grouped with all their views, which share a buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.arrays import IndexArray, csr
from ...graph.graph import CostGraph


class Groups(NamedTuple):
    """Tensors with their views, by what touches them."""

    group: IndexArray  # per tensor its group, -1 for control
    # tensor_ptr, tensors: CSR group -> its tensors, the one that is no view first
    tensor_ptr: IndexArray
    tensors: IndexArray
    # member_ptr, members: CSR group -> the ops that make or read one of them
    member_ptr: IndexArray
    members: IndexArray
    # touch_ptr, touches: CSR op -> the groups that it makes or reads
    touch_ptr: IndexArray
    touches: IndexArray
    # user_ptr, users: CSR op -> the ops that read what it makes
    user_ptr: IndexArray
    users: IndexArray


def groups_of(graph: CostGraph) -> Groups:
    """Return the groups of a graph."""
    data = np.flatnonzero(~graph.is_control)
    roots = np.unique(graph.root[data])
    group = np.full(graph.num_tensors, -1, np.int32)
    group[data] = np.searchsorted(roots, graph.root[data])
    readers, read = np.repeat(np.arange(graph.num_ops), np.diff(graph.inputs[0])), graph.inputs[1]
    is_data = ~graph.is_control[read]
    ops = np.concatenate((graph.tensor_producer[data], readers[is_data]))
    pairs = np.unique(np.stack((ops, np.concatenate((group[data], group[read[is_data]])))), axis=1)
    users = np.unique(np.stack((graph.tensor_producer[read[is_data]], readers[is_data])), axis=1)
    by_root = data[np.argsort(graph.alias_of[data] >= 0, kind="stable")]
    group.setflags(write=False)
    return Groups(
        group,
        *csr(group[by_root], by_root, len(roots)),
        *csr(pairs[1], pairs[0], len(roots)),
        *csr(pairs[0], pairs[1], graph.num_ops),
        *csr(users[0], users[1], graph.num_ops),
    )
