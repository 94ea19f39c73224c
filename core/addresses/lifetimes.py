"""Lifetimes to be given addresses: from when to when how many bytes are needed, and at which multiples they may lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT64_MAX, IntArray, frozen
from ..base.errors import UsageError
from ..base.units import LARGEST_ALIGNMENT

LATEST = 2**62


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Pieces of memory, arrays of shape `(pieces,)`; build them with `of`, which checks them."""

    # the first step that needs each, and the first after it that does not
    lower: IntArray
    upper: IntArray
    size: IntArray  # bytes
    alignment: IntArray  # the offset of each is a multiple of it

    @staticmethod
    def of(lower: Any, upper: Any, size: Any, alignment: Any = 1, names: Sequence[str] = ()) -> Lifetimes:
        """Build from anything array-like; one alignment may stand for all, and names say what errors call each."""
        given = [np.asarray(column) for column in (lower, upper, size)]
        given.append(np.broadcast_to(np.asarray(alignment), given[0].shape))
        if any(column.ndim != 1 or len(column) != len(given[0]) for column in given):
            shapes = ", ".join(str(column.shape) for column in given)
            raise UsageError(f"lifetimes have one lower, upper, size and alignment each, not the shapes {shapes}")
        if any(column.size and column.dtype.kind not in "iu" for column in given):
            raise UsageError("lifetimes, sizes and alignments are whole numbers of 64 bits")
        if any(column.size and int(column.max()) > INT64_MAX for column in given):
            raise UsageError("lifetimes, sizes and alignments are at most 2^63 - 1")
        lifetimes = Lifetimes(*(frozen(column, np.int64) for column in given))
        lifetimes._check(names)
        return lifetimes

    def _check(self, names: Sequence[str]) -> None:
        columns = zip(*(column.tolist() for column in (self.lower, self.upper, self.size, self.alignment)), strict=True)
        total = 0
        for place, (lower, upper, size, alignment) in enumerate(columns):
            name = names[place] if names else f"lifetime {place}"
            if not (lower >= -LATEST and upper <= LATEST):
                raise UsageError(f"{name} must be from -2^62 to 2^62, not from {lower} to {upper}")
            if lower >= upper:
                raise UsageError(f"{name} must end after it starts, not be from {lower} to {upper}")
            if size < 0:
                raise UsageError(f"{name} must not have a negative size, not {size}")
            if not 1 <= alignment <= LARGEST_ALIGNMENT:
                raise UsageError(f"{name} must have an alignment from 1 to 2^31, not {alignment}")
            total += size + alignment
        if total * math.lcm(*map(int, np.unique(self.alignment))) > INT64_MAX:
            raise UsageError(f"the {total:,} bytes of all lifetimes times their alignments exceed 2^63 - 1")

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def unit(self) -> int:
        """What every offset and the arena are multiples of: the greatest common divisor of the alignments."""
        return math.gcd(*map(int, np.unique(self.alignment))) or 1

    @cached_property
    def live(self) -> int:
        """The most bytes that live at once, each size rounded up to the unit; no arena is smaller."""
        return int(live_at_once(self.lower, self.upper, rounded_up(self.size, self.unit)).max(initial=0))


def rounded_up(sizes: NDArray[Any], unit: int) -> IntArray:
    """Return sizes as the least multiples of a unit that hold them."""
    rounded: IntArray = -(-sizes // unit) * unit
    return rounded


def live_at_once(lower: NDArray[Any], upper: NDArray[Any], size: NDArray[Any]) -> IntArray:
    """Return the bytes that live from each moment at which a lifetime starts or ends, in the order of these."""
    moments = np.unique(np.concatenate((lower, upper)))
    change = np.zeros(len(moments), np.int64)
    np.add.at(change, np.searchsorted(moments, lower), size)
    np.subtract.at(change, np.searchsorted(moments, upper), size)
    live: IntArray = np.cumsum(change)
    return live
