"""Reachability and distances in a graph given as CSR."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.arrays import BoolArray, IndexArray
from .bits import bit_of, has_bit
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


def breadth_first(pointers: IndexArray, neighbours: IndexArray, sources: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return how far from each source its farthest node is, and from each node its nearest source."""
    # Shapes `(sources,)`, at most 64, and `(nodes,)`; nodes that no path leads to do not count, and are -1 away.
    nodes = len(pointers) - 1
    farthest, distance = np.zeros(len(sources), np.int32), np.full(nodes, -1, np.int32)
    sets, fronts = np.zeros((3, nodes), np.uint64), np.empty((2, nodes), np.int32)
    _breadth_first(pointers, neighbours, sources, sets, fronts, farthest, distance)
    return farthest, distance


@kernel
def _breadth_first(
    pointers: IndexArray,
    neighbours: IndexArray,
    sources: IndexArray,
    sets: Any,
    fronts: IndexArray,
    farthest: IndexArray,
    distance: IndexArray,
) -> None:
    """Breadth-first search from all sources at once: which of them have met a node is a set of bits."""
    seen, last, coming = sets[0], sets[1], sets[2]
    count = 0
    for number in range(len(sources)):
        node = sources[number]
        seen[node] |= bit_of(number)
        last[node] = seen[node]
        if distance[node]:
            distance[node] = 0
            fronts[0, count] = node
            count += 1
    level = 0
    while count:
        front, following = fronts[level % 2], fronts[(level + 1) % 2]
        level += 1
        met = 0
        for place in range(count):
            node = front[place]
            for at in range(pointers[node], pointers[node + 1]):
                neighbour = neighbours[at]
                new = last[node] & ~seen[neighbour]
                if new:
                    if not coming[neighbour]:
                        following[met] = neighbour
                        met += 1
                    coming[neighbour] |= new
        count = met
        reached = np.uint64(0)
        for place in range(count):
            node = following[place]
            last[node] = coming[node]
            seen[node] |= coming[node]
            reached |= coming[node]
            coming[node] = 0
            if distance[node] < 0:
                distance[node] = level
        for number in range(len(sources)):
            if has_bit(reached, number):
                farthest[number] = level
