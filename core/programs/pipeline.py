"""Stages of `apply`, `measure` and `optimize`, the check of a memory limit, and one order for a range of sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from ..base.arrays import INT64_MAX
from ..base.errors import ProgramError, ScheduleError, UsageError
from ..base.options import spelled
from ..base.units import format_bytes, written_apart
from ..bounds.bounds import lower_bound
from ..bounds.recompute_bounds import least_recomputed
from ..files.atomic import check_apart, check_suffix, check_writable, write_atomically
from ..files.schedule_json import order_text
from ..graph.graph import CostGraph
from ..model.unrolled import repeated_ops
from ..problem.problem import Problem
from ..report.explanation import least_peak
from ..report.result import IN_INPUT_ORDER, OPENING, Result
from .importers import with_imported
from .options import ImportOptions, OptimizeOptions, size_text
from .runtime import Measurement, Note, OnRun, Runtime, check_order, check_output, cost_of, load_runtime, read_order

SEARCHING = "searching for an order"
Solve = Callable[[Problem], Result]


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Observer:
    """Who is told how a job goes."""

    note: Note = _nothing  # each remark worth showing
    # number of the stage that begins, how many there are, and its name
    on_stage: Callable[[int, int, str], None] = _nothing
    on_run: OnRun = _nothing  # before each measured run


@dataclass(frozen=True)
class Job:
    """The work of `optimize`."""

    model: str  # a file, or `module:function`
    output: str  # a file of the model's kind
    options: ImportOptions = field(default_factory=lambda: ImportOptions(costs="measured"))
    # memory limit on the one device, and whether ops may run again
    settings: OptimizeOptions = OptimizeOptions()
    schedule: str | None = None  # file to write the schedule to
    repeats: int = 5  # measured runs of each order
    overwrite: bool = False  # the output may be the model itself

    def __post_init__(self) -> None:
        check_output(self.model, self.output, overwrite=self.overwrite)
        if self.schedule is not None:
            check_apart([self.schedule], [self.model, self.output])
            check_writable(self.schedule)


@dataclass(frozen=True)
class Optimized:
    """Its outcome."""

    result: Result
    rows: tuple[Measurement, ...]  # program order, then the order found; empty if nothing was measured
    source: str  # what the results are bitwise those of; see `Runtime.source`
    is_interrupted: bool  # Ctrl-C ended the search or the runs; what was written is right all the same


def optimize(job: Job, solve: Solve, observer: Observer) -> Optimized:
    """Import a program, find an order of less peak memory, run both orders, and write the program in the new one.

    The program is loaded and its ops are measured once. Nothing is written before every stage has succeeded.
    """
    measures_ops = job.options.costs == "measured"
    stages = iter(range(1, 6))
    total = 3 + measures_ops + (job.repeats > 0)

    def stage(what: str) -> None:
        observer.on_stage(next(stages), total, what)

    stage("importing the program")
    runtime = load_runtime(job.model, job.options, observer.note)
    runtime.check_file()
    if measures_ops:
        stage("measuring what each op takes")
    graph = with_imported(runtime.graph(job.options.costs, observer.note), job.model, job.options)
    stage(SEARCHING)
    result = solve(job.settings.problem(graph))
    remedy = f"let ops run again with {spelled('recompute', True)}"
    check_limit(job.model, result, remedy=remedy, consequence="nothing was written")
    order = result.schedule.op_order().tolist()
    rows: list[Measurement] = []
    is_interrupted = result.status == "interrupted"
    if job.repeats and not is_interrupted:
        stage("running both orders")
        limits = {result.method: result.problem.memory_limit}
        rows = runtime.measure(graph, {result.method: order}, job.repeats, observer.note, observer.on_run, limits)
        is_interrupted = len(rows) < 2 or any(len(row.microseconds) < job.repeats for row in rows)
        check_runs(job.model, rows)
    stage("comparing results, writing the program")
    source = runtime.write(graph, order, job.output, observer.note)
    if job.schedule is not None:
        write_atomically(job.schedule, result.json())
    return Optimized(result, tuple(rows), source, is_interrupted)


def apply(
    model: str,
    schedule: str,
    output: str,
    options: ImportOptions,
    note: Note,
    *,
    force: bool = False,
    overwrite: bool = False,
    is_header: bool = False,
) -> str:
    """Write a model in the order of a schedule, or its arena; return the model with bitwise equal results."""
    check_output(model, output, overwrite=overwrite, is_header=is_header)
    runtime = load_runtime(model, options, note)
    graph = runtime.graph("roofline", _nothing)
    order, loaded = read_order(schedule, graph, force=force)
    source = runtime.write(graph, order, output, note)
    if loaded.reserved is not None and loaded.reserved.opening_block:
        note(f"{schedule}: {OPENING}{loaded.reserved.opening}")
    return source


def measure(
    model: str,
    schedules: Sequence[str],
    repeats: int,
    options: ImportOptions,
    observer: Observer,
    *,
    force: bool = False,
    snapshot: str | None = None,
) -> list[Measurement]:
    """Measure a model in program order and then of each schedule; Ctrl-C leaves only finished runs.

    A snapshot of the CUDA allocator is written of the last order where that is asked for.
    """
    if snapshot is not None:
        if options.device != "cuda" or not _has_cuda():
            raise UsageError(f"{spelled('snapshot')} is of a GPU's allocator; give --device cuda, where there is CUDA")
        check_suffix(snapshot, {".pickle": "a snapshot"})
        check_writable(snapshot)
    observer.on_stage(1, 3, "importing the program")
    runtime = load_runtime(model, options, observer.note)
    graph = runtime.graph("roofline", observer.note)
    read = {path: read_order(path, graph, force=force) for path in schedules}
    orders = {path: order for path, (order, _) in read.items()}
    for order in orders.values():
        check_order(graph, order)
    observer.on_stage(2, 3, "measuring what each op takes")
    measured = runtime.graph("measured", _nothing)
    observer.on_stage(3, 3, f"running {len(orders) + 1} order{'s' * bool(orders)}")
    limits = {path: loaded.problem.memory_limit for path, (_, loaded) in read.items()}
    rows = runtime.measure(measured, orders, repeats, observer.note, observer.on_run, limits)
    if snapshot is not None:
        runtime.record(measured, [None, *orders.values()][-1], snapshot)
    return rows


def _has_cuda() -> bool:
    """Whether PyTorch finds a GPU."""
    from torch import cuda

    return cuda.is_available()


def check_runs(model: str, rows: Sequence[Measurement]) -> None:
    """Raise `ScheduleError` if results differ from run to run or from program order."""
    for row in (row for row in rows if not row.is_equal):
        what = f"the results of {row.order} differ from run to run or from program order"
        raise ScheduleError(f"{model}: {what}; nothing was written")


def check_limit(name: str, result: Result, *, remedy: str = "", consequence: str = "") -> None:
    """Refuse a schedule that does not keep the memory limit."""
    limit = result.problem.memory_limit
    if result.is_feasible or limit is None:
        return
    least, again = least_peak(result.problem, result.lower_bound if result.is_proven_infeasible else 0), 0
    if is_order := not result.problem.recompute and remedy != "":
        again, *_ = least_recomputed(result.problem.graph, result.schedule.op_order(), result.simulation.step_memory)
    allowed, needed, found, lowest = written_apart(limit, least, result.limited_peak, again)
    if result.is_proven_infeasible and (result.problem.recompute or result.reserved is not None):
        reason = result.notes[-1]
    elif least > limit:
        reason = f"no {'schedule' if result.problem.recompute else 'order'} needs less than {needed}"
    else:
        reason = f"the least that was found is {found}"
    if is_order:
        reason += f"; {remedy}" if again <= limit else f", and not less than {lowest} if ops run again"
    text = f"{name}: the memory limit of {allowed} is not kept: {reason}"
    raise ScheduleError("; ".join(filter(None, (text, consequence))))


def reserved_sentence(result: Result) -> str:
    """Say what an allocator reserves, and the line to write for less; nothing without one."""
    if (reserved := result.reserved) is None:
        return ""
    sizes = (result.reserved_otherwise[IN_INPUT_ORDER], reserved.peak, reserved.bound, reserved.opening_block)
    before, after, bound, block = map(format_bytes, sizes)
    opened = f", with an opening block of {block}" * bool(reserved.opening_block)
    text = f"{reserved.allocator} reserves {before} -> {after} (bound {bound}){opened}"
    return "; ".join((text, *(note for note in result.notes if note.startswith(OPENING)))) + "."


def limit_sentence(result: Result) -> str:
    """Say how a schedule keeps its memory limit, if it has one: by its order, or by repeated runs for how much time."""
    problem = result.problem
    if problem.memory_limit is None or not result.is_feasible:
        return ""
    limit = f"the memory limit of {format_bytes(problem.memory_limit)}"
    if len(result.schedule) == problem.graph.num_ops:
        return f"The order alone keeps {limit}: nothing runs again."
    again = len(repeated_ops(problem.graph, result.schedule.op_order().tolist()))
    added = f"+{100 * result.added_share:.2f}% predicted time"
    bound = float(problem.op_times.sum())
    if result.lower_bound > bound:
        added += f", at least +{100 * (result.lower_bound / bound - 1):.2f}% by the bound"
    return f"{again:,} of {problem.graph.num_ops:,} ops run again to keep {limit}: {added}."


CLOSE = 0.03  # an order this near to each size's own bound is good at all of them
MOST_SIZES = 128
_SAMPLES = 6
_SCALE = 1 << 40


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
                raise ProgramError(f"{graph.name}: its ops differ at size {size}; give a range with the same ops")
            self.imported[size] = graph
        return self.imported[size]

    def near(self, size: int) -> CostGraph:
        """Return the graph at a size, not imported where the sizes are linear."""
        return self._between(size) if self.is_linear and size not in self.imported else self.at(size)

    def agrees(self, size: int) -> bool:
        """Whether an import equals the values of the linear forms."""
        true, guess = self.at(size), self._between(size)
        return self.is_same_kind(true) and _are_alike(true, guess, "tensor_size", "persistent")

    def is_same_kind(self, graph: CostGraph) -> bool:
        """Whether tensors are views of the same ones, and kept, as at the largest size."""
        return _are_alike(graph, self.high, "alias_of", "is_final", "output_ptr", "read_ptr", "read_tensor")

    def _between_ends(self, size: int) -> CostGraph:
        first, last = self.sizes[0], self.sizes[-1]
        ends = {name: (getattr(self.low, name), getattr(self.high, name)) for name in _SIZES}
        between = {name: low + (high - low) * (size - first) // (last - first) for name, (low, high) in ends.items()}
        return replace(self.high, **between)


_SIZES = ("tensor_size", "persistent", "workspace")


def _are_alike(one: CostGraph, other: CostGraph, *names: str) -> bool:
    """Whether two graphs have equal arrays of these names."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


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
    source: str = ""  # as of `Optimized`
    # at both ends, by size: program order, then the order found
    measured: Mapping[int, tuple[Measurement, ...]] = field(default_factory=dict)

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
        self._peak = cache(lambda size, order: cost_of(graph.near(size), order).peak)
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
        """Return the bound of all orders at a size: solved there, or by needing no search, or by other bounds."""
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
        """Return the order whose worst gap is the least, and its need at each size."""
        bounds = {size: self._bound(size) for size in sizes}
        plans = {
            order: [AtSize(n, self._peak(n, self._first), self._peak(n, order), bounds[n]) for n in sizes]
            for order in self.orders
        }
        gaps = {order: [row.gap for row in rows] for order, rows in plans.items()}
        order = min(plans, key=lambda order: (max(gaps[order]), sum(gaps[order])))
        return order, plans[order]

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
    sizes, search = graph.examined, _Search(graph, solve)
    for size in (sizes[0], sizes[-1]):
        search.run(size)
    while len(search.bounds) < _SAMPLES and not search.is_interrupted:
        _, rows = search.best(sizes)
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
    told, is_whole = (rows[0], *worst_between, rows[-1]), len(sizes) == len(graph.sizes)
    return RangePlan(order, told, len(sizes), graph.is_linear, is_whole, search.is_interrupted, search.method)


def _covers(graph: CostGraph, other: CostGraph, numerator: int, denominator: int) -> bool:
    """Whether no size of a graph is below a fraction of that of another one of the same kind."""
    same = _are_alike(graph, other, "alias_of", "is_final")
    pairs = [(getattr(graph, name), getattr(other, name)) for name in _SIZES]
    is_small = all(max(mine.max(), its.max()) < INT64_MAX // max(numerator, denominator) for mine, its in pairs)
    return same and is_small and all((mine * denominator >= its * numerator).all() for mine, its in pairs)


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


def optimize_range(job: Job, name: str, sizes: range, solve: Solve, observer: Observer) -> RangePlan:
    """Import a program at sizes of a dimension, find one order for a range of them, run it at both ends, write it."""
    runtimes: dict[int, Runtime[Any]] = {}

    def read(size: int) -> CostGraph:
        options = replace(job.options, shapes={**job.options.shapes, name: size})
        runtimes[size] = load_runtime(job.model, options, _nothing if runtimes else observer.note)
        return with_imported(runtimes[size].graph(options.costs, _nothing), job.model, options)

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
        write_atomically(job.schedule, order_text([graph.high.op_names[op] for op in plan.order]))
    return replace(plan, source=source, measured=measured)
