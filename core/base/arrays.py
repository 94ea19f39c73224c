"""Arrays of graphs: their types, and the functions that make, freeze and group them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
_BITS, _LOW = 32, 2**32 - 1


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """Return `values` as a contiguous array that cannot be written to."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def csr(rows: NDArray[Any], columns: NDArray[Any], count: int) -> tuple[IndexArray, IndexArray]:
    """Group `columns` by `rows`, keeping their order: `(pointers of shape (count + 1,), columns)`."""
    if not np.all(rows[1:] >= rows[:-1]):
        if np.all(columns[1:] >= columns[:-1]):
            return sorted_csr(rows, columns, count)
        columns = columns[stable_order(rows)]
    pointers = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return frozen(pointers, np.int32), frozen(columns, np.int32)


def stable_order(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of `rows` in increasing order, equal ones as they stand."""
    # Each is sorted together with its place, which is several times as fast as a stable sort.
    order = _packed(rows, np.arange(len(rows)))
    order.sort()
    order &= _LOW
    return order


def sorted_csr(rows: NDArray[Any], columns: NDArray[Any], count: int) -> tuple[IndexArray, IndexArray]:
    """Group `columns` by `rows` as `csr` does, but in increasing order in each group."""
    packed = _packed(rows, columns)
    packed.sort()
    pointers = np.searchsorted(packed, np.arange(count + 1, dtype=np.int64) << _BITS)
    packed &= _LOW
    return frozen(pointers, np.int32), frozen(packed, np.int32)


def distinct_pairs(rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Drop repeated `(row, column)` pairs, keeping the first of each in its place."""
    if pairs_rise(rows, columns) or pairs_rise(columns, rows):
        return rows, columns
    pairs = _packed(rows, columns)
    in_order = np.sort(pairs)
    if not np.any(in_order[1:] == in_order[:-1]):
        return rows, columns
    _, first = np.unique(pairs, return_index=True)
    first.sort()
    return rows[first], columns[first]


def gathered(values: NDArray[Any], first: NDArray[Any], last: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the values from each `first` up to each `last`, one group after the other, and the group of each."""
    counts = last - first
    group = np.repeat(np.arange(len(first)), counts)
    at = np.arange(len(group)) - (np.cumsum(counts) - counts)[group]
    return values[first[group] + at], group


def places_in(order: NDArray[Any]) -> FloatArray:
    """Return the place of each op in an order, from 0 to 1."""
    places = np.empty(len(order))
    places[order] = np.linspace(0, 1, len(order))
    return places


def pairs_rise(rows: NDArray[Any], columns: NDArray[Any]) -> bool:
    """Whether the pairs are in increasing order, so that none is there twice."""
    same = rows[1:] == rows[:-1]
    same &= columns[1:] > columns[:-1]
    same |= rows[1:] > rows[:-1]
    return bool(same.all())


def _packed(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return both as one number each, sorted by row and then by column; both are below 2^31."""
    packed: NDArray[np.int64] = rows.astype(np.int64)
    packed <<= _BITS
    packed |= columns
    return packed
