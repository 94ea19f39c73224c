"""Twins of bounds that know what transfers cost: an op's earliest start, by its paths."""

from __future__ import annotations

import math


def heads(order, before, runtime):
    """Return each op's head; `before` has, per op, what sending costs by the op that is read."""
    head = {}
    for op in order:
        together, apart = _distances(op, before, runtime)
        ancestors = [u for u in together if u != op]
        head[op] = max((head[u] + runtime[u] for u in before[op]), default=0.0)
        for cut in ancestors:
            # For all starts from one key up to the next the same ancestors share the op's device.
            key = head[cut] + apart[cut]
            forced = [u for u in ancestors if head[u] + apart[u] >= key]
            head[op] = max(head[op], min(key, _turn(forced, head, together, runtime)))
    return head


def _turn(forced, head, together, runtime):
    """When ops that run in turn are done and what follows the last is, too."""
    ends = []
    for first in forced:
        later = [u for u in forced if (head[u], u) >= (head[first], first)]
        delivery = min(together[u] - runtime[u] for u in later)
        ends.append(head[first] + sum(runtime[u] for u in later) + delivery)
    return max(ends)


def _distances(op, before, runtime):
    """From each ancestor's start to the op's: at least, and at least if they are on different devices."""
    together, apart = {op: 0.0}, {op: math.inf}

    def visit(reader):
        for u, cost in before[reader].items():
            longer = runtime[u] + together[reader]
            dearer = runtime[u] + min(cost + together[reader], apart[reader])
            if longer > together.get(u, -1.0) or dearer > apart.get(u, -1.0):
                together[u], apart[u] = max(longer, together.get(u, -1.0)), max(dearer, apart.get(u, -1.0))
                visit(u)

    visit(op)
    return together, apart
