"""Groups of ops that had better be on one device: a hierarchy, those first that exchange most for what they compute."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray, IndexArray
from ...kernels.several_devices.step_moves import Groups
from ...problem import Problem

LARGEST_GROUP = 0.6
"""Of all ops: larger groups are no use elsewhere."""
MOST_READS = 500_000
"""Of more, what ops exchange alone takes seconds to add up."""


def is_tied(problem: Problem) -> bool:
    """Whether transfers cost time or, under a memory limit, room."""
    return problem.memory_limit is not None or problem.latency > 0 or problem.bandwidth is not None


class Hierarchy(NamedTuple):
    """Groups of ops, single ones first, each of which is a stretch of `ops`; of any two one holds the other, or none.

    Parameters
    ----------
    ops
        Shape `(ops,)`.
    first, last
        Shape `(groups,)`: where a group begins, and the place after its end.
    exchange
        Shape `(groups,)`: what its transfers from and to all other ops would cost.
    """

    ops: IndexArray
    first: IndexArray
    last: IndexArray
    exchange: FloatArray


def hierarchy(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Hierarchy:
    """Merge ops, then groups, two at a time: always those with the largest exchange per op of the smaller one.

    An exchange is what the transfers between two groups would cost, on a machine over the mean of its links:
    microseconds or, where they are free, bytes. What a tensor costs is shared out among its readers. Once `stop` says
    so no more are merged: in dense graphs of 10,000 ops all take a minute. Of more than `MOST_READS` none are.
    """
    parent, children, exchange = _merged(problem, stop)
    ops = problem.graph.num_ops
    roots = [group for group in range(len(parent)) if parent[group] < 0]
    order: list[int] = []
    first, last = [0] * len(parent), [0] * len(parent)
    stack = [(group, False) for group in reversed(roots)]
    while stack:
        group, is_done = stack.pop()
        if is_done:
            last[group] = len(order)
            continue
        first[group] = len(order)
        if group < ops:
            order.append(group)
            last[group] = len(order)
            continue
        stack += [(group, True), *((child, False) for child in children[group - ops])]
    return Hierarchy(np.array(order, np.int32), np.array(first, np.int32), np.array(last, np.int32), np.array(exchange))


def op_groups(problem: Problem, stop: Callable[[], bool] = lambda: False) -> Groups:
    """Return the groups of the problem's hierarchy that moves take elsewhere."""
    return moving_groups(hierarchy(problem, stop))


def moving_groups(groups: Hierarchy) -> Groups:
    """Return those of two ops up to `LARGEST_GROUP` of all."""
    sizes = groups.last - groups.first
    wide = (sizes > 1) & (sizes <= LARGEST_GROUP * len(groups.ops))
    return Groups(groups.ops, groups.first[wide], groups.last[wide])


def no_groups() -> Groups:
    """Return what makes no moves of groups."""
    empty = np.empty(0, np.int32)
    return Groups(empty, empty, empty)


def _exchanges(problem: Problem) -> list[dict[int, float]]:
    """Per op what it exchanges with others."""
    graph = problem.graph
    latency, per_byte = (
        (problem.latency, problem.microseconds_per_byte) if problem.machine is None else problem.machine.mean_link
    )
    cost = latency + graph.tensor_size * per_byte
    if not cost.any():
        cost = graph.tensor_size.astype(np.float64)
    pointers, consumers = (a.tolist() for a in graph.consumers)
    between: list[dict[int, float]] = [{} for _ in range(graph.num_ops)]
    columns = zip(graph.tensor_producer.tolist(), cost.tolist(), pairwise(pointers), strict=True)
    for maker, price, (start, end) in columns:
        for reader in consumers[start:end]:
            share = price / (end - start)
            between[maker][reader] = between[maker].get(reader, 0.0) + share
            between[reader][maker] = between[reader].get(maker, 0.0) + share
    return between


def _merged(problem: Problem, stop: Callable[[], bool]) -> tuple[list[int], list[tuple[int, int]], list[float]]:
    """Return each group's parent, -1 for none, ops first, the two children of each group made, and all exchanges."""
    if len(problem.graph.inputs[1]) > MOST_READS:
        return [-1] * problem.graph.num_ops, [], [0.0] * problem.graph.num_ops
    between = _exchanges(problem)
    ops = len(between)
    size, parent, children = [1] * ops, [-1] * ops, []
    heap = [
        (-price, one, other) for one, others in enumerate(between) for other, price in others.items() if one < other
    ]
    heapq.heapify(heap)
    while heap and not stop():
        _, one, other = heapq.heappop(heap)
        if parent[one] >= 0 or parent[other] >= 0:
            continue
        new = len(parent)
        parent[one] = parent[other] = new
        parent.append(-1)
        size.append(size[one] + size[other])
        children.append((one, other))
        joined: dict[int, float] = {}
        for group in (one, other):
            for neighbour, price in between[group].items():
                if neighbour not in (one, other):
                    joined[neighbour] = joined.get(neighbour, 0.0) + price
                    del between[neighbour][group]
        between.append(joined)
        for neighbour, price in joined.items():
            between[neighbour][new] = price
            heapq.heappush(heap, (-price / min(size[new], size[neighbour]), neighbour, new))
    return parent, children, [sum(others.values()) for others in between]
