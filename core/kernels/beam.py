"""One level of a beam over executed-op sets with state collapsing (Topoformer C.3)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..buffers import Buffers
from ..graph import IndexArray, IntArray
from .jit import inlined, kernel


class Level(NamedTuple):
    """States that have executed the same number of ops.

    Parameters
    ----------
    executed
        Shape `(states, words)`: the set of executed ops as bits.
    hash
        Per state: the exclusive or of its ops' Zobrist numbers.
    resident, peak
        Per state, bytes: what is alive after it, and the least peak of the orders that lead to it.
    ready_ptr, ready
        CSR state -> the ops that can run next.
    """

    executed: Any
    hash: Any
    resident: IntArray
    peak: IntArray
    ready_ptr: IntArray
    ready: IndexArray


def first_level(b: Buffers) -> Level:
    """Return the level of the empty set."""
    ops = len(b.own)
    ready = np.flatnonzero(np.diff(b.predecessor_ptr) == 0).astype(np.int32)
    return Level(
        executed=np.zeros((1, (ops + 63) // 64), np.uint64),
        hash=np.zeros(1, np.uint64),
        resident=np.zeros(1, np.int64),
        peak=np.zeros(1, np.int64),
        ready_ptr=np.array([0, len(ready)], np.int64),
        ready=ready,
    )


class Candidates(NamedTuple):
    """Successor states by what makes them, with a hash table over them and scratch space."""

    hash: Any
    peak: IntArray
    parent: IndexArray
    op: IndexArray
    table: IndexArray
    peaks: IntArray
    ties: Any


def new_candidates(size: int, expansions: int) -> Candidates:
    """Allocate room for twice the beam size, or for all expansions if they are fewer."""
    capacity = max(1, min(2 * size, expansions))
    return Candidates(
        hash=np.empty(capacity, np.uint64),
        peak=np.empty(capacity, np.int64),
        parent=np.empty(capacity, np.int32),
        op=np.empty(capacity, np.int32),
        table=np.full(1 << (2 * capacity).bit_length(), -1, np.int32),
        peaks=np.empty(capacity, np.int64),
        ties=np.empty(capacity, np.uint64),
    )


@kernel
def _select(values: Any, count: int, rank: int) -> Any:
    """Return the `rank`-th smallest (from 0) of the first `count` values, which it reorders: quickselect."""
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                swapped = values[left]
                values[left] = values[right]
                values[right] = swapped
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return values[rank]


@kernel
def _keep_best(c: Candidates, size: int, count: int, salt: Any) -> Any:
    """Move the `size` candidates of least (peak, random tie) to the front.

    Returns the largest kept peak and tie, and how many were kept.
    """
    for at in range(count):
        c.peaks[at] = c.peak[at]
    limit = _select(c.peaks, count, size - 1)
    below = 0
    equal = 0
    for at in range(count):
        if c.peak[at] < limit:
            below += 1
        elif c.peak[at] == limit:
            c.ties[equal] = c.hash[at] * salt
            equal += 1
    largest_tie = _select(c.ties, equal, size - below - 1)
    kept = 0
    for at in range(count):
        if c.peak[at] < limit or (c.peak[at] == limit and c.hash[at] * salt <= largest_tie):
            c.hash[kept] = c.hash[at]
            c.peak[kept] = c.peak[at]
            c.parent[kept] = c.parent[at]
            c.op[kept] = c.op[at]
            kept += 1
    return limit, largest_tie, kept


@inlined
def _slot(c: Candidates, key: Any) -> Any:
    """Return the slot of the table that holds a hash, or the free one where it belongs."""
    mask = np.uint64(c.table.size - 1)
    slot = key & mask
    while c.table[slot] >= 0 and c.hash[c.table[slot]] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def expand(level: Level, b: Buffers, c: Candidates, zobrist: Any, size: int, cutoff: int, salt: Any) -> Any:
    """Choose the next level: the `size` distinct successor states of least peak, ties at random.

    Equal states are collapsed to the one of least peak. Successors are priced before they are built: most
    fall to the running threshold, and only survivors are materialised.

    Parameters
    ----------
    level, b, zobrist
        The current level, the graph, and a random number per op.
    c
        Receives the chosen successors; its table must be empty.
    size
        Beam size K.
    cutoff
        Successors whose peak reaches it are dropped.
    salt
        A random odd number: ties are broken by each state's hash times it.

    Returns
    -------
    tuple
        How many were chosen, and whether any other was cut for want of room.
    """
    count = 0
    truncated = False
    limit = cutoff - 1
    largest_tie = ~np.uint64(0)
    for state in range(level.hash.size):
        for at in range(level.ready_ptr[state], level.ready_ptr[state + 1]):
            op = level.ready[at]
            peak = max(level.peak[state], level.resident[state] + b.own[op] + b.workspace[op])
            if peak > limit:
                continue
            key = level.hash[state] ^ zobrist[op]
            if peak == limit and key * salt > largest_tie:
                continue
            slot = _slot(c, key)
            entry = c.table[slot]
            if entry >= 0:
                if peak < c.peak[entry]:
                    c.peak[entry] = peak
                    c.parent[entry] = state
                    c.op[entry] = op
                continue
            if count == c.hash.size:
                limit, largest_tie, count = _keep_best(c, size, count, salt)
                truncated = True
                for place in range(c.table.size):
                    c.table[place] = -1
                for kept in range(count):
                    c.table[_slot(c, c.hash[kept])] = kept
                if peak > limit or (peak == limit and key * salt > largest_tie):
                    continue
                slot = _slot(c, key)
            c.table[slot] = count
            c.hash[count] = key
            c.peak[count] = peak
            c.parent[count] = state
            c.op[count] = op
            count += 1
    if count > size:
        _, _, count = _keep_best(c, size, count, salt)
        truncated = True
    return count, truncated


@inlined
def _contains(executed: Any, op: int) -> bool:
    found: bool = (executed[op >> 6] >> np.uint64(op & 63)) & np.uint64(1) != 0
    return found


def materialise(level: Level, b: Buffers, c: Candidates, count: int) -> Level:
    """Build the chosen successor states: their sets, what they hold, and what they can run."""
    parents, ops = c.parent[:count], c.op[:count]
    gained = (b.successor_ptr[ops + 1] - b.successor_ptr[ops]).astype(np.int64)
    most = int((np.diff(level.ready_ptr)[parents] - 1 + gained).sum())
    following = Level(
        executed=np.empty((count, level.executed.shape[1]), np.uint64),
        hash=c.hash[:count].copy(),
        resident=np.empty(count, np.int64),
        peak=c.peak[:count].copy(),
        ready_ptr=np.zeros(count + 1, np.int64),
        ready=np.empty(most, np.int32),
    )
    filled = fill_states(level, b, parents, ops, following)
    return following._replace(ready=following.ready[:filled])


@kernel
def fill_states(level: Level, b: Buffers, parents: IndexArray, ops: IndexArray, following: Level) -> int:
    """Fill the sets, memory and ready ops of the next level; returns how many ready ops there are."""
    filled = 0
    for state in range(parents.size):
        parent, op = parents[state], ops[state]
        row = following.executed[state]
        for word in range(row.size):
            row[word] = level.executed[parent, word]
        row[op >> 6] |= np.uint64(1) << np.uint64(op & 63)
        memory = level.resident[parent] + b.own[op]
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            alive = b.is_final[buffer]
            user = b.user_ptr[buffer]
            while not alive and user < b.user_ptr[buffer + 1]:
                alive = not _contains(row, b.users[user])
                user += 1
            if not alive:
                memory -= b.size[buffer]
        for buffer in range(b.made_ptr[op], b.made_ptr[op + 1]):
            if b.user_ptr[buffer] == b.user_ptr[buffer + 1] and not b.is_final[buffer]:
                memory -= b.size[buffer]
        following.resident[state] = memory
        following.ready_ptr[state] = filled
        for at in range(level.ready_ptr[parent], level.ready_ptr[parent + 1]):
            if level.ready[at] != op:
                following.ready[filled] = level.ready[at]
                filled += 1
        for at in range(b.successor_ptr[op], b.successor_ptr[op + 1]):
            successor = b.successors[at]
            waits = False
            before = b.predecessor_ptr[successor]
            while not waits and before < b.predecessor_ptr[successor + 1]:
                waits = not _contains(row, b.predecessors[before])
                before += 1
            if not waits:
                following.ready[filled] = successor
                filled += 1
    following.ready_ptr[parents.size] = filled
    return filled
