"""Which op must come before which, in every order of one device whose peak stays at a target."""

from __future__ import annotations

from typing import Any

from ...arrays import BoolArray
from ..jit import kernel
from .max_flow import FREE, SINK, SOURCE, Flow, Network, max_flow, smallest_source_side
from .partial_order import has


@kernel
def relate(before: Any, after: Any, first: int, second: int, stale: BoolArray) -> None:
    """Add to both closures that `first` comes before `second`; mark the ops for which that is news."""
    for op in range(before.shape[0]):
        if op == first or has(before[first], op):
            for word in range(before.shape[1]):
                after[op, word] |= after[second, word]
            after[op, second >> 6] |= 1 << (second & 63)
            stale[op] = True
        elif op == second or has(after[second], op):
            for word in range(before.shape[1]):
                before[op, word] |= before[first, word]
            before[op, first >> 6] |= 1 << (first & 63)
            stale[op] = True


@kernel
def arrive(network: Network, flow: Flow, before: Any, after: Any, op: int, limit: int) -> Any:
    """Return the least bytes resident when an op starts, given what comes before and after it (or over the limit)."""
    for other in range(before.shape[0]):
        if has(before[op], other):
            flow.label[other] = SOURCE
        elif other == op or has(after[op], other):
            flow.label[other] = SINK
        else:
            flow.label[other] = FREE
    for arc in range(flow.residual.size):
        flow.residual[arc] = network.capacity[arc]
    return max_flow(network, flow, limit)


@kernel
def tighten(
    network: Network,
    flow: Flow,
    trial: Flow,
    before: Any,
    after: Any,
    op: int,
    limit: int,
    can_be_before: BoolArray,
    can_be_after: BoolArray,
    side: BoolArray,
    stale: BoolArray,
    start: int,
    most: int,
) -> Any:
    """Find what must come before or after an op for at most `limit` bytes to be resident when it starts.

    The minimum cut that separates what comes before the op from what comes after is the least that can be
    resident. Forcing another op to the other side continues that flow; if it then exceeds the limit, the op's
    side is settled. Each cut within the limit shows a side that is possible for all ops at once, so few are
    tried.

    Parameters
    ----------
    network, flow, trial
        The buffers, and two flows to work in.
    before, after
        Closures that hold what is known; receive what is found.
    op, limit
        The op, and bytes.
    can_be_before, can_be_after, side
        Scratch space, per op the first two, per node the last.
    stale
        Per op: receives for whom something was found.
    start, most
        The other op to begin with, and flows after which to stop: the scratch space is kept between.

    Returns
    -------
    tuple
        Relations found, or -1 if no order keeps the limit; flows computed; the other op to go on with, or the
        number of ops.
    """
    ops = before.shape[0]
    least = arrive(network, flow, before, after, op, limit)
    if least > limit:
        return -1, 1, ops
    if start == 0:
        smallest_source_side(network, flow, side)
        for other in range(ops):
            can_be_before[other] = flow.level[other] < 0
            can_be_after[other] = not side[other]
    found = 0
    flows = 1
    for other in range(start, ops):
        if flows > most:
            return found, flows, other
        if flow.label[other] != FREE or (can_be_before[other] and can_be_after[other]):
            continue
        if has(before[op], other) or has(after[op], other):
            continue
        is_first = not can_be_before[other]
        for arc in range(flow.residual.size):
            trial.residual[arc] = flow.residual[arc]
        for node in range(flow.label.size):
            trial.label[node] = flow.label[node]
        trial.label[other] = SOURCE if is_first else SINK
        for third in range(ops):
            if is_first and has(before[other], third):
                trial.label[third] = SOURCE
            if not is_first and has(after[other], third):
                trial.label[third] = SINK
        flows += 1
        if least + max_flow(network, trial, limit - least) > limit:
            if is_first:
                relate(before, after, op, other, stale)
            else:
                relate(before, after, other, op, stale)
            found += 1
        else:
            smallest_source_side(network, trial, side)
            for third in range(ops):
                can_be_before[third] = can_be_before[third] or trial.level[third] < 0
                can_be_after[third] = can_be_after[third] or not side[third]
    return found, flows, ops


@kernel
def reduce(before: Any, direct: Any) -> None:
    """Keep in `direct`, which is a copy of the closure `before`, only the relations that no two others imply."""
    for op in range(before.shape[0]):
        for other in range(before.shape[0]):
            if has(before[op], other):
                for word in range(before.shape[1]):
                    direct[op, word] &= ~before[other, word]
