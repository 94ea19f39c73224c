"""Longest paths in a graph given as CSR."""

from __future__ import annotations

import numpy as np

from ..base.arrays import FloatArray, IndexArray, frozen
from .jit import kernel


def path_ends(order: IndexArray, pointers: IndexArray, before: IndexArray, runtime: FloatArray) -> FloatArray:
    """Return the longest path that ends with each op, its own runtime included, microseconds; shape `(ops,)`."""
    end = np.empty(len(runtime))
    # Copies of one type, so that the kernel is compiled once.
    find_path_ends(frozen(order, np.int32), pointers, before, frozen(runtime, np.float64), end)
    return end


@kernel
def find_path_ends(
    order: IndexArray, pointers: IndexArray, before: IndexArray, runtime: FloatArray, end: FloatArray
) -> None:
    """Write when each op ends, one after the other."""
    for op in order:
        latest = 0.0
        for at in range(pointers[op], pointers[op + 1]):
            latest = max(latest, end[before[at]])
        end[op] = runtime[op] + latest
