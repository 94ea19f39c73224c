"""Orders that need no search: the file's own, depth first, breadth first (Topoformer 5), least peak memory first."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np

from ...base.arrays import IndexArray, frozen
from ...bounds.bounds import Heed
from ...graph.graph import Buffers, CostGraph
from ...kernels.orders.set_beam import NO_LIMIT, backward_walk, extend_in_place, forward_walk, new_state
from ...search.parameters import Parameters
from ...search.search import Cancelled, Search

CHUNK = 20_000  # steps between two looks at the clock


def input_order(search: Search, parameters: Parameters) -> None:
    """Offer the file's own order: for a real graph the program order."""
    search.offer_order(search.problem.graph.input_order)


def _offers(order_of: Callable[..., IndexArray], **how: bool) -> Callable[[Search, Parameters], None]:
    """Return the method that offers an order of the graph; nothing if it has no time for all of it."""

    def solve(search: Search, parameters: Parameters) -> None:
        with suppress(Cancelled):
            search.offer_order(order_of(search.problem.graph, heed=search.cancellable, **how))

    return solve


def lpmf(search: Search, parameters: Parameters, *, is_by_ratio: bool = False) -> None:
    """Offer the greedy order, all ops on device 0; nothing if it has no time for all of it."""
    order = greedy_order(search.problem.graph.buffers, search.exhausted, is_by_ratio=is_by_ratio)
    if order is not None:
        search.offer_order(order)


def kahn_order(graph: CostGraph, *, last_in_first_out: bool, heed: Heed = iter) -> IndexArray:
    """Return Kahn's order with a stack (depth first) or a queue (breadth first)."""
    # Of ops that become ready together the one of smallest index comes first. The paper takes both orders from a
    # drawing of the graph; this reading comes closest to its numbers.
    pointers, successors = (a.tolist() for a in graph.successors)
    waiting = np.diff(graph.predecessors[0]).tolist()
    ready: deque[int] = deque()
    became_ready = [op for op in range(graph.num_ops) if waiting[op] == 0]
    order = []
    for _ in heed(range(graph.num_ops)):
        ready.extend(reversed(became_ready) if last_in_first_out else became_ready)
        op = ready.pop() if last_in_first_out else ready.popleft()
        order.append(op)
        became_ready = []
        for successor in successors[pointers[op] : pointers[op + 1]]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                became_ready.append(successor)
    return frozen(order, np.int32)


def reverse_postorder(graph: CostGraph, *, heed: Heed = iter) -> IndexArray:
    """Return the reverse postorder of a depth-first search that visits sources and successors by index."""
    pointers, successors = (a.tolist() for a in graph.successors)
    following = [successors[first:last] for first, last in pairwise(pointers)]
    visited = bytearray(graph.num_ops)
    order: list[int] = []
    steps = heed(range(2 * graph.num_ops))  # an op is on top of the stack when it is entered and after each child
    for source in np.flatnonzero(np.diff(graph.predecessors[0]) == 0).tolist():
        order += postorder(source, following, visited, steps)
    return frozen(order[::-1], np.int32)


def postorder(first: int, following: list[list[int]], visited: bytearray, steps: Iterator[int]) -> list[int]:
    """Return what follows an op and was not visited, each op after what follows it; takes a step per look at one."""
    order = []
    stack = [(first, 0)]
    visited[first] = 1
    while stack:
        next(steps)
        op, at = stack.pop()
        while at < len(following[op]) and visited[following[op][at]]:
            at += 1
        if at == len(following[op]):
            order.append(op)
        else:
            visited[following[op][at]] = 1
            stack += [(op, at + 1), (following[op][at], 0)]
    return order


dfs, bfs = _offers(kahn_order, last_in_first_out=True), _offers(kahn_order, last_in_first_out=False)
dfs_postorder = _offers(reverse_postorder)


def greedy_order(
    buffers: Buffers, stop: Callable[[], bool] = lambda: False, *, is_by_ratio: bool = False
) -> IndexArray | None:
    """Return the order that always takes the ready op that keeps the peak lowest, then frees most; None if stopped."""
    # By ratio, ops are taken from the last one on: see `_added_per_byte`.
    walk = backward_walk(buffers) if is_by_ratio else forward_walk(buffers)
    ops, state = len(buffers.own), new_state(buffers, walk)
    for start in range(0, ops, CHUNK):
        if stop():
            return None
        extend_in_place(buffers, walk, state, NO_LIMIT, start, min(ops, start + CHUNK), is_by_ratio)
    return state.chosen[::-1].copy() if is_by_ratio else state.chosen


backward_ratio = partial(lpmf, is_by_ratio=True)
