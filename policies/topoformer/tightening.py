"""Orders made from either end in turn, each below the best peak so far: anew, or by beams (beyond Topoformer 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.base.arrays import FloatArray, IndexArray
from ...core.graph.graph import Buffers
from ...core.kernels.orders.set_beam import beam
from .priorities import Decoded, decode_greedy

WIDTHS = (1, 2, 4, 8, 16)  # partial orders that a pass keeps, each width where those of the one before are stuck
WIDER = 4  # how many times its first width a beam of both ends may have at last
DRAWS = 60  # passes by priorities that are drawn anew each time


def tightened(
    b: Buffers,
    decoded: Decoded,
    priorities: FloatArray | None = None,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return orders of no higher peaks, in the rows of those that they were made of; and the passes over them."""
    # A pass makes an order anew, from its first op or its last one, below the best peak of all: the op that stood first
    # (or last) of those that stay below, and at once any that leaves no more resident. Where both ends are stuck the
    # next order follows, and after all of them the best again, by beams that keep up to the last of `WIDTHS`; then
    # passes by drawn priorities, and if these found something, the beams again.
    passes = _Passes(b, decoded, most, bound, must_stop)
    for row in np.argsort(decoded.peaks, kind="stable"):
        passes.go_through(int(row), 1)
    for width in WIDTHS[1:]:
        passes.go_through(passes.best, width)
    if priorities is not None and passes.draw(priorities):
        for width in WIDTHS:
            passes.go_through(passes.best, width)
    return Decoded(passes.orders, passes.peaks), passes.count


class _Passes:
    """Orders, their peaks, and the passes that were made."""

    def __init__(self, b: Buffers, decoded: Decoded, most: float, bound: int, must_stop: Callable[[], bool]) -> None:
        self.buffers, self.most, self.bound, self.must_stop = b, most, bound, must_stop
        self.orders, self.peaks, self.count = decoded.orders.copy(), decoded.peaks.copy(), 0

    @property
    def best(self) -> int:
        """Row of the order of least peak."""
        return int(self.peaks.argmin())

    def has_room_for(self, width: int) -> bool:
        """Whether a pass of this width may be made."""
        return bool(self.peaks.min() > self.bound) and self.count + width <= self.most and not self.must_stop()

    def make(self, row: int, priorities: FloatArray, width: int, is_backward: bool) -> bool:
        """Put an order of lower peak than any in a row; False where there is none."""
        below, must_stop = int(self.peaks.min()), self.must_stop
        found = beam(self.buffers, priorities, width, is_backward=is_backward, limit=below, must_stop=must_stop)
        self.count += width
        if len(found.orders):
            self.orders[row], self.peaks[row] = found.orders[0], found.peaks[0]
        return len(found.orders) > 0

    def go_through(self, row: int, width: int) -> None:
        """Make a row's order anew until both ends are stuck."""
        is_backward, stuck = False, 0
        while stuck < 2 and self.has_room_for(width):
            is_made = self.make(row, _by_place(self.orders[row]), width, is_backward)
            stuck, is_backward = 0 if is_made else stuck + 1, not is_backward

    def draw(self, priorities: FloatArray) -> bool:
        """Make orders by drawn priorities, from either end in turn; whether one had a lower peak."""
        rng, before = np.random.default_rng(0), self.peaks.min()
        for number in range(DRAWS):
            if not self.has_room_for(1):
                break
            self.make(self.best, priorities + rng.gumbel(size=len(priorities)), 1, number % 2 == 1)
        return bool(self.peaks.min() < before)


def _by_place(order: IndexArray) -> FloatArray:
    """Return priorities by which greedy decoding makes this very order."""
    priorities = np.empty(len(order))
    priorities[order] = -np.arange(len(order))
    return priorities


def decode_two_way(
    b: Buffers,
    priorities: Any,
    width: int,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return the orders found, the best first, each better than those behind; and the partial orders kept per op."""
    # The first beam goes forward without a limit, as the paper's; the others keep below the best peak so far: from the
    # other end where one finds nothing, and then twice as wide, up to `WIDER` times the first.
    found = beam(b, priorities, width, must_stop=must_stop)
    if not len(found.orders):
        return decode_greedy(b, priorities), width
    orders, peaks, kept = [found.orders[0]], [int(found.peaks[0])], width
    wide, is_backward, failed = width, False, 0
    while peaks[-1] > bound and wide <= WIDER * width and kept + wide <= most and not must_stop():
        found = beam(b, priorities, wide, is_backward=is_backward, limit=peaks[-1], must_stop=must_stop)
        kept += wide
        if len(found.orders):
            orders.append(found.orders[0])
            peaks.append(int(found.peaks[0]))
            failed = 0
            continue
        is_backward, failed = not is_backward, failed + 1
        if failed == 2:
            wide, failed = 2 * wide, 0
    return Decoded(np.array(orders[::-1]), np.array(peaks[::-1], np.int64)), kept
