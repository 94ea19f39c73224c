"""Annealing of repeated runs (Kirkpatrick, Gelatt and Vecchi 1983): insert a chain of runs, delete one, move one."""
# A chain is what has to run again so that a tensor need not be kept over a step: its op, views that are read, inputs no
# longer there. Insertions and deletions are edits begun already; `chain` then has ops whose runs may be needless.

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...base.arrays import BoolArray, IndexArray
from ..jit import inlined, kernel
from ..metropolis import tolerated
from . import sequences
from .sequences import START, RunGraph, Sequence

INSERT, DELETE = 0.4, 0.55  # moves that insert a chain, and with those that delete a run, as shares of all
LONGEST_CHAIN = 64
CANDIDATES = 12
MULTIPLIER = np.uint64(2685821657736338717)


class Annealing(NamedTuple):
    """The state of a search between calls."""

    # shape `(1,)`: the state of the generator (xorshift64*; Vigna 2016), never 0
    draws: np.ndarray[tuple[int], np.dtype[np.uint64]]
    best: IndexArray  # the best sequence found that keeps the limit, and how long it is; 0 if none does
    best_length: IndexArray
    # shape `(4,)`: excess and microseconds of the current sequence, microseconds of the best, least excess; the best
    # never has fewer microseconds than are allowed
    values: np.ndarray[tuple[int], np.dtype[np.float64]]
    chain: IndexArray  # scratch: ops of a chain, and per op whether it is in it
    in_chain: BoolArray


def new_annealing(g: RunGraph, capacity: int, seed: int) -> Annealing:
    """Allocate the state of a search."""
    return Annealing(
        np.array([seed * 2 + 1], np.uint64),
        np.zeros(capacity, np.int32),
        np.zeros(1, np.int32),
        np.array([math.inf, math.inf, math.inf, math.inf]),
        np.zeros(g.runtime.size + 1, np.int32),
        np.zeros(g.runtime.size, np.bool_),
    )


class Aim(NamedTuple):
    """The objective of annealing, and its parameters."""

    limit: int  # bytes that a sequence shall keep
    allowed: float  # microseconds that cost nothing
    weight: float  # microseconds that one byte above the limit in one run counts
    temperature: float  # microseconds that are accepted with probability 1/e
    moves_first: bool  # whether the first run of an op may move, too; else the order of the first runs stays


@inlined
def draw(a: Annealing) -> float:
    """Return a number from 0 up to 1."""
    x = a.draws[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    a.draws[0] = x
    return float((x * MULTIPLIER) >> np.uint64(11)) / 9007199254740992.0


@inlined
def _below(a: Annealing, count: int) -> int:
    """Return a whole number from 0 up to `count`."""
    return min(count - 1, int(draw(a) * count))


@kernel
def _step_to_relieve(s: Sequence, a: Annealing, limit: int) -> int:
    """Return a random run that takes more than the limit, or any if none does."""
    length = s.length[0]
    count = 0
    for step in range(length):
        count += s.memory[step] > limit
    if count == 0:
        return _below(a, length)
    wanted = _below(a, count)
    for step in range(length):
        if s.memory[step] > limit:
            if wanted == 0:
                return step
            wanted -= 1
    return 0


@kernel
def insert_chain(g: RunGraph, s: Sequence, a: Annealing, aim: Aim) -> int:
    """Let a buffer go before a run that takes too much, and make it again before it is read next."""
    step = _step_to_relieve(s, a, aim.limit)
    group = _idle_group(g, s, a, step)
    if group < 0:
        return 0
    reader, _ = _uses_between(g, s, group, step, int(s.length[0]))
    links = _chain(g, s, a, group, reader, aim.limit)
    if links == 0 or s.length[0] + links >= s.items.size:
        return 0
    for k in range(links):
        if not sequences.insert_run(g, s, a.chain[k], reader + k):
            return -1
    a.chain[links] = -1
    return 1


@kernel
def _idle_group(g: RunGraph, s: Sequence, a: Annealing, step: int) -> int:
    """Return a group that is only kept during a run and may be made again, by chance, bytes and time; -1 if none."""
    length = s.length[0]
    chosen = -1
    most = -math.inf
    by_time = draw(a) < 0.5
    if step + 1 >= length:
        return -1
    for _ in range(CANDIDATES):
        later = step + 1 + _below(a, length - step - 1)
        op = s.items[later]
        count = g.read_ptr[op + 1] - g.read_ptr[op]
        if count == 0:
            continue
        group = g.group[g.reads[g.read_ptr[op] + _below(a, count)]]
        root = g.tensors[g.tensor_ptr[group]]
        maker = g.producer[root]
        if g.size[root] == 0 or g.runs_once[maker] or group == chosen:
            continue
        is_touched = False
        for k in range(g.touch_ptr[s.items[step]], g.touch_ptr[s.items[step] + 1]):
            is_touched = is_touched or g.touches[k] == group
        if is_touched or not s.places[maker, 0] < step:
            continue
        number = s.times[maker] - 1
        while s.places[maker, number] > later:
            number -= 1
        if s.places[maker, number] > step:
            continue
        weight = float(g.size[root])
        if by_time:
            weight /= g.runtime[maker] + 1e-9
        key = math.log(draw(a) + 1e-300) / weight
        if key > most:
            chosen = group
            most = key
    return chosen


@kernel
def _uses_between(g: RunGraph, s: Sequence, group: int, low: int, high: int) -> tuple[int, int]:
    """Return the first and the last run after one place and before another that touch a group; the other, if none."""
    first, last = high, low
    for k in range(g.member_ptr[group], g.member_ptr[group + 1]):
        op = g.members[k]
        for number in range(s.times[op]):
            place = int(s.places[op, number])
            if low < place < high:
                first = min(first, place)
                last = max(last, place)
    return first, last


@kernel
def _last_use(g: RunGraph, s: Sequence, group: int, step: int) -> int:
    """Return the last run that touches the buffer of a group which is there before a run; the end if it is final."""
    maker = g.producer[g.tensors[g.tensor_ptr[group]]]
    number = s.times[maker] - 1
    while number > 0 and s.places[maker, number] >= step:
        number -= 1
    end = int(s.length[0])
    if number + 1 < s.times[maker]:
        end = int(s.places[maker, number + 1])
    last = int(s.places[maker, number])
    for k in range(g.tensor_ptr[group], g.tensor_ptr[group + 1]):
        if g.is_final[g.tensors[k]] and end == s.length[0]:
            return end
    return _uses_between(g, s, group, last, end)[1]


@kernel
def _chain(g: RunGraph, s: Sequence, a: Annealing, group: int, reader: int, limit: int) -> int:
    """Collect the ops to run again before `reader`, in the input order; returns how many runs, 0 if it cannot be."""
    links = 0
    is_possible = True
    for k in range(g.tensor_ptr[group], g.tensor_ptr[group + 1]):
        tensor = g.tensors[k]
        maker = g.producer[tensor]
        if g.alias[tensor] < 0 or (s.places[maker, 0] < reader and _is_used_from(g, s, maker, reader)):
            while tensor >= 0:
                links = _add_link(g, a, g.producer[tensor], links)
                tensor = g.alias[tensor]
    at = 0
    while at < links and links < LONGEST_CHAIN:
        op = a.chain[at]
        at += 1
        is_possible = is_possible and not g.runs_once[op]
        for k in range(g.read_ptr[op], g.read_ptr[op + 1]):
            tensor = g.reads[k]
            maker = g.producer[g.tensors[g.tensor_ptr[g.group[tensor]]]]
            if a.in_chain[g.producer[tensor]] or g.runs_once[g.producer[tensor]] or g.runs_once[maker]:
                continue
            last = _last_use(g, s, g.group[tensor], reader)
            if last < reader and sequences.excess_between(s, limit, last + 1, reader) > 0 and draw(a) < 0.8:
                while tensor >= 0 and links < LONGEST_CHAIN:
                    links = _add_link(g, a, g.producer[tensor], links)
                    tensor = g.alias[tensor]
    for k in range(links):
        a.in_chain[a.chain[k]] = False
    if links >= LONGEST_CHAIN or not is_possible:
        return 0
    for k in range(1, links):  # by the input order, in which no op comes before its inputs
        op = a.chain[k]
        j = k
        while j > 0 and g.rank[a.chain[j - 1]] > g.rank[op]:
            a.chain[j] = a.chain[j - 1]
            j -= 1
        a.chain[j] = op
    return links


@kernel
def _is_used_from(g: RunGraph, s: Sequence, op: int, step: int) -> bool:
    """Whether an op's output is read at or after a run, before the op runs again."""
    end = s.length[0]
    for number in range(s.times[op]):
        if s.places[op, number] >= step:
            end = s.places[op, number]
            break
    return sequences.is_used(g, s, op, int(step), int(end))


@inlined
def _add_link(g: RunGraph, a: Annealing, op: int, links: int) -> int:
    added = links
    if not a.in_chain[op] and links < min(LONGEST_CHAIN, a.chain.size - 1):
        a.in_chain[op] = True
        a.chain[links] = op
        added = links + 1
    return added


@kernel
def delete(g: RunGraph, s: Sequence, a: Annealing) -> int:
    """Take out a random run of an op that runs several times."""
    length = s.length[0]
    start = _below(a, length)
    for k in range(length):
        step = start + k if start + k < length else start + k - length
        op = s.items[step]
        if s.times[op] > 1:
            sequences.delete_run(g, s, step)
            count = 0
            for m in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
                if s.times[g.preds[m]] > 1:
                    a.chain[count] = g.preds[m]
                    count += 1
            a.chain[count] = -1
            return 1
    return 0


@kernel
def draw_move(g: RunGraph, s: Sequence, a: Annealing, moves_first: bool) -> tuple[int, int]:
    """Return a random run, and a random other place between its inputs and its readers; the same if none."""
    step = _below(a, s.length[0])
    op, number = s.items[step], s.number[step]
    if not moves_first and number == 0:
        return step, step
    low = -1
    high = int(s.length[0])
    if number > 0:
        low = int(s.places[op, number - 1])
    if number + 1 < s.times[op]:
        high = int(s.places[op, number + 1])
    for k in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
        low, high = _between(s, g.preds[k], step, low, high)
    for k in range(g.succ_ptr[op], g.succ_ptr[op + 1]):
        low, high = _between(s, g.succs[k], step, low, high)
    low += 1
    high -= 1
    if low == high:
        return step, step
    place = low + _below(a, high - low)
    if place >= step:
        place += 1
    if draw(a) < 0.3:
        place = low if draw(a) < 0.5 else high
        if place == step:
            place = low + high - step
    return step, place


@inlined
def _between(s: Sequence, op: int, step: int, low: int, high: int) -> tuple[int, int]:
    """Narrow the places around a run to those that pass no run of an op."""
    for number in range(s.times[op]):
        place = s.places[op, number]
        if place < step:
            low = max(low, place)
        else:
            high = min(high, place)
            break
    return low, high


@kernel
def anneal_runs(g: RunGraph, s: Sequence, a: Annealing, aim: Aim, tries: int) -> int:
    """Try moves from the current sequence; returns how many were priced."""
    priced = 0
    for _ in range(tries):
        kind = draw(a)
        if kind >= DELETE:
            step, place = draw_move(g, s, a, aim.moves_first)
            if step != place:
                priced += 1
                rise = sequences.shift_run(g, s, step, place, aim.limit)
                if not _is_accepted(s, a, aim, a.values[0] + rise, a.values[1]):
                    sequences.shift_run(g, s, place, step, aim.limit)
            continue
        sequences.begin(s)
        changed = insert_chain(g, s, a, aim) if kind < INSERT else delete(g, s, a)
        if changed == 0:
            continue
        priced += 1
        is_kept = changed > 0 and _prune(g, s, a, aim.moves_first) and sequences.finish(g, s)
        if is_kept:
            microseconds, length = 0.0, np.int64(s.length[0])
            for step in range(length):
                microseconds += g.runtime[s.items[step]]
            excess = float(sequences.excess_between(s, aim.limit, START, length))
            is_kept = _is_accepted(s, a, aim, excess, microseconds)
        if not is_kept:
            sequences.undo(s)
    return priced


@kernel
def _is_accepted(s: Sequence, a: Annealing, aim: Aim, excess: float, microseconds: float) -> bool:
    """Whether the sequence as it is now is gone on from; the best is that of least excess, then of least time."""
    rise = (excess - a.values[0]) * aim.weight
    rise += max(microseconds, aim.allowed) - max(a.values[1], aim.allowed)
    if rise > 0.0 and rise >= tolerated(aim.temperature, draw(a)):
        return False
    a.values[0] = excess
    a.values[1] = microseconds
    time = max(microseconds, aim.allowed)
    if excess < a.values[3] or (excess == a.values[3] and time < a.values[2]):
        a.values[3] = excess
        a.values[2] = time
        a.best_length[0] = s.length[0]
        for step in range(s.length[0]):
            a.best[step] = s.items[step]
    return True


@kernel
def _prune(g: RunGraph, s: Sequence, a: Annealing, moves_first: bool) -> bool:
    """Take out unneeded runs of the ops in `chain`, and of those that only they read; False if that cannot be."""
    count = 0
    while a.chain[count] >= 0:
        count += 1
    at = 0
    while at < count:
        op = a.chain[at]
        at += 1
        number = 0
        while number < s.times[op]:
            step = s.places[op, number]
            if s.times[op] == 1 or sequences.is_read(g, s, step):
                number += 1
                continue
            if number == 0 and not moves_first:
                return False
            sequences.delete_run(g, s, np.int64(step))
            for k in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
                if s.times[g.preds[k]] > 1 and count < a.chain.size - 1:
                    a.chain[count] = g.preds[k]
                    count += 1
    a.chain[count] = -1
    return True
