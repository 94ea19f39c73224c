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


def priority_beam(plain, priority, width, collapse):
    """Levels of a beam search by probability (Topoformer 4.2): lists of (order, log-probability, peak)."""
    levels = [[((), 0.0, 0)]]
    for _ in plain.ops:
        successors = []
        for order, score, peak in levels[-1]:
            resident = plain.resident(order)
            for op in plain.ready(order):
                reached = max(peak, resident + plain.own[op] + plain.workspace[op])
                added = step_log_probability(plain, priority, order, op)
                successors.append(((*order, op), score + added, reached))
        if collapse:
            kept = {}
            for order, score, peak in successors:
                key = frozenset(order)
                if key not in kept or (peak, -score) < (kept[key][2], -kept[key][1]):
                    kept[key] = order, score, peak
            successors = list(kept.values())
        levels.append(sorted(successors, key=lambda entry: -entry[1])[:width])
    return levels
