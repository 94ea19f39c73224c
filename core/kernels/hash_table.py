"""A hash table in arrays: linear probing for 64-bit hashes that are told apart by nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import inlined


@inlined
def slot_of(table: Any, hashes: Any, key: Any) -> Any:
    """Return the slot that holds a hash, or the free one where it belongs."""
    mask = np.uint64(table.size - 1)
    slot = key & mask
    while table[slot] >= 0 and hashes[table[slot]] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot
