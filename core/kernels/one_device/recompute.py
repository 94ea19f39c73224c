"""Annealing of sequences with repeated runs: insert a chain of runs, delete one, move one.

Kirkpatrick, Gelatt and Vecchi 1983. A chain is what has to run again so that a tensor need not be kept over a step
that takes too much: its op, the views that are read, and those inputs which are no longer there either.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, IndexArray
from ..jit import inlined, kernel
from .runs import RunGraph, Runs, price_runs

LONGEST_CHAIN = 64
MULTIPLIER = np.uint64(2685821657736338717)


class Annealing(NamedTuple):
    """What a search keeps between calls.

    Parameters
    ----------
    draws
        Shape `(1,)`: the state of the generator (xorshift64*; Vigna 2016), never 0.
    which
        Shape `(1,)`: which of the two sequences is the current one.
    best, best_length
        The best sequence found that keeps the limit, and how long it is; 0 if none does.
    values
        Shape `(4,)`: excess and microseconds of the current sequence, microseconds of the best, least excess; never
        fewer microseconds than are allowed.
    chain, in_chain
        Scratch: ops of a chain, and per op whether it is in it.
    """

    draws: np.ndarray[tuple[int], np.dtype[np.uint64]]
    which: IndexArray
    best: IndexArray
    best_length: IndexArray
    values: np.ndarray[tuple[int], np.dtype[np.float64]]
    chain: IndexArray
    in_chain: BoolArray


def new_annealing(g: RunGraph, capacity: int, seed: int) -> Annealing:
    """Allocate what a search keeps."""
    return Annealing(
        np.array([seed * 2 + 1], np.uint64),
        np.zeros(1, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(1, np.int32),
        np.array([math.inf, math.inf, math.inf, math.inf]),
        np.zeros(LONGEST_CHAIN, np.int32),
        np.zeros(g.runtime.size, np.bool_),
    )


@inlined
def _draw(a: Annealing) -> float:
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
    return min(count - 1, int(_draw(a) * count))


class Aim(NamedTuple):
    """What annealing is to lower, and how.

    Parameters
    ----------
    limit
        Bytes that a sequence shall keep.
    allowed
        Microseconds that cost nothing.
    weight
        Microseconds that one byte above the limit in one run counts.
    temperature
        Microseconds that are accepted with probability 1/e.
    moves_first
        Whether the first run of an op may move, too; else the order of the first runs stays.
    """

    limit: int
    allowed: float
    weight: float
    temperature: float
    moves_first: bool


@kernel
def anneal_runs(g: RunGraph, s: Runs, a: Annealing, aim: Aim, tries: int) -> int:
    """Try moves from the current sequence; returns how many were priced.

    Parameters
    ----------
    g, s, a
        The graph, both sequences (the current one is priced), and the search.
    aim
        What is to be lowered.
    tries
        How many moves to try.
    """
    limit = aim.limit
    priced = 0
    for _ in range(tries):
        current = a.which[0]
        other = 1 - current
        kind = _draw(a)
        if kind < 0.45:
            changed = _insert(g, s, a, current, limit)
        elif kind < 0.6:
            changed = _delete(s, a, current)
        else:
            changed = _move(g, s, a, current, aim.moves_first)
        if not changed:
            continue
        priced += 1
        excess, _, microseconds = price_runs(g, s, other, limit)
        if excess < 0.0:
            continue
        if _prune(g, s, other):
            excess, _, microseconds = price_runs(g, s, other, limit)
        microseconds = max(microseconds, aim.allowed)
        rise = (excess - a.values[0]) * aim.weight + microseconds - a.values[1]
        if rise <= 0.0 or _draw(a) < math.exp(-rise / aim.temperature):
            a.which[0] = other
            a.values[0] = excess
            a.values[1] = microseconds
            _keep(s, a, other)
    return priced


@kernel
def _keep(s: Runs, a: Annealing, at: int) -> None:
    """Remember a sequence that is the best so far: one that keeps the limit, or comes nearer to it than all others."""
    if a.values[0] < a.values[3] or (a.values[0] == a.values[3] and a.values[1] < a.values[2]):
        a.values[3] = a.values[0]
        a.values[2] = a.values[1]
        a.best_length[0] = s.length[at]
        for step in range(s.length[at]):
            a.best[step] = s.items[at, step]


@kernel
def _prune(g: RunGraph, s: Runs, at: int) -> bool:
    """Take out runs that nothing reads and that are not the last of a final op; whether there were any."""
    length = s.length[at]
    kept = 0
    for step in range(length):
        op = s.items[at, step]
        s.done[op] -= 1  # how many more runs there are
        is_useless = s.used[at, step] == 0 and s.times[at, op] > 1
        if is_useless and s.done[op] == 0:
            for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
                if g.is_final[g.made[k]]:
                    is_useless = False
        if is_useless:
            s.times[at, op] -= 1
        else:
            s.items[at, kept] = op
            kept += 1
    s.length[at] = kept
    return bool(kept < length)


@kernel
def _copy(s: Runs, current: int, start: int, end: int, shift: int) -> None:
    """Copy a part of the current sequence to the other one, `shift` places later."""
    for step in range(start, end):
        s.items[1 - current, step + shift] = s.items[current, step]


@kernel
def _step_to_relieve(s: Runs, a: Annealing, current: int, limit: int) -> int:
    """Return a random run that takes more than the limit, or any if none does."""
    chosen = -1
    seen = 0
    for step in range(s.length[current]):
        if s.memory[current, step] > limit:
            seen += 1
            if _draw(a) * seen < 1.0:
                chosen = step
    return chosen if chosen >= 0 else _below(a, s.length[current])


@kernel
def _insert(g: RunGraph, s: Runs, a: Annealing, current: int, limit: int) -> bool:
    """Let a buffer go before a run that takes too much, and make it again before it is read next."""
    step = _step_to_relieve(s, a, current, limit)
    buffer = _idle_buffer(g, s, a, current, step)
    if buffer < 0:
        return False
    reader = step + 1
    while not _reads(s, current, reader, buffer):
        reader += 1
    links = _chain(g, s, a, current, buffer, reader, limit)
    if links == 0 or s.length[current] + links > s.items.shape[1]:
        return False
    _copy(s, current, 0, reader, 0)
    for k in range(links):
        s.items[1 - current, reader + k] = a.chain[k]
    _copy(s, current, reader, s.length[current], links)
    s.length[1 - current] = s.length[current] + links
    return True


@inlined
def _reads(s: Runs, current: int, step: int, buffer: int) -> bool:
    found = False
    for k in range(s.use_ptr[current, step], s.use_ptr[current, step + 1]):
        if s.use_buffer[current, k] == buffer:
            found = True
    return found


@kernel
def _idle_buffer(g: RunGraph, s: Runs, a: Annealing, current: int, step: int) -> int:
    """Return a buffer that is only kept during a run, by chance and size; -1 if none may be made again."""
    chosen = -1
    most = -math.inf
    for buffer in range(s.buffers[current]):
        if not s.first[current, buffer] < step < s.last[current, buffer] or s.bytes[current, buffer] == 0:
            continue
        if g.runs_once[g.producer[s.root[current, buffer]]]:
            continue
        key = math.log(_draw(a) + 1e-300) / s.bytes[current, buffer]
        if key > most and not _reads(s, current, step, buffer):
            chosen = buffer
            most = key
    return chosen


@kernel
def _chain(g: RunGraph, s: Runs, a: Annealing, current: int, buffer: int, reader: int, limit: int) -> int:
    """Collect what has to run again before `reader`, in the input order; returns how many runs, 0 if it cannot be."""
    _replay_until(g, s, current, reader)
    links = 0
    is_possible = True
    for k in range(s.use_ptr[current, reader], s.use_ptr[current, s.length[current]]):
        if s.use_buffer[current, k] == buffer:
            tensor = s.use_tensor[current, k]
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
            held = s.here[tensor]
            if a.in_chain[g.producer[tensor]] or s.last[current, held] >= reader or s.kept[current, held]:
                continue
            maker = g.producer[s.root[current, held]]
            if g.runs_once[g.producer[tensor]] or g.runs_once[maker]:
                continue
            if _is_tight(s, current, s.last[current, held] + 1, reader, limit) and _draw(a) < 0.8:
                while tensor >= 0 and links < LONGEST_CHAIN:
                    links = _add_link(g, a, g.producer[tensor], links)
                    tensor = g.alias[tensor]
    for k in range(links):
        a.in_chain[a.chain[k]] = False
    if links >= LONGEST_CHAIN or not is_possible:
        return 0
    _sort_by_rank(g, a, links)
    return links


@inlined
def _add_link(g: RunGraph, a: Annealing, op: int, links: int) -> int:
    added = links
    if not a.in_chain[op] and links < LONGEST_CHAIN:
        a.in_chain[op] = True
        a.chain[links] = op
        added = links + 1
    return added


@inlined
def _is_tight(s: Runs, current: int, start: int, end: int, limit: int) -> bool:
    """Whether some run of a stretch takes more than the limit."""
    found = False
    for step in range(start, end):
        if s.memory[current, step] > limit:
            found = True
            break
    return found


@kernel
def _replay_until(g: RunGraph, s: Runs, current: int, end: int) -> None:
    """Find the buffer that holds each tensor just before a run."""
    buffers = 0
    for step in range(end):
        op = s.items[current, step]
        for k in range(g.made_ptr[op], g.made_ptr[op + 1]):
            tensor = g.made[k]
            if g.alias[tensor] >= 0:
                s.here[tensor] = s.here[g.alias[tensor]]
            else:
                s.here[tensor] = buffers
                buffers += 1


@kernel
def _sort_by_rank(g: RunGraph, a: Annealing, links: int) -> None:
    """Sort a chain by the input order, in which no op comes before its inputs."""
    for k in range(1, links):
        op = a.chain[k]
        j = k
        while j > 0 and g.rank[a.chain[j - 1]] > g.rank[op]:
            a.chain[j] = a.chain[j - 1]
            j -= 1
        a.chain[j] = op


@kernel
def _delete(s: Runs, a: Annealing, current: int) -> bool:
    """Take out a random run of an op that runs several times."""
    length = s.length[current]
    start = _below(a, length)
    for k in range(length):
        step = start + k if start + k < length else start + k - length
        if s.times[current, s.items[current, step]] > 1:
            _copy(s, current, 0, step, 0)
            _copy(s, current, step + 1, length, -1)
            s.length[1 - current] = length - 1
            return True
    return False


@kernel
def _move(g: RunGraph, s: Runs, a: Annealing, current: int, moves_first: bool) -> bool:
    """Move a random run to a random place between what it reads and what reads it."""
    length = s.length[current]
    step = _below(a, length)
    op = s.items[current, step]
    if not moves_first and not _is_repeat(s, current, step):
        return False
    low = step
    while low > 0 and _may_pass(g, s, current, op, s.items[current, low - 1]):
        low -= 1
    high = step
    while high < length - 1 and _may_pass(g, s, current, op, s.items[current, high + 1]):
        high += 1
    if low == high:
        return False
    place = low + _below(a, high - low)
    if place >= step:
        place += 1
    s.length[1 - current] = length
    if place < step:
        _copy(s, current, 0, place, 0)
        _copy(s, current, place, step, 1)
        _copy(s, current, step + 1, length, 0)
    else:
        _copy(s, current, 0, step, 0)
        _copy(s, current, step + 1, place + 1, -1)
        _copy(s, current, place + 1, length, 0)
    s.items[1 - current, place] = op
    return True


@kernel
def _is_repeat(s: Runs, current: int, step: int) -> bool:
    op = s.items[current, step]
    before = 0
    while s.items[current, before] != op:
        before += 1
    return bool(before < step)


@kernel
def _may_pass(g: RunGraph, s: Runs, current: int, op: int, other: int) -> bool:
    """Whether two runs beside each other may change places without reading another run than before."""
    if op == other:
        return False
    for k in range(g.pred_ptr[op], g.pred_ptr[op + 1]):
        if g.preds[k] == other:
            return False
    is_apart = True
    for k in range(g.succ_ptr[op], g.succ_ptr[op + 1]):
        if g.succs[k] == other:
            is_apart = False
            break
    return is_apart
