"""The best by trying all: orders, placements, schedules."""

from __future__ import annotations

import math

from .costs import replay, runnable


def least_peak(plain):
    """Least peak over all topological orders of one device, by trying them (cut at the best so far)."""
    count = len(plain.ops)
    resident, best = {}, [math.inf]

    def extend(executed, done, peak):
        if done == count:
            best[0] = peak
            return
        if executed not in resident:
            resident[executed] = plain.resident(executed)
        for op in plain.ready(executed):
            reached = max(peak, resident[executed] + plain.own[op] + plain.workspace[op])
            if reached < best[0]:
                extend(executed | {op}, done + 1, reached)

    extend(frozenset(), 0, 0)
    return best[0] + sum(plain.persistent)


def all_orders(plain, executed=()):
    """Yield every topological order."""
    if len(executed) == len(plain.ops):
        yield list(executed)
    for op in plain.ready(executed):
        yield from all_orders(plain, (*executed, op))


def all_schedules(plain, placement, done=()):
    """Yield every total order of a placement's ops and transfers."""
    choices = runnable(plain, placement, set(done))
    if not choices:
        yield list(done)
    for step in choices:
        yield from all_schedules(plain, placement, (*done, step))


def all_placements(ops, devices):
    """Yield every assignment of ops to devices."""
    for number in range(devices**ops):
        yield [number // devices**op % devices for op in range(ops)]


def best_schedule(plain, devices, task, limit=math.inf, **costs):
    """Return `(excess, value)` of the best schedule, by trying all of them, equivalent ones once.

    What a step takes depends on the placement and on the set of steps before it, not on their order, so per
    set only the least peak matters, or the clocks (and peaks above the limit) that no other way dominates.
    """
    best = (math.inf, math.inf)
    for placement in all_placements(len(plain.ops), devices):
        if placement[0] == 0:  # devices are alike
            best = min(best, _best_of_placement(plain, placement, devices, task, limit, costs))
    return best


def _best_of_placement(plain, placement, devices, task, limit, costs):
    level = {frozenset(): [((0.0,) * devices, 0, [])]}
    while True:
        following = {}
        for done, labels in level.items():
            for step in runnable(plain, placement, set(done)):
                for _, _, path in labels:
                    cost = replay(plain, placement, [*path, step], devices, **costs)
                    clocks, peak = tuple(cost.clocks), max(cost.peaks)
                    # Only what the fitness asks for tells labels apart.
                    key = (0.0,) * devices if task == "memory" else clocks
                    label = (key, peak if task == "memory" else max(0, peak - limit), [*path, step])
                    known = following.setdefault(done | {step}, [])
                    if not any(_dominates(other, label) for other in known):
                        known[:] = [other for other in known if not _dominates(label, other)] + [label]
        if not following:
            break
        level = following
    (labels,) = level.values()
    if task == "memory":
        return min((max(0, peak - limit), peak) for _, peak, _ in labels)
    return min((excess, max(clocks)) for clocks, excess, _ in labels)


def _dominates(one, other):
    return one[1] <= other[1] and all(a <= b for a, b in zip(one[0], other[0], strict=True))
