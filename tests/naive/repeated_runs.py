"""Schedules that run ops several times: their memory, all of them, and the best, by the rules of the cost model."""

from __future__ import annotations

import heapq
import itertools

from .graphs import CONTROL


def may_run(plain, op, ran):
    """Whether an op may run after a set of ops: what it waits for ran, it may run again, and nobody waited for it."""
    waits = any((op, CONTROL) in plain.reads[other] for other in ran)
    return plain.before[op] <= set(ran) and not waits and not (op in ran and op in plain.runs_once)


def replay_runs(plain, order):
    """Return the bytes that each run of an order takes, or None where the order breaks a rule."""
    places, where, ran = [], {}, set()  # [first run, last run, bytes, is kept], and that of each tensor
    for step, op in enumerate(order):
        if not may_run(plain, op, ran):
            return None
        for tensor in plain.reads[op]:
            if tensor[1] != CONTROL:
                where[tensor][1] = step
        for tensor in plain.outputs[op]:
            if tensor in plain.alias:
                where[tensor] = where[plain.alias[tensor]]
                where[tensor][1] = step
            elif tensor[1] != CONTROL:
                where[tensor] = [step, step, plain.size[tensor], False]
                places.append(where[tensor])
            if tensor in plain.final and op not in order[step + 1 :]:
                where[tensor][3] = True
        ran.add(op)
    if len(ran) < len(plain.ops):
        return None
    held = [
        sum(size for first, last, size, kept in places if first <= step and (step <= last or kept))
        for step in range(len(order))
    ]
    return [sum(plain.persistent) + plain.workspace[op] + bytes_ for op, bytes_ in zip(order, held, strict=True)]


def run_sequences(plain, most_runs, done=()):
    """Yield every order in which each op runs once up to so many times."""
    if len(set(done)) == len(plain.ops):
        yield list(done)
    for op in plain.ops:
        if done.count(op) < most_runs and may_run(plain, op, set(done)):
            yield from run_sequences(plain, most_runs, (*done, op))


def runs_front(plain, most_runs=None):
    """Return `(microseconds, peak)` of the best schedules, from least time to least peak, by trying everything.

    A pebble game: what is in memory may be dropped at any time, and must be there when it is read. What counts is only
    which tensors are held, and which of them share bytes; so any number of runs has finitely many states. `most_runs`
    limits the runs of each op.
    """
    front, limit = [], None
    while (best := _least_time(plain, most_runs, limit)) is not None:
        front.append(best)
        limit = best[1] - 1
    return front


def least_time(front, limit):
    """Return the least microseconds of a front within so many bytes, infinite if there are none."""
    return min((time for time, peak in front if peak <= limit), default=float("inf"))


def least_peak_within(front, time):
    """Return the least peak of a front within so many microseconds."""
    return min(peak for taken, peak in front if taken <= time + 1e-9)


def _least_time(plain, most_runs, limit):
    """Return the least `(microseconds, peak)` under a limit of bytes, as Dijkstra did; None if it is too low."""
    start = ((0,) * len(plain.ops), frozenset())
    known, tie = {start: (0.0, 0)}, itertools.count()
    queue = [(0.0, 0, next(tie), start)]
    while queue:
        time, peak, _, state = heapq.heappop(queue)
        if known[state] < (time, peak):
            continue
        held = set().union(*state[1])
        if all(state[0]) and plain.final <= held:
            return time, peak
        for taken, needed, following in _moves(plain, state, held, most_runs):
            cost = (time + taken, max(peak, needed))
            if (limit is None or cost[1] <= limit) and cost < known.get(following, (float("inf"),)):
                known[following] = cost
                heapq.heappush(queue, (*cost, next(tie), following))
    return None


def _moves(plain, state, held, most_runs):
    """Yield microseconds, bytes and following state of each run that may come next, and of each tensor dropped."""
    times, places = state
    for tensor in held:
        yield 0.0, 0, (times, _without(places, {tensor}))
    ran = {op for op in plain.ops if times[op]}
    for op in plain.ops:
        is_there = {tensor for tensor in plain.reads[op] if tensor[1] != CONTROL} <= held
        if times[op] == most_runs or not is_there or not may_run(plain, op, ran):
            continue
        following = list(_without(places, set(plain.outputs[op])))
        for tensor in plain.outputs[op]:
            if tensor in plain.alias:
                (base,) = (place for place in following if plain.alias[tensor] in place)
                following[following.index(base)] = base | {tensor}
            elif tensor[1] != CONTROL:
                following.append(frozenset({tensor}))
        taken = sum(plain.size[plain.root(next(iter(place)))] for place in following)
        count = times[op] + 1 if most_runs else 1
        after = (*times[:op], count, *times[op + 1 :])
        yield plain.runtime[op], taken + plain.workspace[op] + sum(plain.persistent), (after, frozenset(following))


def _without(places, tensors):
    """Return the places of what is held, without some tensors."""
    return frozenset(place - tensors for place in places if place - tensors)
