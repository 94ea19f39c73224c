"""Precedences of ops in every order of one device, or in those alone whose peak stays at a target."""
# Bit `j` of a row of a bitset is bit `j & 63` of its word `j >> 6`.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import INT64_MAX, BoolArray, IndexArray, IntArray
from ...graph.graph import Buffers
from ..jit import inlined, kernel
from .max_flow import FREE, SINK, SOURCE, Flow, Network, max_flow, new_flow, source_side

# How many ops one op's sets may be made of, per arc of the network: about as long as so many flows take
MOVES_PER_ARC = 16
Edges = tuple[IndexArray, IndexArray]  # CSR op -> other ops


@inlined
def has(row: Any, op: int) -> bool:
    """Return whether an op is in a bitset."""
    found: bool = (row[op >> 6] >> (op & 63)) & 1 != 0
    return found


@kernel
def close(pointers: IndexArray, neighbours: IndexArray, order: IndexArray, bits: Any) -> None:
    """Fill `bits`, shape `(ops, words)`, with the transitive closure; neighbours come earlier in `order`."""
    for op in order:
        for at in range(pointers[op], pointers[op + 1]):
            other = neighbours[at]
            for word in range(bits.shape[1]):
                bits[op, word] |= bits[other, word]
            bits[op, other >> 6] |= 1 << (other & 63)


@kernel
def mark_implied(pointers: IndexArray, neighbours: IndexArray, bits: Any, beyond: Any, is_implied: BoolArray) -> None:
    """Mark each edge to a neighbour that a longer path leads to as well."""
    for op in range(bits.shape[0]):
        for word in range(beyond.size):
            beyond[word] = 0
        for at in range(pointers[op], pointers[op + 1]):
            for word in range(beyond.size):
                beyond[word] |= bits[neighbours[at], word]
        for at in range(pointers[op], pointers[op + 1]):
            is_implied[at] = has(beyond, neighbours[at])


def closures(predecessors: Edges, successors: Edges, order: IndexArray) -> Any:
    """Return per op the ops that come before it, and those after it, as bits; shape `(2, ops, words)`."""
    bits = np.zeros((2, len(order), (len(order) + 63) // 64), np.int64)
    close(*predecessors, order, bits[0])
    close(*successors, order[::-1].copy(), bits[1])
    return bits


class Known(NamedTuple):
    """Known precedences of the ops."""

    # before, after: per op the ops that come before it, and after it, as bits: transitive closures, shape `(ops,
    # words)`
    before: Any
    after: Any
    stale: BoolArray  # per op: whether something has been found for it


class Trials(NamedTuple):
    """Two flows to work in, and the findings of an op's cuts."""

    flow: Flow  # the flow of an op, and of another op beside it
    trial: Flow
    can_be_before: BoolArray  # per op: whether a cut within the limit has it on that side
    can_be_after: BoolArray
    side: BoolArray  # per node, whether it is in a set
    # members, left, moved: the set's ops as bits; per buffer, how many of its users are not in the set; per op, scratch
    # space
    members: Any
    left: IntArray
    moved: IndexArray


def new_trials(network: Network, ops: int) -> Trials:
    """Allocate the flows and the scratch space."""
    nodes = len(network.pointers) - 1
    return Trials(
        flow=new_flow(network),
        trial=new_flow(network),
        can_be_before=np.empty(ops, bool),
        can_be_after=np.empty(ops, bool),
        side=np.empty(nodes, bool),
        members=np.empty((ops + 63) // 64, np.int64),
        left=np.empty(nodes - ops, np.int64),
        moved=np.empty(ops, np.int32),
    )


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
    """Return the least bytes resident when an op starts, given the ops before and after it (or over the limit)."""
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
    source_side(network, flow, trials.side)
    for op in range(trials.can_be_before.size):
        trials.can_be_before[op] = trials.can_be_before[op] or flow.level[op] < 0
        trials.can_be_after[op] = trials.can_be_after[op] or not trials.side[op]


@inlined
def _move(b: Buffers, trials: Trials, op: int, joins: bool) -> Any:
    """Let an op join the set or leave it; return by how many bytes that changes the bytes alive after the set."""
    sign = 1 if joins else -1
    trials.side[op] = joins
    trials.members[op >> 6] ^= 1 << (op & 63)
    change = 0
    for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
        if b.is_final[buffer] or trials.left[buffer] > 0:
            change += sign * b.size[buffer]
    for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
        buffer = b.used[at]
        trials.left[buffer] -= sign
        is_last_reader = trials.left[buffer] == (0 if joins else 1)
        if is_last_reader and not b.is_final[buffer] and trials.side[b.producer[buffer]]:
            change -= sign * b.size[buffer]
    return change


@inlined
def _note_single_moves(
    network: Network, b: Buffers, trials: Trials, known: Known, op: int, limit: int, joins: bool
) -> None:
    """Note possible ops before the op as it may join `trials.side` within the limit, with all that comes before it."""
    trials.members[:] = 0
    for member in range(trials.moved.size):
        if trials.side[member]:
            trials.members[member >> 6] |= 1 << (member & 63)
    base, moves = 0, 0  # the bytes alive after the ops of the set, and how often an op has moved
    for buffer in range(b.size.size):
        trials.left[buffer] = 0
        for at in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
            if not trials.side[b.users[at]]:
                trials.left[buffer] += 1
        if trials.side[b.producer[buffer]] and (b.is_final[buffer] or trials.left[buffer] > 0):
            base += b.size[buffer]
    for other in range(trials.moved.size):
        if other == op or trials.side[other] == joins or moves > MOVES_PER_ARC * network.heads.size:
            continue
        is_noted = trials.can_be_before[other] if joins else trials.can_be_after[other]
        if is_noted or (has(known.after[op], other) if joins else has(known.before[op], other)):
            continue
        resident = base + _move(b, trials, other, joins)
        trials.moved[0] = other
        count = 1
        for word in range(trials.members.size):
            if joins:
                along = known.before[other, word] & ~trials.members[word]
            else:
                along = known.after[other, word] & trials.members[word]
            third = 64 * word
            while along != 0:
                if along & 1 != 0:
                    resident += _move(b, trials, third, joins)
                    trials.moved[count] = third
                    count += 1
                along = (along >> 1) & INT64_MAX
                third += 1
        moves += count
        for at in range(count):
            third = trials.moved[at]
            _move(b, trials, third, not joins)
            if resident <= limit and joins:
                trials.can_be_before[third] = True
            elif resident <= limit:
                trials.can_be_after[third] = True


@kernel
def tighten(
    network: Network, b: Buffers, trials: Trials, known: Known, op: int, limit: int, start: int, most: int
) -> Any:
    """Find the ops that must come before or after an op for at most `limit` bytes to be resident when it starts."""
    # The minimum cut that separates what comes before the op from what comes after is the least that can be resident.
    # Forcing another op to the other side continues that flow; if it then exceeds the limit, the op's side is settled.
    # Each set within the limit shows a side that is possible for all ops at once, so few are tried.
    ops = known.before.shape[0]
    least = arrive(network, trials.flow, known, op, limit)
    if least > limit:
        return -1, 1, ops
    if start == 0:  # the smallest set of least bytes is let grow by each op, the largest shrink
        trials.can_be_before[:] = False
        trials.can_be_after[:] = False
        _note_sides(network, trials, trials.flow)
        _note_single_moves(network, b, trials, known, op, limit, True)
        for other in range(ops):
            trials.side[other] = trials.flow.level[other] < 0
        _note_single_moves(network, b, trials, known, op, limit, False)
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
def largest_rise(network: Network, trials: Trials, known: Known, op: int, start: int, most: int) -> Any:
    """Return which other op raises an op's minimum cut most by being on the side on which it is not."""
    ops = known.before.shape[0]
    arrive(network, trials.flow, known, op, INT64_MAX)
    source_side(network, trials.flow, trials.side)
    rise, chosen, is_before, flows = -1, -1, False, 1
    for other in range(start, ops):
        if flows > most:
            return rise, chosen, is_before, flows, other
        if trials.flow.label[other] != FREE:
            continue
        joins = trials.flow.level[other] >= 0
        raised = 0
        if joins or trials.side[other]:
            _label_trial(trials, known, other, joins)
            flows += 1
            raised = max_flow(network, trials.trial, INT64_MAX)
        if raised > rise:
            rise, chosen, is_before = raised, other, joins
    return rise, chosen, is_before, flows, ops


@kernel
def reduce(before: Any, direct: Any) -> None:
    """Keep in `direct`, which is a copy of the closure `before`, only the relations that no two others imply."""
    for op in range(before.shape[0]):
        for other in range(before.shape[0]):
            if has(before[op], other):
                for word in range(before.shape[1]):
                    direct[op, word] &= ~before[other, word]
