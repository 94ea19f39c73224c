"""A level of a beam over executed-op sets (Topoformer C.3), in either direction: backward, of ops that run last."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import IndexArray, IntArray
from ...graph.buffers import Buffers, unread_bytes
from ..hash_table import slot_of
from ..jit import inlined, kernel


class Walk(NamedTuple):
    """The direction in which sets of ops grow."""

    is_backward: bool  # whether sets hold the last ops of an order instead of its first
    # waits_ptr, waits, next_ptr, next: CSR op -> ops that must be in the set before it, and those that wait for it
    waits_ptr: IndexArray
    waits: IndexArray
    next_ptr: IndexArray
    next: IndexArray
    step: IntArray  # per op, bytes that its step needs beside what is resident and, backward, the buffers it frees
    # per op, bytes by which it changes what is resident, but for the buffers that it is the last to use
    change: IntArray
    start: int  # bytes resident at the empty set


def forward_walk(b: Buffers) -> Walk:
    """Return the walk from the first op of an order to its last."""
    before = (b.predecessor_ptr, b.predecessors)
    return Walk(False, *before, b.successor_ptr, b.successors, b.own + b.workspace, b.own - unread_bytes(b), 0)


def backward_walk(b: Buffers) -> Walk:
    """Return the walk from the last op of an order to its first."""
    unread = unread_bytes(b)
    before = (b.predecessor_ptr, b.predecessors)
    kept = int(b.size[b.is_final].sum())
    return Walk(True, b.successor_ptr, b.successors, *before, unread + b.workspace, unread - b.own, kept)


class Level(NamedTuple):
    """States whose sets have the same number of ops."""

    executed: Any  # shape `(states, words)`: the set as bits
    hash: Any  # per state: the exclusive or of its ops' Zobrist numbers
    # resident, peak: per state, bytes: what is alive at it, and the least peak of the orders that lead to it
    resident: IntArray
    peak: IntArray
    # ready_ptr, ready: CSR state -> the ops that can join next
    ready_ptr: IntArray
    ready: IndexArray
    safe: IndexArray  # per state: an op that may as well join at once (see `_is_safe`), or -1


def first_level(walk: Walk, states: int = 1, most_ready: int = 0) -> Level:
    """Return the level of the empty set, with room for more states and for what they can run."""
    first = np.flatnonzero(np.diff(walk.waits_ptr) == 0)
    ready = np.zeros(max(len(first), most_ready), np.int32)
    ready[: len(first)] = first
    return Level(
        executed=np.zeros((states, (len(walk.step) + 63) // 64), np.uint64),
        hash=np.zeros(states, np.uint64),
        resident=np.full(states, walk.start, np.int64),
        peak=np.zeros(states, np.int64),
        ready_ptr=np.append(0, np.full(states, len(first), np.int64)),
        ready=ready,
        safe=np.full(states, -1, np.int32),
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
def select(values: Any, count: int, rank: int) -> Any:
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


@inlined
def set_candidate(c: Candidates, at: int, key: Any, peak: int, parent: int, op: int) -> None:
    """Write a candidate."""
    c.hash[at] = key
    c.peak[at] = peak
    c.parent[at] = parent
    c.op[at] = op


@inlined
def _fill_table(c: Candidates, count: int) -> None:
    """Let the hash table hold the first `count` candidates alone."""
    for place in range(c.table.size):
        c.table[place] = -1
    for at in range(count):
        c.table[slot_of(c.table, c.hash, c.hash[at])] = at


@kernel
def _keep_best(c: Candidates, size: int, count: int, salt: Any) -> Any:
    """Move the `size` candidates of least (peak, random tie) to the front."""
    for at in range(count):
        c.peaks[at] = c.peak[at]
    limit = select(c.peaks, count, size - 1)
    below = 0
    equal = 0
    for at in range(count):
        if c.peak[at] < limit:
            below += 1
        elif c.peak[at] == limit:
            c.ties[equal] = c.hash[at] * salt
            equal += 1
    largest_tie = select(c.ties, equal, size - below - 1)
    kept = 0
    for at in range(count):
        if c.peak[at] < limit or (c.peak[at] == limit and c.hash[at] * salt <= largest_tie):
            set_candidate(c, kept, c.hash[at], c.peak[at], c.parent[at], c.op[at])
            kept += 1
    return limit, largest_tie, kept


@inlined
def _contains(executed: Any, op: int) -> bool:
    found: bool = (executed[op >> 6] >> np.uint64(op & 63)) & np.uint64(1) != 0
    return found


@inlined
def _last_use(b: Buffers, buffer: int, op: int, executed: Any, is_backward: bool) -> bool:
    """Whether `op` is the buffer's last user in the order: all others are in the set, or backward none is."""
    is_last = not b.is_final[buffer]
    user = b.user_ptr[buffer]
    while is_last and user < b.user_ptr[buffer + 1]:
        other = b.users[user]
        is_last = other == op or _contains(executed, other) != is_backward
        user += 1
    return is_last


@inlined
def step_need(level: Level, b: Buffers, walk: Walk, state: int, op: int, limit: int) -> int:
    """Return the bytes of an op's step from a state; those above the limit need not be counted to the end."""
    needed: int = level.resident[state] + walk.step[op]
    if walk.is_backward and needed <= limit:
        for use in range(b.used_ptr[op], b.used_ptr[op + 1]):
            if _last_use(b, b.used[use], op, level.executed[state], True):
                needed += b.size[b.used[use]]
    return needed


@kernel
def expand(level: Level, b: Buffers, walk: Walk, c: Candidates, zobrist: Any, size: int, cutoff: int, salt: Any) -> Any:
    """Choose the next level: the `size` distinct successor states of least peak, ties at random."""
    # Equal states are collapsed; successors are priced before they are built, since most fall to the running threshold.
    count = 0
    truncated = False
    limit = cutoff - 1
    largest_tie = ~np.uint64(0)
    for state in range(level.hash.size):
        for at in range(level.ready_ptr[state], level.ready_ptr[state + 1]):
            op = level.ready[at]
            if level.safe[state] >= 0 and level.safe[state] != op:
                continue
            peak = max(level.peak[state], step_need(level, b, walk, state, op, limit))
            key = level.hash[state] ^ zobrist[op]
            if peak > limit or (peak == limit and key * salt > largest_tie):
                continue
            slot = slot_of(c.table, c.hash, key)
            entry = c.table[slot]
            if entry >= 0:
                if peak < c.peak[entry]:
                    set_candidate(c, entry, key, peak, state, op)
                continue
            if count == c.hash.size:
                limit, largest_tie, count = _keep_best(c, size, count, salt)
                truncated = True
                _fill_table(c, count)
                if peak > limit or (peak == limit and key * salt > largest_tie):
                    continue
                slot = slot_of(c.table, c.hash, key)
            c.table[slot] = count
            set_candidate(c, count, key, peak, state, op)
            count += 1
    if count > size:
        _, _, count = _keep_best(c, size, count, salt)
        truncated = True
    return count, truncated


@inlined
def _is_safe(b: Buffers, walk: Walk, op: int, executed: Any, resident: int, most: int) -> bool:
    """Whether an op may join a state at once: its step stays within `most`, and no more is resident after it."""
    needed, change = resident + walk.step[op], walk.change[op]
    if needed > most or (walk.is_backward and change > 0):
        return False
    for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
        buffer = b.used[at]
        if _last_use(b, buffer, op, executed, walk.is_backward):
            if walk.is_backward:
                needed += b.size[buffer]
                change += b.size[buffer]
            else:
                change -= b.size[buffer]
    return bool(change <= 0 and needed <= most)


def materialise(level: Level, b: Buffers, walk: Walk, c: Candidates, count: int, floor: int) -> Level:
    """Build the chosen successor states: their sets, what they hold, and what they can run."""
    # A peak of up to `floor` bytes costs nothing; negative, no op counts as safe.
    parents, ops = c.parent[:count], c.op[:count]
    gained = (walk.next_ptr[ops + 1] - walk.next_ptr[ops]).astype(np.int64)
    most = int((np.diff(level.ready_ptr)[parents] - 1 + gained).sum())
    following = Level(
        executed=np.empty((count, level.executed.shape[1]), np.uint64),
        hash=c.hash[:count].copy(),
        resident=np.empty(count, np.int64),
        peak=c.peak[:count].copy(),
        ready_ptr=np.zeros(count + 1, np.int64),
        ready=np.empty(most, np.int32),
        safe=np.full(count, -1, np.int32),
    )
    filled = fill_states(level, b, walk, parents, ops, floor, following)
    return following._replace(ready=following.ready[:filled])


@kernel
def fill_states(
    level: Level, b: Buffers, walk: Walk, parents: IndexArray, ops: IndexArray, floor: int, following: Level
) -> int:
    """Fill the sets, memory and ready ops of the next level; returns how many ready ops there are."""
    filled = 0
    for state in range(parents.size):
        parent, op = parents[state], ops[state]
        row = following.executed[state]
        for word in range(row.size):
            row[word] = level.executed[parent, word]
        row[op >> 6] |= np.uint64(1) << np.uint64(op & 63)
        memory = level.resident[parent] + walk.change[op]
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            if _last_use(b, buffer, op, row, walk.is_backward):
                memory += b.size[buffer] if walk.is_backward else -b.size[buffer]
        following.resident[state] = memory
        following.ready_ptr[state] = filled
        for at in range(level.ready_ptr[parent], level.ready_ptr[parent + 1]):
            if level.ready[at] != op:
                following.ready[filled] = level.ready[at]
                filled += 1
        for at in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
            successor = walk.next[at]
            waits = False
            before = walk.waits_ptr[successor]
            while not waits and before < walk.waits_ptr[successor + 1]:
                waits = not _contains(row, walk.waits[before])
                before += 1
            if not waits:
                following.ready[filled] = successor
                filled += 1
        if floor >= 0:
            most = max(floor, following.peak[state])
            for at in range(following.ready_ptr[state], filled):
                ready = following.ready[at]
                is_next = following.safe[state] < 0 or ready < following.safe[state]
                if is_next and _is_safe(b, walk, ready, row, memory, most):
                    following.safe[state] = ready
    following.ready_ptr[parents.size] = filled
    return filled
