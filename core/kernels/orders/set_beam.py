"""Beams over executed-op sets, forward or backward (of ops that run last): levels (Topoformer C.3), probable orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray, IndexArray, IntArray
from ...graph.graph import Buffers, unread_bytes
from ..hash_table import slot_of
from ..jit import inlined, kernel
from .order_memory import release
from .priority_orders import checked_priorities

NO_LIMIT = 2**62
# States that are extended before it is asked whether to stop, which takes some tenths of a second in large graphs
STATES_AT_ONCE = 2**14
FREED_NEXT = 4  # weight of bytes that the next op frees; from 1.5 to 20 there is little difference
MOST_LOOKED = 2000  # ready ops of one state in place: of more, those that became ready last


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
    """Return the level of the empty set, with room for more states and for their ready ops."""
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
    """Successor states by their makers, with a hash table over them and scratch space."""

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
    """Build the chosen successor states: their sets, their bytes, and their ready ops."""
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


class State(NamedTuple):
    """One state, extended in place; `new_state` begins at the empty set."""

    waiting: IntArray  # per op: those that must be in the set before it and are not; -1 once it is in
    outside: IntArray  # per buffer: users that are not in the set
    used: IntArray  # per op, bytes of buffers that it would free by joining, or backward make resident
    ready: IndexArray  # the ops that can join next, and room
    chosen: IndexArray  # the ops of the set as they joined, and room
    totals: IntArray  # peak and resident bytes, the number of ready ops, and how many were looked at so far


def new_state(b: Buffers, walk: Walk) -> State:
    """Return the empty set."""
    waiting, users = (np.diff(pointers).astype(np.int64) for pointers in (walk.waits_ptr, b.user_ptr))
    counts = ~b.is_final & (walk.is_backward | (users == 1))
    used = np.zeros(len(waiting), np.int64)
    np.add.at(used, b.users, np.repeat(np.where(counts, b.size, 0), users))
    ready, chosen = np.zeros((2, len(waiting)), np.int32)
    first = np.flatnonzero(waiting == 0)
    ready[: len(first)] = first
    return State(waiting, users, used, ready, chosen, np.array([0, walk.start, len(first), 0]))


@inlined
def _added_per_byte(walk: Walk, s: State, op: int, change: int) -> float:
    """Return the bytes that an op adds backward, over those it brings back and those that the next op frees."""
    least = 0
    for at in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
        follower = walk.next[at]
        if s.waiting[follower] == 1:
            least = min(least, walk.change[follower] + s.used[follower])
    return float(change / max(1, s.used[op] - FREED_NEXT * least))


@kernel
def extend_in_place(
    b: Buffers, walk: Walk, s: State, limit: int, start: int, end: int, is_by_ratio: bool = False
) -> bool:
    """Let ops join by some steps, each of least peak, then least resident, then index; False at the limit."""
    # By ratio, for backward walks alone, `_added_per_byte` takes the peak's place, and there is no limit.
    peak, resident, count, looked = s.totals
    sign = 1 if walk.is_backward else -1
    for step in range(start, end):
        place, reached, after, least = -1, 0, 0, np.inf if is_by_ratio else float(limit)
        for at in range(max(0, count - MOST_LOOKED), count):
            op = s.ready[at]
            needed = max(peak, resident + walk.step[op] + (s.used[op] if walk.is_backward else 0))
            change = walk.change[op] + sign * s.used[op]
            cost = _added_per_byte(walk, s, op, change) if is_by_ratio else float(needed)
            is_less = cost < least or (place >= 0 and cost == least and change < after)
            if is_less or (place >= 0 and cost == least and change == after and op < s.ready[place]):
                place, least, after, reached = at, cost, change, needed
        looked += min(count, MOST_LOOKED)
        s.totals[3] = looked
        if place < 0:
            return False
        op = s.ready[place]
        peak, resident, count = reached, resident + after, count - 1
        s.ready[place] = s.ready[count]
        s.chosen[step] = op
        s.waiting[op] = -1
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            users = b.user_ptr[buffer + 1] - b.user_ptr[buffer]
            is_first = s.outside[buffer] == users
            s.outside[buffer] -= 1
            if b.is_final[buffer] or not (is_first if walk.is_backward else s.outside[buffer] == 1):
                continue
            for user in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
                if s.waiting[b.users[user]] >= 0:
                    s.used[b.users[user]] -= sign * b.size[buffer]
        count = release(walk.next_ptr, walk.next, op, s.waiting, s.ready, count)
    s.totals[0], s.totals[1], s.totals[2] = peak, resident, count
    return True


class BeamOrders(NamedTuple):
    """The complete order that a beam ends with."""

    # shape `(rows, ops)`: one, since complete orders have executed the same set; none if every partial order reached
    # the limit, or the beam was told to stop
    orders: IndexArray
    # by eq. 8, or backward by its mirror image, shape `(rows,)`; ops that are taken at once count for nothing.
    log_probability: FloatArray
    peaks: IntArray  # bytes, persistent ones left out, shape `(rows,)`


class Rules(NamedTuple):
    """Rules that decide which partial orders are kept."""

    # priorities, zobrist: per op: its priority, and a random number
    priorities: FloatArray
    zobrist: Any
    limit: int  # bytes that no partial order may reach


class Successors(NamedTuple):
    """Scratch for all successors of a level."""

    candidates: Candidates  # the successors
    likelihood: FloatArray  # shape `(2, successors)`: the log-probability of each, and a row of scratch
    slots: IndexArray  # per successor, its slot of the candidates' hash table


class Trail(NamedTuple):
    """How the states of a beam came to be."""

    log_probability: FloatArray  # shape `(width,)`: that of each state so far
    back: Any  # shape `(2, ops, width)`: the parent and the op of each state of each step


def beam(
    b: Buffers,
    priorities: Any,
    width: int,
    *,
    is_backward: bool = False,
    limit: int = NO_LIMIT,
    must_stop: Callable[[], bool] = lambda: False,
) -> BeamOrders:
    """Extend partial orders by one op at a time and keep the `width` most probable, ties by the last op's index."""
    # Of equal executed sets only the one of least peak is kept, of equal peaks the more probable: whatever follows ends
    # no higher. Scored by its own probability, it can be cut later where what it replaced would not be.
    ops = len(b.own)
    priorities = checked_priorities(priorities, ops)
    zobrist = np.random.default_rng(0).integers(0, 2**64, ops, dtype=np.uint64)
    rules = Rules(-priorities if is_backward else priorities, zobrist, limit)
    walk, room = backward_walk(b) if is_backward else forward_walk(b), max(1, width * ops)
    successors = Successors(new_candidates(room, room), np.empty((2, room)), np.empty(room, np.int32))
    levels = first_level(walk, width, width * ops), first_level(walk, width, width * ops)
    trail = Trail(np.zeros(width), np.empty((2, ops, width), np.int32))
    at_once = max(1, STATES_AT_ONCE // width)
    states = 1
    for first in range(0, ops, at_once):
        if first and must_stop():
            states = 0
        if states == 0:
            break
        steps = first, min(first + at_once, ops)
        states = extend(b, walk, rules, levels, states, steps, successors, trail)
        if (steps[1] - steps[0]) % 2:
            levels = levels[::-1]
    orders, state = np.empty((states, ops), np.int32), 0
    for step in range(ops if states else 0, 0, -1):
        orders[0, step - 1] = trail.back[1, step - 1, state]
        state = trail.back[0, step - 1, state]
    orders = np.ascontiguousarray(orders[:, :: -1 if is_backward else 1])
    return BeamOrders(orders, trail.log_probability[:states], levels[0].peak[:states])


@kernel
def extend(
    b: Buffers,
    walk: Walk,
    rules: Rules,
    levels: tuple[Level, Level],
    states: int,
    steps: tuple[int, int],
    successors: Successors,
    trail: Trail,
) -> int:
    """Extend the first states of a level by the ops of some steps; returns how many states there are then."""
    level, following = levels
    back, log_probability = trail.back, trail.log_probability
    c, likelihood = successors.candidates, successors.likelihood
    floor = rules.limit - 1 if rules.limit < NO_LIMIT else -1
    for step in range(steps[0], steps[1]):
        count = _extend(b, walk, rules, level, states, log_probability, successors)
        states = _keep_most_probable(c, likelihood, count, log_probability.size)
        for state in range(states):
            following.hash[state] = c.hash[state]
            following.peak[state] = c.peak[state]
            following.safe[state] = -1
        fill_states(level, b, walk, c.parent[:states], c.op[:states], floor, following)
        for state in range(states):
            log_probability[state] = likelihood[0, state]
            back[0, step, state] = c.parent[state]
            back[1, step, state] = c.op[state]
        level, following = following, level
    return states


@kernel
def _extend(
    b: Buffers, walk: Walk, rules: Rules, level: Level, states: int, log_probability: Any, successors: Successors
) -> int:
    """Fill in the successors of the first states of a level; returns how many."""
    c, likelihood, slots = successors.candidates, successors.likelihood, successors.slots
    priorities, count = rules.priorities, 0
    for state in range(states):
        first, last = level.ready_ptr[state], level.ready_ptr[state + 1]
        largest = -np.inf
        for at in range(first, last):
            largest = max(largest, priorities[level.ready[at]])
        total = 0.0
        for at in range(first, last):
            total += np.exp(priorities[level.ready[at]] - largest)
        before = log_probability[state] - np.log(total)
        safe = level.safe[state]
        for at in range(first, last):
            op = level.ready[at]
            peak = max(level.peak[state], step_need(level, b, walk, state, op, rules.limit))
            if peak >= rules.limit or (safe >= 0 and safe != op):
                continue
            score = log_probability[state] if safe >= 0 else before + (priorities[op] - largest)
            key = level.hash[state] ^ rules.zobrist[op]
            slot = slot_of(c.table, c.hash, key)
            entry = c.table[slot]
            if entry < 0:
                entry = count
                c.table[slot] = entry
                slots[entry] = slot
                count += 1
            elif peak > c.peak[entry] or (peak == c.peak[entry] and score <= likelihood[0, entry]):
                continue
            set_candidate(c, entry, key, peak, state, op)
            likelihood[0, entry] = score
    for at in range(count):
        c.table[slots[at]] = -1
    return count


@kernel
def _keep_most_probable(c: Candidates, likelihood: Any, count: int, width: int) -> int:
    """Move the `width` most probable candidates to the front, ties by op, then by parent; return their number."""
    if count <= width:
        return count
    for at in range(count):
        likelihood[1, at] = likelihood[0, at]
    least = select(likelihood[1], count, count - width)
    above, equal = 0, 0
    for at in range(count):
        if likelihood[0, at] > least:
            above += 1
        elif likelihood[0, at] == least:
            c.ties[equal] = np.uint64(c.op[at]) << np.uint64(32) | np.uint64(c.parent[at])
            equal += 1
    largest_tie = select(c.ties, equal, width - above - 1)
    kept = 0
    for at in range(count):
        tie = np.uint64(c.op[at]) << np.uint64(32) | np.uint64(c.parent[at])
        if likelihood[0, at] > least or (likelihood[0, at] == least and tie <= largest_tie):
            set_candidate(c, kept, c.hash[at], c.peak[at], c.parent[at], c.op[at])
            likelihood[0, kept] = likelihood[0, at]
            kept += 1
    return kept
