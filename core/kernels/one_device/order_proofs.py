"""Which op must come before which, in every order of one device whose peak stays at a target."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import BoolArray
from ..jit import inlined, kernel
from .max_flow import FREE, SINK, SOURCE, Flow, Network, max_flow, new_flow, smallest_source_side
from .partial_order import has


class Known(NamedTuple):
    """What is known of the ops' order.

    Parameters
    ----------
    before, after
        Per op the ops that come before it, and after it, as bits: transitive closures, shape `(ops, words)`.
    stale
        Per op: whether something has been found for it.
    """

    before: Any
    after: Any
    stale: BoolArray


class Trials(NamedTuple):
    """Two flows to work in, and what the cuts of an op show.

    Parameters
    ----------
    flow, trial
        The flow of an op, and of another op beside it.
    can_be_before, can_be_after
        Per op: whether a cut within the limit has it on that side.
    side
        Per node, scratch space.
    """

    flow: Flow
    trial: Flow
    can_be_before: BoolArray
    can_be_after: BoolArray
    side: BoolArray


def new_trials(network: Network, ops: int) -> Trials:
    """Allocate the flows and the scratch space."""
    nodes = len(network.pointers) - 1
    return Trials(new_flow(network), new_flow(network), np.empty(ops, bool), np.empty(ops, bool), np.empty(nodes, bool))


@kernel
def relate(known: Known, first: int, second: int) -> None:
    """Add to both closures that `first` comes before `second`; mark the ops for which that is news."""
    before, after = known.before, known.after
    for op in range(before.shape[0]):
        if op == first or has(before[first], op):
            for word in range(before.shape[1]):
                after[op, word] |= after[second, word]
            after[op, second >> 6] |= 1 << (second & 63)
            known.stale[op] = True
        elif op == second or has(after[second], op):
            for word in range(before.shape[1]):
                before[op, word] |= before[first, word]
            before[op, first >> 6] |= 1 << (first & 63)
            known.stale[op] = True


@kernel
def arrive(network: Network, flow: Flow, known: Known, op: int, limit: int) -> Any:
    """Return the least bytes resident when an op starts, given what comes before and after it (or over the limit)."""
    for other in range(known.before.shape[0]):
        if has(known.before[op], other):
            flow.label[other] = SOURCE
        elif other == op or has(known.after[op], other):
            flow.label[other] = SINK
        else:
            flow.label[other] = FREE
    for arc in range(flow.residual.size):
        flow.residual[arc] = network.capacity[arc]
    return max_flow(network, flow, limit)


@inlined
def _label_trial(trials: Trials, known: Known, other: int, is_first: bool) -> None:
    """Let the trial go on from the flow, with another op, and all that it takes along, on one side."""
    flow, trial = trials.flow, trials.trial
    for arc in range(flow.residual.size):
        trial.residual[arc] = flow.residual[arc]
    for node in range(flow.label.size):
        trial.label[node] = flow.label[node]
    trial.label[other] = SOURCE if is_first else SINK
    for third in range(known.before.shape[0]):
        if is_first and has(known.before[other], third):
            trial.label[third] = SOURCE
        if not is_first and has(known.after[other], third):
            trial.label[third] = SINK


@inlined
def _note_sides(network: Network, trials: Trials, flow: Flow) -> None:
    """Note the sides that a cut within the limit shows to be possible."""
    smallest_source_side(network, flow, trials.side)
    for op in range(trials.can_be_before.size):
        trials.can_be_before[op] = trials.can_be_before[op] or flow.level[op] < 0
        trials.can_be_after[op] = trials.can_be_after[op] or not trials.side[op]


@kernel
def tighten(network: Network, trials: Trials, known: Known, op: int, limit: int, start: int, most: int) -> Any:
    """Find what must come before or after an op for at most `limit` bytes to be resident when it starts.

    The minimum cut that separates what comes before the op from what comes after is the least that can be
    resident. Forcing another op to the other side continues that flow; if it then exceeds the limit, the op's
    side is settled. Each cut within the limit shows a side that is possible for all ops at once, so few are
    tried.

    Parameters
    ----------
    network, trials
        The buffers, and the flows to work in.
    known
        Receives what is found.
    op, limit
        The op, and bytes.
    start, most
        The other op to begin with, and flows after which to stop: the sides that are possible are kept between.

    Returns
    -------
    tuple
        Relations found, or -1 if no order keeps the limit; flows computed; the other op to go on with, or the
        number of ops.
    """
    ops = known.before.shape[0]
    least = arrive(network, trials.flow, known, op, limit)
    if least > limit:
        return -1, 1, ops
    if start == 0:
        trials.can_be_before[:] = False
        trials.can_be_after[:] = False
        _note_sides(network, trials, trials.flow)
    found = 0
    flows = 1
    for other in range(start, ops):
        if flows > most:
            return found, flows, other
        if trials.flow.label[other] != FREE or (trials.can_be_before[other] and trials.can_be_after[other]):
            continue
        if has(known.before[op], other) or has(known.after[op], other):
            continue
        is_first = not trials.can_be_before[other]
        _label_trial(trials, known, other, is_first)
        flows += 1
        if least + max_flow(network, trials.trial, limit - least) > limit:
            if is_first:
                relate(known, op, other)
            else:
                relate(known, other, op)
            found += 1
        else:
            _note_sides(network, trials, trials.trial)
    return found, flows, ops


@kernel
def reduce(before: Any, direct: Any) -> None:
    """Keep in `direct`, which is a copy of the closure `before`, only the relations that no two others imply."""
    for op in range(before.shape[0]):
        for other in range(before.shape[0]):
            if has(before[op], other):
                for word in range(before.shape[1]):
                    direct[op, word] &= ~before[other, word]
