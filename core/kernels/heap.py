"""A binary heap in an array: of keys, or of the places of keys that are compared by a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .jit import inlined

# Whether, given the keys, the second argument leaves the heap before the third
ComesFirst = Callable[[Any, Any, Any], bool]


@inlined
def larger_first(keys: Any, one: Any, two: Any) -> bool:
    """Order entries that are keys themselves: the larger comes first, and `keys` says nothing."""
    return bool(one > two)


@inlined
def push(heap: Any, size: int, entry: Any, keys: Any, comes_first: ComesFirst) -> int:
    """Add an entry to the first `size`; returns the new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not comes_first(keys, entry, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = entry
    return size + 1


@inlined
def pop(heap: Any, size: int, keys: Any, comes_first: ComesFirst) -> int:
    """Remove the first, `heap[0]`, which the caller has read; returns the new size."""
    size -= 1
    entry = heap[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and comes_first(keys, heap[child + 1], heap[child]):
            child += 1
        if not comes_first(keys, heap[child], entry):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry
    return size
