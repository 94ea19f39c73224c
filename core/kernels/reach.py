"""Reachability in a graph given as CSR."""

from __future__ import annotations

import numpy as np

from ..base.arrays import BoolArray, IndexArray
from .jit import kernel


def reachable(pointers: IndexArray, neighbours: IndexArray, start: int) -> BoolArray:
    """Return which nodes a path leads to from `start`, itself left out, shape `(nodes,)`."""
    seen = np.zeros(len(pointers) - 1, np.bool_)
    mark_reachable(pointers, neighbours, start, seen, np.empty(len(pointers), np.int32))
    return seen


@kernel
def mark_reachable(
    pointers: IndexArray, neighbours: IndexArray, start: int, seen: BoolArray, stack: IndexArray
) -> None:
    """Depth-first search that marks what it meets in `seen`."""
    stack[0] = start
    height = 1
    while height:
        height -= 1
        node = stack[height]
        for at in range(pointers[node], pointers[node + 1]):
            neighbour = neighbours[at]
            if not seen[neighbour]:
                seen[neighbour] = True
                stack[height] = neighbour
                height += 1
