"""First fit: pieces of memory, placed one after another at the lowest offset that is free all their life."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.arrays import IndexArray, IntArray
from .jit import kernel


class Placing(NamedTuple):
    """What is to be placed, and scratch space; lifetimes are half-open."""

    # lower, upper, size, alignment: shape `(pieces,)`
    lower: IntArray
    upper: IntArray
    size: IntArray
    alignment: IntArray
    offsets: IntArray  # shape `(pieces,)`: receives the offsets
    placed: IndexArray  # scratch, shape `(pieces,)`: what is placed already, by offset


def new_placing(lower: IntArray, upper: IntArray, size: IntArray, alignment: IntArray) -> Placing:
    """Allocate what a placement needs."""
    return Placing(lower, upper, size, alignment, np.zeros(len(size), np.int64), np.zeros(len(size), np.int32))


@kernel
def first_fit(p: Placing, order: IndexArray, limit: int) -> int:
    """Place the pieces in an order, all or until one ends beyond the limit; returns the end of the highest placed."""
    highest = 0
    for count in range(order.size):
        piece = order[count]
        start, end, size, alignment = p.lower[piece], p.upper[piece], int(p.size[piece]), p.alignment[piece]
        at = 0
        for k in range(count):
            other = p.placed[k]
            offset = p.offsets[other]
            if offset >= at + size:
                break
            if p.lower[other] < end and start < p.upper[other]:
                above = offset + p.size[other]
                if above > at:
                    at = -(-above // alignment) * alignment
        p.offsets[piece] = at
        highest = max(highest, at + size)
        if highest > limit:
            return highest
        place = count
        while place > 0 and p.offsets[p.placed[place - 1]] > at:
            p.placed[place] = p.placed[place - 1]
            place -= 1
        p.placed[place] = piece
    return highest
