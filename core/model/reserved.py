"""Bytes that a caching allocator reserves for a program whose ops run again and again in one order, on one device.

Weights and what else is resident are allocated first, each by itself, then cuBLAS's workspace, and stay. Then the ops
run until a run reserves no more: all others do as that one, for what a run makes is free after it.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from ..base.arrays import IndexArray, IntArray, frozen
from ..base.errors import ScheduleError, UsageError
from ..graph.graph import CostGraph
from ..kernels import caching_allocator as kernel
from ..problem.problem import Problem
from ..problem.schedule import Reserved, Schedule
from .allocators import MIB, Allocator
from .unrolled import of_runs
from .verifier import Replay

RUNS = 4
"""Before the run whose retries are counted, on a device of a given capacity."""
MOST_BYTES = 1 << 41
CUBLASLT_WORKSPACE = MIB
ENDLESS = "each run reserves more than the one before, without end"


# Of PyTorch, by cuBLAS.
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "matmul", "einsum"}
_PRODUCTS |= {"_addmm_activation", "_scaled_mm", "_int_mm", "_transformer_encoder_layer_fwd"}


def uses_cublas(graph: CostGraph) -> bool:
    """Whether ops of PyTorch, by their names, are products, for which cuBLAS takes workspaces and keeps them."""
    return not _PRODUCTS.isdisjoint(re.sub(r"_?(_\d+)?$", "", name) for name in graph.op_names)


def weights_of(graph: CostGraph, allocator: Allocator) -> IntArray:
    """Return the bytes of resident tensors, of ops' persistent bytes that are none's, and of cuBLAS's workspaces."""
    residents = [resident for resident in graph.annotations.residents if resident.op >= 0]
    rest = graph.persistent.copy()
    np.subtract.at(rest, [resident.op for resident in residents], [resident.size for resident in residents])
    asked = [*(resident.size for resident in residents), *rest.tolist()]
    asked += [allocator.cublas_workspace, CUBLASLT_WORKSPACE] if allocator.cublas_workspace else []
    sizes = np.array(asked, np.int64)
    return frozen(sizes[sizes > 0], np.int64)


class Requests:
    """What a program asks an allocator for: its buffers, its workspaces, its weights, and an opening block."""

    def __init__(self, graph: CostGraph, allocator: Allocator) -> None:
        self.graph, self.buffers, self.allocator = graph, graph.buffers, allocator
        b, weights = self.buffers, weights_of(graph, allocator)
        asked = np.concatenate([b.size, b.workspace, weights, [0]])
        self.sizes = frozen(np.where(asked > 0, allocator.rounded(asked), 0), np.int64).copy()
        if asked.sum(dtype=float) > MOST_BYTES:
            raise UsageError(f"{graph.name}: an allocator gives at most {MOST_BYTES:,} bytes in all")
        first = len(b.size) + len(b.workspace)
        self.weights = np.arange(first, first + len(weights))
        self._uses, self._held = np.empty(len(b.size), np.int32), np.empty(len(asked), np.int64)
        self._events = np.empty(2 * first, np.int64)
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
        """Return the bytes reserved by runs of these events; from `most` on, some number that is at least that."""
        before, reserved = self.before(opening_block, is_before_weights), 0
        for memory in self._memories:
            reserved = max(reserved, kernel.reserved_by(before, run, self.sizes, self._held, most, memory))
            if reserved >= most:
                break
        if reserved == kernel.NO_END and most == math.inf:
            raise UsageError(f"{self.graph.name}: with {self.allocator} {ENDLESS}")
        return reserved

    def least_capacity(
        self, run: IntArray, least: int, blocks: Iterable[tuple[int, bool]], late: Callable[[], bool] = lambda: False
    ) -> tuple[int, int]:
        """Return the bytes of the smallest device on which runs go on, and how often each gives free segments back.

        That is with any of these opening blocks, from `least` on, in steps of 1 MiB; as found when it is late.
        """
        found = []
        for block in blocks:
            before, high, retries = self.before(*block), self.reserved(run, *block), 0
            low = -(-least // MIB) * MIB
            while low < high and not late():
                middle = (low + high) // 2 // MIB * MIB
                again = retries_of(self.allocator, self.sizes, before, run, middle)
                if again < 0:
                    low = middle + MIB
                else:
                    high, retries = middle, again
            found.append((high, retries))
        return min(found)


def retries_of(allocator: Allocator, sizes: IntArray, before: IntArray, run: IntArray, capacity: int) -> int:
    """Return how often each run gives free segments back on a device of so many bytes, -1 if it needs more."""
    retries = 0
    for is_downwards in (True, False):
        counts = []
        for runs in (RUNS, RUNS + 1):
            events = np.concatenate([before, *[run] * runs])
            found = allocator.replay(events, sizes, capacity=capacity, is_downwards=is_downwards)
            if found.done < len(events) or found.peak > capacity:
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
    persistent[0] = of_pool(weights_of(graph, allocator)).sum()
    return replace(
        graph,
        tensor_size=of_pool(np.where(graph.alias_of < 0, graph.tensor_size, 0)),
        workspace=of_pool(graph.workspace),
        persistent=frozen(persistent, np.int64),
        annotations=replace(graph.annotations, residents=()),
    )


def rounded_to_segments(size: float, allocator: Allocator, is_large: bool) -> int:
    """Return the bytes of segments, or of pages, that hold at least so many of one pool."""
    page = allocator.large_segment if is_large else kernel.SMALL_SEGMENT
    step = page if allocator.expandable_segments else math.gcd(page, kernel.STEP)
    return -(-int(size) // step) * step


def verify_reserved(problem: Problem, schedule: Schedule, reserved: Reserved) -> None:
    """Check what is claimed to be reserved, by the lifetimes that the verifier finds."""
    name, allocator = problem.graph.name, Allocator.parse(reserved.allocator)
    problem, schedule = of_runs(problem, schedule)
    replay = Replay(problem, schedule)
    replay.run()
    weights = weights_of(problem.graph, allocator).tolist()
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

    events = [np.array(first, np.int64) for first in (before, resident, own)]
    if (found := _settled(allocator, sizes, events[0], events[2])) != reserved.peak:
        raise ScheduleError(f"{name}: the schedule claims that {reserved.peak} bytes are reserved, but {found} are")
    if reserved.bound > reserved.peak:
        raise ScheduleError(f"{name}: the schedule reserves less than its bound of {reserved.bound} bytes")
    capacity, retries = reserved.least_capacity, {0}
    if not 0 <= capacity <= reserved.peak:
        raise ScheduleError(f"{name}: the schedule claims a least capacity of {capacity} bytes, above its reserved")
    if capacity < reserved.peak:
        retries = {retries_of(allocator, sizes, first, events[2], capacity) for first in events[:2]} - {-1}
    if not retries:
        raise ScheduleError(f"{name}: the schedule does not run on a device of {capacity} bytes, as it claims")
    if reserved.retries not in retries:
        raise ScheduleError(f"{name}: the schedule claims {reserved.retries} retries a run, but has {min(retries)}")


def _settled(allocator: Allocator, sizes: IntArray, before: IntArray, run: IntArray) -> int:
    """Return the bytes reserved once a run reserves no more, whichever way new segments lie."""
    most = 0
    for is_downwards in (False, True):
        reserved, events = -1, np.concatenate([before, run])
        for _ in range(kernel.MOST_RUNS):
            found = allocator.replay(events, sizes, is_downwards=is_downwards).peak
            if found == reserved:
                break
            reserved, events = found, np.concatenate([events, run])
        else:
            raise ScheduleError(f"with {allocator} {ENDLESS}")
        most = max(most, reserved)
    return most
