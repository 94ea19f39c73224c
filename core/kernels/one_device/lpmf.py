"""Least peak memory first: the greedy order on one device."""

from __future__ import annotations

from typing import Any

from ...buffers import Buffers
from ..jit import inlined, kernel


@inlined
def _use(b: Buffers, buffer: int, users_left: Any, freed: Any, ran: Any) -> None:
    """Count an op that has run off a buffer that it uses; the last remaining user would free it."""
    users_left[buffer] -= 1
    if users_left[buffer] == 1 and not b.is_final[buffer]:
        for at in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
            user = b.users[at]
            if not ran[user]:
                freed[user] += b.size[buffer]


@kernel
def least_peak_memory_first(
    b: Buffers, waiting: Any, users_left: Any, freed: Any, ran: Any, ready: Any, order: Any
) -> int:
    """Fill `order`; returns its peak without persistent bytes.

    Among the ready ops it takes the one that keeps the peak lowest, then the one after which least is
    resident, then the smallest index. Scratch arrays: `waiting` (predecessors left per op), `users_left`
    (per buffer), `freed` (bytes that running each op now would free, its own unused outputs included),
    `ran` (all false) and `ready`.
    """
    count = 0
    for op in range(waiting.size):
        if waiting[op] == 0:
            ready[count] = op
            count += 1
    resident = 0
    peak = 0
    for step in range(waiting.size):
        chosen = 0
        least_peak = 0
        least_resident = 0
        for at in range(count):
            op = ready[at]
            new_peak = max(peak, resident + b.own[op] + b.workspace[op])
            new_resident = resident + b.own[op] - freed[op]
            better = new_peak < least_peak or (
                new_peak == least_peak
                and (new_resident < least_resident or (new_resident == least_resident and op < ready[chosen]))
            )
            if at == 0 or better:
                chosen, least_peak, least_resident = at, new_peak, new_resident
        op = ready[chosen]
        count -= 1
        ready[chosen] = ready[count]
        order[step] = op
        ran[op] = True
        peak, resident = least_peak, least_resident
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            _use(b, b.used[at], users_left, freed, ran)
        for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
            successor = b.successors[at]
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready[count] = successor
                count += 1
    return peak
