"""Bytes that a caching allocator reserves for a program whose ops run again and again in one order, on one device.

Weights and what else is resident are allocated first, each by itself, and stay. Then the ops run, twice: what two runs
reserve, more do not exceed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..base.arrays import FloatArray, IndexArray, IntArray, frozen
from ..base.errors import ScheduleError
from ..graph.graph import CostGraph
from ..kernels import caching_allocator as kernel
from ..problem.problem import Problem
from ..problem.schedule import Reserved, Schedule
from .allocators import MIB, Allocator
from .unrolled import of_runs
from .verifier import Replay

RUNS = 2
_NO_EVENTS = frozen([], np.int64)


def weights_of(graph: CostGraph) -> IntArray:
    """Return the bytes of each resident tensor, and of each op's persistent bytes that are not those of any."""
    residents = [resident for resident in graph.annotations.residents if resident.op >= 0]
    rest = graph.persistent.copy()
    np.subtract.at(rest, [resident.op for resident in residents], [resident.size for resident in residents])
    sizes = np.array([resident.size for resident in residents] + rest.tolist(), np.int64)
    return frozen(sizes[sizes > 0], np.int64)


class Requests:
    """What a program asks an allocator for: its buffers, its workspaces, its weights, and an opening block."""

    def __init__(self, graph: CostGraph, allocator: Allocator) -> None:
        self.graph, self.buffers, self.allocator, weights = graph, graph.buffers, allocator, weights_of(graph)
        b = self.buffers
        asked = np.concatenate([b.size, b.workspace, weights, [0]])
        self.sizes = frozen(np.where(asked > 0, allocator.rounded(asked), 0), np.int64).copy()
        first = len(b.size) + len(b.workspace)
        self.weights = np.arange(first, first + len(weights))
        self._uses, self._held = np.empty(len(b.size), np.int32), np.empty(len(asked), np.int64)
        self._events, self._grown = np.empty(2 * first, np.int64), np.zeros(64, np.int64)
        self._memories = [allocator.memory(len(asked), is_downwards=way) for way in (True, False)]

    def events(self, order: IndexArray) -> IntArray:
        """Return the events of a run of an order."""
        count = kernel.order_events(self.buffers, frozen(order, np.int32), self._uses, self._events)
        return self._events[:count].copy()

    def before(self, opening_block: int = 0, is_before_weights: bool = True) -> IntArray:
        """Return the events before the first run."""
        block = len(self.sizes) - 1
        self.sizes[block] = self.allocator.rounded(np.array(opening_block))
        opening = [block, ~block] if opening_block else []
        return np.array([*opening, *self.weights] if is_before_weights else [*self.weights, *opening], np.int64)

    def reserved(
        self, run: IntArray, opening_block: int = 0, is_before_weights: bool = True, most: float = math.inf
    ) -> int:
        """Return the bytes reserved by two runs of these events; from `most` on, some number that is at least that."""
        before, reserved = self.before(opening_block, is_before_weights), 0
        for memory in self._memories:
            found = kernel.reserved_by(before, run, self.sizes, self._held, self._grown, 0.0, most, memory)
            reserved = max(reserved, int(found))
            if reserved >= most:
                break
        return reserved

    def walk(
        self, order: IndexArray, opening_block: int, is_before_weights: bool, moves: Iterable[tuple[float, FloatArray]]
    ) -> tuple[IndexArray, int]:
        """Return the best order and opening block that a walk from others meets, given temperatures and draws."""
        before, order = self.before(max(opening_block, kernel.STEP), is_before_weights), np.array(order, np.int32)
        memory, sizes, held, grown = self._memories[0], self.sizes, self._held, self._grown
        run = self.events(order)
        price = kernel.reserved_by(before, run, sizes, held, grown, kernel.LACK, math.inf, memory)
        place, found = np.argsort(order).astype(np.int32), np.array([price, price, opening_block])
        scratch = (grown, held, self._uses, self._events)
        walk = kernel.ReservedWalk(before, sizes, order, place, grown.copy(), order.copy(), found, *scratch)
        for temperature, draws in moves:
            kernel.walk_reserved(self.buffers, walk, temperature, draws, memory)
        return walk.best, int(found[2])

    def retries(self, run: IntArray, capacity: int, opening_block: int = 0, is_before_weights: bool = True) -> int:
        """Return how often in each run free segments are given back on a device of so many bytes; -1 if it dies."""
        before, retries = self.before(opening_block, is_before_weights), 0
        for is_downwards in (True, False):
            counts = []
            for runs in (RUNS, RUNS + 1):
                events = np.concatenate([before, *[run] * runs])
                found = self.allocator.replay(events, self.sizes, capacity=capacity, is_downwards=is_downwards)
                if found.done < len(events):
                    return -1
                counts.append(found.retries)
            retries = max(retries, counts[1] - counts[0])
        return retries


def pool_graph(graph: CostGraph, allocator: Allocator, is_large: bool, parts: int = 0) -> CostGraph:
    """Return a graph that has the bytes of one pool alone: of blocks above 1 MiB, or of the others; weights at op 0.

    With `parts`, sizes are those of a dual feasible function (Fekete and Schepers 2001): what fits in segments of 2 MiB
    has no more of such bytes than these. Of blocks above a third of a segment, for 2 parts, two fill one.
    """

    def of_pool(sizes: IntArray) -> IntArray:
        rounded = np.where(sizes > 0, allocator.rounded(sizes), 0)
        rounded = np.where((rounded > MIB) == is_large, rounded, 0)
        if parts:
            filled, left = np.divmod((parts + 1) * rounded, kernel.SMALL_SEGMENT)
            rounded = np.where(left, filled * (kernel.SMALL_SEGMENT // parts), rounded)
        return frozen(rounded, np.int64)

    persistent = np.zeros(graph.num_ops, np.int64)
    persistent[0] = of_pool(weights_of(graph)).sum()
    return replace(
        graph,
        tensor_size=of_pool(np.where(graph.alias_of < 0, graph.tensor_size, 0)),
        workspace=of_pool(graph.workspace),
        persistent=frozen(persistent, np.int64),
        annotations=replace(graph.annotations, residents=()),
    )


def rounded_to_segments(size: float, allocator: Allocator, is_large: bool) -> int:
    """Return the bytes of segments, or of pages, that hold at least so many of one pool."""
    step = kernel.SMALL_SEGMENT
    if is_large:
        step = (
            allocator.large_segment if allocator.expandable_segments else math.gcd(kernel.STEP, allocator.large_segment)
        )
    return -(-int(size) // step) * step


def verify_reserved(problem: Problem, schedule: Schedule, reserved: Reserved) -> None:
    """Check what is claimed to be reserved, by the lifetimes that the verifier finds.

    Raises
    ------
    ScheduleError
        If it is not so.
    """
    name, allocator = problem.graph.name, Allocator.parse(reserved.allocator)
    problem, schedule = of_runs(problem, schedule)
    replay = Replay(problem, schedule)
    replay.run()
    weights = weights_of(problem.graph).tolist()
    holdings = [holding for holding in replay.holdings if holding.size]
    sizes = np.array([*(holding.size for holding in holdings), *weights, reserved.opening_block], np.int64)
    end = len(schedule)
    run = []  # by step: tensors in their order, the workspace, then frees
    for number, held in enumerate(holdings):
        tensor = held.made[0][1] if held.made else len(replay.size)
        run.append(((held.since[1], False, tensor), number))
        run.append(((end if held.is_kept else held.until[1], True, -tensor), ~number))
    own = [event for _, event in sorted(run)]
    resident, block = [*range(len(holdings), len(sizes) - 1)], len(sizes) - 1
    opening = [block, ~block] if reserved.opening_block else []
    before = [*opening, *resident] if reserved.is_before_weights else [*resident, *opening]

    def replayed(first: list[int], capacity: int | None = None) -> int:
        events = np.array(first + RUNS * own)
        ways = [allocator.replay(events, sizes, capacity=capacity, is_downwards=way) for way in (False, True)]
        return max(way.peak if way.done == len(events) else 2**62 for way in ways)

    if (found := replayed(before)) != reserved.peak:
        raise ScheduleError(f"{name}: the schedule claims that {reserved.peak} bytes are reserved, but {found} are")
    capacity = reserved.least_capacity
    if min(replayed(first, capacity) for first in (before, resident)) > capacity:
        raise ScheduleError(f"{name}: the schedule does not run on a device of {capacity} bytes, as it claims")
    if reserved.bound > reserved.peak:
        raise ScheduleError(f"{name}: the schedule reserves less than its bound of {reserved.bound} bytes")
