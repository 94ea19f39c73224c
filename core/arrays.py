"""Arrays of graphs: their types, and what makes, freezes and groups them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """Return `values` as a contiguous array that cannot be written to."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def csr(rows: NDArray[Any], columns: NDArray[Any], count: int) -> tuple[IndexArray, IndexArray]:
    """Group `columns` by `rows`, keeping their order: `(pointers of shape (count + 1,), columns)`."""
    order = np.argsort(rows, kind="stable")
    pointers = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return frozen(pointers, np.int32), frozen(columns[order], np.int32)


def distinct_pairs(rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Drop repeated `(row, column)` pairs, keeping the first of each in its place."""
    width = int(columns.max(initial=0)) + 1
    _, first = np.unique(rows.astype(np.int64) * width + columns, return_index=True)
    first.sort()
    return rows[first], columns[first]
