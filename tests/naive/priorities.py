"""Twins of orders from priorities (Topoformer 4.2): greedy, sampled, and by beam."""

from __future__ import annotations

import math
from itertools import accumulate


def random_priority_order(plain, priority):
    """Always the ready op of least priority."""
    order = []
    while len(order) < len(plain.ops):
        order.append(min(plain.ready(order), key=lambda op: priority[op]))
    return order


def step_probabilities(plain, priority, executed):
    """Ready op -> probability to be next, a softmax of the priorities over the ready ops (Topoformer eq. 8)."""
    ready = plain.ready(executed)
    largest = max(priority[op] for op in ready)
    weights = [math.exp(priority[op] - largest) for op in ready]
    return {op: weight / math.fsum(weights) for op, weight in zip(ready, weights, strict=True)}


def step_log_probability(plain, priority, executed, op):
    """Log-probability of `op` to be next, without underflow."""
    others = [priority[other] - priority[op] for other in plain.ready(executed)]
    largest = max(others)
    return -largest - math.log(math.fsum(math.exp(other - largest) for other in others))


def order_log_probability(plain, priority, order):
    """Log-probability of an order, step by step."""
    return math.fsum(step_log_probability(plain, priority, order[:at], op) for at, op in enumerate(order))


def sampled_order(plain, priority, draws):
    """At each step the first ready op, by index, at which the cumulative probability exceeds the draw."""
    order = []
    for draw in draws:
        ready, probabilities = zip(*sorted(step_probabilities(plain, priority, order).items()), strict=True)
        reached = accumulate(probabilities)
        order.append(next((op for op, so_far in zip(ready, reached, strict=True) if draw < so_far), ready[-1]))
    return order


def ready_steps(plain, order):
    """Per op, the length of the shortest prefix of the order after which it can run."""
    return [next(t for t in range(len(order)) if plain.before[op] <= set(order[:t])) for op in plain.ops]


def priority_beam(plain, priority, width, is_backward=False, limit=math.inf):
    """Levels of a beam search by probability (Topoformer 4.2): lists of (ops, log-probability, peak).

    Backward the ops are the last ones, the very last first, each by a softmax of the negative priorities.
    """
    levels = [[((), 0.0, 0)]]
    for _ in plain.ops:
        successors = []
        for ops, score, peak in levels[-1]:
            forced = _safe_op(plain, ops, limit, is_backward) if ops and limit < math.inf else None
            choices = _choices(plain, priority, ops, is_backward)
            for op in choices if forced is None else [forced]:
                reached = max(peak, _step(plain, ops, op, is_backward)[0])
                if reached < limit:
                    successors.append(((*ops, op), score + (choices[op] if forced is None else 0.0), reached))
        kept = {}
        for ops, score, peak in successors:
            key = frozenset(ops)
            if key not in kept or (peak, -score) < (kept[key][2], -kept[key][1]):
                kept[key] = ops, score, peak
        levels.append(sorted(kept.values(), key=lambda entry: -entry[1])[:width])
    return levels


def _choices(plain, priority, ops, is_backward):
    """What can be chosen after some ops, and its log-probability."""
    if not is_backward:
        return {op: step_log_probability(plain, priority, ops, op) for op in plain.ready(ops)}
    left = [op for op in plain.ops if op not in ops]
    last = [op for op in left if not any(op in plain.before[other] for other in left)]
    least = min(priority[op] for op in last)
    total = math.log(math.fsum(math.exp(least - priority[op]) for op in last))
    return {op: least - priority[op] - total for op in last}


def _step(plain, ops, op, is_backward):
    """Return the bytes of an op's step, and what is resident on the far side of it."""
    done = [other for other in plain.ops if other not in ops and other != op] if is_backward else list(ops)
    needed = plain.resident(done) + plain.own[op] + plain.workspace[op]
    return needed, plain.resident(done if is_backward else [*done, op])


def _safe_op(plain, ops, limit, is_backward):
    """Return the first op that may join at once: within the limit, and no more is resident; None if there is none."""
    now = plain.resident([op for op in plain.ops if op not in ops] if is_backward else list(ops))
    for op in sorted(_choices(plain, [0.0] * len(plain.ops), ops, is_backward)):
        needed, resident = _step(plain, ops, op, is_backward)
        if needed < limit and resident <= now:
            return op
    return None
