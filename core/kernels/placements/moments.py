"""The order in which steps start and end: a merger of each device's own, which is in order already."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ..jit import inlined, kernel


@kernel
def sort_moments(moments: FloatArray, order: IndexArray, merged: IndexArray, ends: IndexArray, rows: Any) -> None:
    """Fill `order` with the places of the least moments first, equals in their order."""
    per_step = moments.size // max(1, rows.size)
    last = ends.size - 2
    ends[:] = 0
    for step in range(rows.size):
        ends[rows[step] + 1] += per_step
    for row in range(last + 1):
        ends[row + 1] += ends[row]
    for step in range(rows.size):
        for at in range(step * per_step, (step + 1) * per_step):
            order[ends[rows[step]]] = at
            ends[rows[step]] += 1
    _sort(moments, order, merged, ends[last - 1] if last else 0, ends[last])
    for row in range(1, last + 1):
        _merge(moments, order, merged, 0, ends[row - 1], ends[row])


@inlined
def _sort(moments: FloatArray, order: IndexArray, merged: IndexArray, first: int, last: int) -> None:
    """Sort a stretch of places by their moments, bottom up."""
    width = 1
    while width < last - first:
        for low in range(first, last, 2 * width):
            _merge(moments, order, merged, low, min(low + width, last), min(low + 2 * width, last))
        width *= 2


@inlined
def _merge(moments: FloatArray, order: IndexArray, merged: IndexArray, low: int, middle: int, high: int) -> None:
    """Merge two stretches of places that are in order, one behind the other."""
    if low < middle < high and _is_before(moments, order[middle], order[middle - 1]):
        for at in range(low, middle):
            merged[at] = order[at]
        one, two, at = low, middle, low
        while one < middle:
            if two < high and _is_before(moments, order[two], merged[one]):
                order[at] = order[two]
                two += 1
            else:
                order[at] = merged[one]
                one += 1
            at += 1


@inlined
def _is_before(moments: FloatArray, one: np.int32, other: np.int32) -> bool:
    return bool(moments[one] < moments[other] or (moments[one] == moments[other] and one < other))
