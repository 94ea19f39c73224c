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
    # The gap goes to the bottom before the last entry fills it: fewer branches that no processor foresees.
    size -= 1
    at, child = 0, 1
    while child < size:
        child += int(child + 1 < size) & int(comes_first(keys, heap[child + 1], heap[child]))
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    push(heap, at, heap[size], keys, comes_first)
    return size
