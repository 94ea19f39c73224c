"""Orders tightened: gone through from either end in turn, each time below the peak so far (beyond Topoformer 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...core.arrays import FloatArray, IndexArray
from ...core.buffers import Buffers
from ...core.kernels.one_device.priority_beam import beam
from .priorities import Decoded


def tightened(
    b: Buffers,
    decoded: Decoded,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return orders of no higher peaks, in the rows of those that they were made of; and the passes over them.

    A pass makes an order anew, from its first op on or from its last one: the op that stood first (or last) in the
    order, of those that stay below its peak; and at once any that stays below it and leaves no more resident, since
    what can follow it can then still follow. A pass that comes to an end gives the order that the next one goes
    through; an order is done when the passes from both ends are stuck.

    Parameters
    ----------
    b
        The graph.
    decoded
        The orders; those of least peak are tightened first.
    most
        Passes over all of them together; by default there is no such number.
    bound
        A peak in bytes, persistent ones left out, that no order can beat: all ends there. 0 by default.
    must_stop
        Asked before each pass, and in the midst of it, whether to stop; by default it never says so.
    """
    orders, peaks, passes = decoded.orders.copy(), decoded.peaks.copy(), 0
    for row in np.argsort(decoded.peaks, kind="stable"):
        is_backward, stuck = False, 0
        while stuck < 2 and peaks.min() > bound and passes < most and not must_stop():
            below = int(peaks[row])
            found = beam(b, _by_place(orders[row]), 1, is_backward=is_backward, limit=below, must_stop=must_stop)
            passes, stuck, is_backward = passes + 1, stuck + 1, not is_backward
            if len(found.orders):
                orders[row], peaks[row], stuck = found.orders[0], found.peaks[0], 0
    return Decoded(orders, peaks), passes


def _by_place(order: IndexArray) -> FloatArray:
    """Return priorities by which greedy decoding makes this very order."""
    priorities = np.empty(len(order))
    priorities[order] = -np.arange(len(order))
    return priorities
