"""A binary heap of whole numbers in an array, the largest first."""

from __future__ import annotations

from typing import Any

from .jit import inlined


@inlined
def push(heap: Any, size: int, key: int) -> int:
    """Add a key to the first `size`; returns the new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] >= key:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = key
    return size + 1


@inlined
def pop(heap: Any, size: int) -> int:
    """Remove the largest, `heap[0]`, which the caller has read; returns the new size."""
    size -= 1
    key = heap[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key
    return size
