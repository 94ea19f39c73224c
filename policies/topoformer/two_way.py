"""Beams of priorities from both ends of an order in turn, each below the best peak so far (beyond Topoformer 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.graph.buffers import Buffers
from ...core.kernels.orders.priority_beam import beam
from .priorities import Decoded, decode_greedy

WIDER = 4
"""How many times its first width a beam may have at last."""


def decode_two_way(
    b: Buffers,
    priorities: Any,
    width: int,
    *,
    most: float = math.inf,
    bound: int = 0,
    must_stop: Callable[[], bool] = lambda: False,
) -> tuple[Decoded, int]:
    """Return the orders found, each better than the one before it, the best first; and the partial orders kept per op.

    The first beam goes forward without a limit, as the paper's. Each that follows keeps below the best peak so far; one
    that finds nothing is followed by one from the other end, and when both ends found nothing, by beams of twice the
    width, up to `WIDER` times the first.
    """
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
