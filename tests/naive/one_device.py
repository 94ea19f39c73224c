"""Twins of the kernels of one device: reachability, sets of ops and their memory, greedy and depth-first orders."""

from __future__ import annotations

import math


def joinable(plain, executed, is_backward):
    """Ops that can be the next of the first ops of an order, or backward of its last ones."""
    needed = plain.after if is_backward else plain.before
    return [op for op in plain.ops if op not in executed and needed[op] <= set(executed)]


def level_sets(plain, level, cutoff=math.inf, is_backward=False):
    """Exact dynamic programming, one level on: set of ops -> least peak, from the sets one op smaller."""
    following = {}
    for executed, peak in level.items():
        for op in joinable(plain, executed, is_backward):
            before = frozenset(plain.ops) - executed - {op} if is_backward else executed
            reached = max(peak, plain.resident(before) + plain.own[op] + plain.workspace[op])
            if reached < cutoff:
                key = executed | {op}
                following[key] = min(following.get(key, math.inf), reached)
    return following


def closed_sets(plain, inside=(), outside=()):
    """Yield every set of ops that holds what its ops wait for, all of `inside` and none of `outside`."""
    free = [v for v in plain.ops if v not in inside and v not in outside]
    for number in range(2 ** len(free)):
        chosen = set(inside) | {v for bit, v in enumerate(free) if number >> bit & 1}
        if all(plain.before[v] <= chosen for v in chosen):
            yield chosen


def arrivals(plain, op):
    """Yield every set of ops that can have run when an op starts."""
    yield from closed_sets(plain, reachable(plain.before, op), reachable(plain.after, op) | {op})


def least_arrival(plain, op):
    """Least bytes alive when an op starts, over all orders."""
    return min(plain.resident(chosen) for chosen in arrivals(plain, op))


def settled(plain, op, limit):
    """Ops before, and after, an op in all orders in which at most `limit` bytes are alive when it starts; or None."""
    within = [chosen for chosen in arrivals(plain, op) if plain.resident(chosen) <= limit]
    if not within:
        return None
    return set.intersection(*within), set(plain.ops) - set.union(*within) - {op}


def reachable(neighbours, start):
    """What a path of at least one edge leads to."""
    found = set(neighbours[start])
    while True:
        more = found.union(*(neighbours[v] for v in found))
        if more == found:
            return found
        found = more


def implied_edges(plain):
    """Edges `(first, second)` between ops that a path of two edges or more implies."""
    return {
        (first, second)
        for second in plain.ops
        for first in plain.before[second]
        if any(first in reachable(plain.before, other) for other in plain.before[second])
    }


def least_peak_memory_first(plain):
    """Of the ready ops the one that keeps the peak lowest, then leaves least resident, then of least index."""
    order, peak = [], 0
    while len(order) < len(plain.ops):
        resident = plain.resident(order)

        def rank(op, before=resident, so_far=peak):
            reached = max(so_far, before + plain.own[op] + plain.workspace[op])
            return reached, plain.resident([*order, op]), op

        op = min(plain.ready(order), key=rank)
        peak = rank(op)[0]
        order.append(op)
    return order, peak


def backward_ratio(plain):
    """From the last op on, that of least bytes added over those brought back and four times those freed next."""
    last = []

    def brought(op):
        roots = (root for root in plain.members if op in plain.users(root) and not plain.is_kept(root))
        return sum(plain.size[root] for root in roots if not plain.users(root) & set(last))

    def change(op):
        made = (root for root in plain.members if root[0] == op and (plain.is_kept(root) or plain.users(root)))
        return brought(op) - sum(plain.size[root] for root in made)

    def rank(op):
        opened = [change(other) for other in plain.before[op] if plain.after[other] - set(last) == {op}]
        return change(op) / max(1, brought(op) - 4 * min([0, *opened])), change(op), op

    while len(last) < len(plain.ops):
        last.append(min((op for op in plain.ops if op not in last and plain.after[op] <= set(last)), key=rank))
    return last[::-1]
