"""One order for a range of sizes: its peak and a bound at every size, and `optimize` with `--shape batch=1..32`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..base.arrays import IntArray
from ..base.errors import ProgramError, UsageError
from ..bounds.bounds import lower_bound
from ..files.atomic import write_atomically
from ..graph.graph import CostGraph
from ..model.simulator import simulate
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..report.result import Result
from .importers import with_imported
from .options import size_text
from .pipeline import SEARCHING, Job, Observer, check_runs
from .runtime import Measurement, Runtime, load_runtime

CLOSE = 0.03
"""An order this near to each size's own bound is good at all of them."""
MOST_SIZES = 128
_SAMPLES = 6
_SCALE = 1 << 40
LARGEST = 2**63 - 1

Solve = Callable[[Problem], Result]


class SizedGraph:
    """The graph of a program as a function of one size, imported at each only where bytes are no linear form of it."""

    def __init__(self, read: Callable[[int], CostGraph], sizes: range) -> None:
        self._read, self.sizes, self.imported = read, sizes, dict[int, CostGraph]()
        self._between = cache(self._between_ends)
        self.low, self.high = self.at(sizes[0]), self.at(sizes[-1])
        self.is_linear = self.is_same_kind(self.low) and self.agrees(sizes[len(sizes) // 2])

    @property
    def examined(self) -> list[int]:
        """The sizes at which peaks are told: all that the range has, up to `MOST_SIZES` of them, if it is linear."""
        count = min(len(self.sizes), MOST_SIZES if self.is_linear else _SAMPLES)
        return sorted({self.sizes[round(i * (len(self.sizes) - 1) / (count - 1))] for i in range(count)})

    def at(self, size: int) -> CostGraph:
        """Return the graph at a size, imported."""
        if size not in self.imported:
            graph = self._read(size)
            other = next(iter(self.imported.values()), graph)
            if graph.op_names != other.op_names:
                raise ProgramError(f"{graph.name}: it has other ops at size {size}; give a range in which it has not")
            self.imported[size] = graph
        return self.imported[size]

    def near(self, size: int) -> CostGraph:
        """Return the graph at a size, not imported where the sizes are linear."""
        return self._between(size) if self.is_linear and size not in self.imported else self.at(size)

    def agrees(self, size: int) -> bool:
        """Whether an import gives what the linear forms say."""
        true, guess = self.at(size), self._between(size)
        pairs = ((true.tensor_size, guess.tensor_size), (true.persistent, guess.persistent))
        return self.is_same_kind(true) and all(np.array_equal(one, other) for one, other in pairs)

    def is_same_kind(self, graph: CostGraph) -> bool:
        """Whether tensors are views of the same ones, and kept, as at the largest size."""
        same = ("alias_of", "is_final", "output_ptr", "read_ptr", "read_tensor")
        return all(np.array_equal(getattr(graph, name), getattr(self.high, name)) for name in same)

    def _between_ends(self, size: int) -> CostGraph:
        first, last = self.sizes[0], self.sizes[-1]
        ends = {name: (getattr(self.low, name), getattr(self.high, name)) for name in _SIZES}
        between = {name: low + (high - low) * (size - first) // (last - first) for name, (low, high) in ends.items()}
        return replace(self.high, **between)


_SIZES = ("tensor_size", "persistent", "workspace")


@dataclass(frozen=True)
class AtSize:
    """One order at one size."""

    size: int
    # peak bytes: in program order, in this order, and a lower bound
    program_order: int
    peak: int
    bound: int

    @property
    def gap(self) -> float:
        """How far the peak is above the bound, as a share of that."""
        return self.peak / self.bound - 1 if self.bound else 0.0


@dataclass(frozen=True)
class RangePlan:
    """One order for a range of sizes."""

    order: tuple[int, ...]
    rows: tuple[AtSize, ...]  # at the smallest size, the worst between, the largest
    examined: int  # sizes examined; all of the range if `is_whole`
    is_linear: bool  # sizes between those imported follow from linear forms
    is_whole: bool
    is_interrupted: bool
    method: str  # that solved single sizes

    @property
    def worst_gap(self) -> float:
        """The largest gap of all sizes."""
        return max(row.gap for row in self.rows)

    @property
    def is_close(self) -> bool:
        """Whether the order is within `CLOSE` of the bound at every size."""
        return self.worst_gap <= CLOSE


class _Search:
    """The orders and bounds that the problems of single sizes gave."""

    def __init__(self, graph: SizedGraph, solve: Solve) -> None:
        self.graph, self._solve = graph, solve
        self._first = tuple(graph.high.input_order.tolist())
        self.orders, self.bounds = [self._first], dict[int, int]()
        self._peak = cache(lambda size, order: peak_of(graph.near(size), order))
        self.is_interrupted = False
        self.method = ""

    def run(self, size: int) -> None:
        """Solve one size, imported, and the mean of all so far, each as a share of its bound: an order between them."""
        self.bounds[size] = int(self._add(self.graph.at(size)).lower_bound)
        if len(self.bounds) < 2:
            return
        weights = {size: _SCALE / len(self.bounds) / max(1, bound) for size, bound in self.bounds.items()}
        if not all(self.graph.is_same_kind(self.graph.at(size)) for size in weights):
            return
        graphs = [(weight, self.graph.at(size)) for size, weight in weights.items()]
        totals = {name: sum(weight * getattr(graph, name) for weight, graph in graphs) for name in _SIZES}
        means: dict[str, Any] = {name: np.floor(total).astype(np.int64) for name, total in totals.items()}
        self._add(replace(self.graph.high, **means))

    def _bound(self, size: int) -> int:
        """Return what no order is below at a size: solved there, or by needing no search, or by other sizes' bounds."""
        if size in self.bounds:
            return self.bounds[size]
        graph = self.graph.near(size)
        best = int(lower_bound(Problem(graph)))
        for other, bound in self.bounds.items():
            part = (size, other) if other > size else (1, 1)  # a larger one's tensors, scaled down, or a smaller one's
            if _covers(graph, self.graph.at(other), *part):
                best = max(best, bound * part[0] // part[1])
        return best

    def best(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], list[AtSize]]:
        """Return the order whose worst gap is the least, and what it needs at each size."""
        bounds = {size: self._bound(size) for size in sizes}
        found = []
        for order in dict.fromkeys(self.orders):
            rows = [AtSize(n, self._peak(n, self._first), self._peak(n, order), bounds[n]) for n in sizes]
            found.append((max(row.gap for row in rows), sum(row.gap for row in rows), order, rows))
        _, _, order, rows = min(found, key=lambda entry: entry[:2])
        return order, rows

    def _add(self, graph: CostGraph) -> Result:
        result = self._solve(Problem(graph))
        self.method = self.method or result.method
        self.is_interrupted |= result.status == "interrupted"
        self.orders.append(tuple(result.schedule.op_order().tolist()))
        return result


def plan_range(graph: SizedGraph, solve: Solve) -> RangePlan:
    """Find the order whose worst gap to the bounds of a range of sizes is the least.

    Both ends are solved, then the size at which the best order so far has the largest gap, and the means of all.
    """
    sizes = graph.examined
    search = _Search(graph, solve)
    for size in (sizes[0], sizes[-1]):
        search.run(size)
    while len(search.bounds) < _SAMPLES and not search.is_interrupted:
        order, rows = search.best(sizes)
        worst = max(rows, key=lambda row: row.gap)
        if worst.size in search.bounds or worst.gap <= 0:
            break
        if graph.is_linear and not graph.agrees(worst.size):
            graph.is_linear = False
            sizes = graph.examined
        search.run(worst.size)
    sizes = sorted({*sizes, *search.bounds})
    order, rows = search.best(sizes)
    worst_between = sorted(rows[1:-1], key=lambda row: row.gap, reverse=True)[:1]
    return RangePlan(
        order,
        (rows[0], *worst_between, rows[-1]),
        len(sizes),
        graph.is_linear,
        len(sizes) == len(graph.sizes),
        search.is_interrupted,
        search.method,
    )


def peak_of(graph: CostGraph, order: Sequence[int]) -> int:
    """Return the peak of an order on one device, bytes."""
    return int(simulate(Problem(graph), Schedule.single_device(np.array(order))).peak)


def _covers(graph: CostGraph, other: CostGraph, numerator: int, denominator: int) -> bool:
    """Whether no size of a graph is below a fraction of that of another one of the same kind."""

    def is_above(mine: IntArray, its: IntArray) -> bool:
        if max(mine.max(), its.max()) >= LARGEST // max(numerator, denominator):
            return False
        return bool((mine * denominator >= its * numerator).all())

    same = all(np.array_equal(getattr(graph, name), getattr(other, name)) for name in ("alias_of", "is_final"))
    return same and all(is_above(getattr(graph, name), getattr(other, name)) for name in _SIZES)


@dataclass(frozen=True)
class OptimizedRange:
    """What came of it."""

    dimension: str
    plan: RangePlan
    source: str  # as of `Optimized`
    # at both ends, by size: program order, then the order found
    measured: Mapping[int, tuple[Measurement, ...]]


def range_in(job: Job) -> tuple[str, range] | None:
    """Return the one dimension of a job that has a range of sizes, and that; None if none has."""
    ranges = [(name, given) for name, given in job.options.shapes.items() if isinstance(given, range)]
    if not ranges:
        return None
    name, sizes = ranges[0]
    if len(ranges) > 1:
        raise UsageError(f"--shape {ranges[1][0]}={size_text(ranges[1][1])}: '{name}' has a range already; give one")
    if job.settings.recompute or job.settings.memory_limit:
        raise UsageError(f"--shape {name}={size_text(sizes)}: a memory limit is kept at one size; leave one out")
    return name, sizes


def optimize_range(job: Job, solve: Callable[[Problem], Result], observer: Observer) -> OptimizedRange:
    """Import a program at several sizes, find one order for all of a range, run it at both ends, and write it."""
    found = range_in(job)
    if found is None:
        raise UsageError(f"{job.model}: no shape has a range")
    name, sizes = found
    runtimes: dict[int, Runtime[Any]] = {}

    def read(size: int) -> CostGraph:
        options = replace(job.options, shapes={**job.options.shapes, name: size})
        runtimes[size] = load_runtime(job.model, options, observer.note if not runtimes else lambda text: None)
        return with_imported(runtimes[size].graph(options.costs, lambda text: None), job.model, options)

    total = 3 + (job.repeats > 0)
    observer.on_stage(1, total, f"importing the program at {name} {sizes[0]} and {sizes[-1]}")
    graph = SizedGraph(read, sizes)
    observer.on_stage(2, total, SEARCHING)
    plan = plan_range(graph, solve)
    measured: dict[int, tuple[Measurement, ...]] = {}
    ends = (sizes[0], sizes[-1])
    if job.repeats and not plan.is_interrupted:
        observer.on_stage(3, total, f"running both orders at {name} {ends[0]} and {ends[1]}")
        for size in ends:
            orders = {plan.method: list(plan.order)}
            rows = runtimes[size].measure(graph.at(size), orders, job.repeats, observer.note, observer.on_run)
            check_runs(f"{job.model} at {name}={size}", rows)
            measured[size] = tuple(rows)
    observer.on_stage(total, total, "comparing results, writing the program")
    for size in ends if not measured else ends[1:]:  # each compares results before it writes
        source = runtimes[size].write(graph.at(size), list(plan.order), job.output, observer.note)
    if job.schedule is not None:
        write_atomically(job.schedule, "".join(f"{graph.high.op_names[op]}\n" for op in plan.order))
    return OptimizedRange(name, plan, source, measured)
