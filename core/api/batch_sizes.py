"""The largest batch that fits: models are imported in several sizes, guessed by how the peak grows, until two meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base.errors import ProgramError, UsageError
from ..base.units import format_bytes

SMALLEST, LARGEST = 1, 65_536
_STEP = 8


class Need(NamedTuple):
    """What a batch needs: bytes by the best schedule found, and bytes that no schedule is below."""

    peak: int
    bound: int


class Found(NamedTuple):
    """The largest batch that fits, what it and the next one need (None: no such model), and why there is no next."""

    batch: int
    here: Need | None
    following: Need | None
    limit: str


def largest_batch(need: Callable[[int], Need], memory: int, start: int = 2) -> Found:
    """Find the largest batch whose peak is within a memory, taking for granted that a larger one needs no less.

    The peak is nearly linear in the batch, so from two batches a line says where to look; the batch returned was
    tried, and so was the next one. A batch of which there is no model (a size that the program excludes) ends the
    search like one that does not fit.
    """
    needs = {start: need(start)}
    low, high = (start, LARGEST + 1) if needs[start].peak <= memory else (SMALLEST - 1, start)
    limit = ""
    while low + 1 < high:
        batch = _guess(needs, low, high, memory)
        try:
            needs[batch] = need(batch)
        except (ProgramError, UsageError) as error:
            if batch < min(needs):  # no smaller model: the smallest does not fit
                low = batch
            else:
                high, limit = batch, str(error)
            continue
        if needs[batch].peak <= memory:
            low = batch
        else:
            high, limit = batch, ""
    if low == LARGEST:
        peak = format_bytes(needs[low].peak)
        raise UsageError(f"with {LARGEST:,} the model needs {peak} and fits: its peak hardly grows with the batch")
    return Found(low if low in needs else 0, needs.get(low), needs.get(high), limit)


def _guess(needs: dict[int, Need], low: int, high: int, memory: int) -> int:
    """Return the next batch to try, between one that fits and one that does not."""
    if low < SMALLEST:
        return (low + high) // 2
    most = min(high - 1, low * _STEP)
    if low + 1 == most or high - low <= 2:
        return low + 1
    if high <= LARGEST and len(needs) % 3 == 0:  # where the peak is no line, halves end sooner than lines do
        return (low + high) // 2
    known = sorted(needs)
    place = known.index(low)
    pair = known[place : place + 2] if place + 1 < len(known) else known[max(0, place - 1) : place + 1]
    if len(pair) < 2:
        return low + 1
    slope = (needs[pair[1]].peak - needs[pair[0]].peak) / (pair[1] - pair[0])
    if slope <= 0:
        return most
    at = low + int((memory - needs[low].peak) / slope)
    return max(low + 1, min(most, at))
