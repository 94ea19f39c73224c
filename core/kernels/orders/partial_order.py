"""Transitive closure and reduction on bitsets: bit `j` of a row is bit `j & 63` of its word `j >> 6`."""

from __future__ import annotations

from typing import Any

from ...base.arrays import BoolArray, IndexArray
from ..jit import inlined, kernel


@inlined
def has(row: Any, op: int) -> bool:
    """Return whether an op is in a bitset."""
    found: bool = (row[op >> 6] >> (op & 63)) & 1 != 0
    return found


@kernel
def close(pointers: IndexArray, neighbours: IndexArray, order: IndexArray, bits: Any) -> None:
    """Fill `bits`, shape `(ops, words)`, with the transitive closure; neighbours come earlier in `order`."""
    for op in order:
        for at in range(pointers[op], pointers[op + 1]):
            other = neighbours[at]
            for word in range(bits.shape[1]):
                bits[op, word] |= bits[other, word]
            bits[op, other >> 6] |= 1 << (other & 63)


@kernel
def mark_implied(pointers: IndexArray, neighbours: IndexArray, bits: Any, beyond: Any, is_implied: BoolArray) -> None:
    """Mark each edge to a neighbour that a longer path leads to as well."""
    for op in range(bits.shape[0]):
        for word in range(beyond.size):
            beyond[word] = 0
        for at in range(pointers[op], pointers[op + 1]):
            for word in range(beyond.size):
                beyond[word] |= bits[neighbours[at], word]
        for at in range(pointers[op], pointers[op + 1]):
            is_implied[at] = has(beyond, neighbours[at])
