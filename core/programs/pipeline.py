"""Stages of `apply`, `measure` and `optimize`, each done once, and the check of a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import ScheduleError, UsageError
from ..base.options import spelled
from ..base.units import format_bytes
from ..bounds.bounds import recomputation_bound
from ..files.atomic import check_writable, write_atomically
from ..model.unrolled import repeated_ops
from ..problem.problem import Problem
from ..report.explanation import least_peak
from ..report.result import Result
from .importers import with_imported
from .measurement import Measurement, OnRun
from .options import ImportOptions, OptimizeOptions
from .runtime import (
    Note,
    check_output,
    load_runtime,
    one_device_order,
    read_order,
    read_program_schedule,
)

SEARCHING = "searching for an order"


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
    """What `optimize` does."""

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
            if self.schedule in (self.model, self.output):
                raise UsageError(f"{self.schedule}: is the model or the output; name another file for the schedule")
            check_writable(self.schedule)


@dataclass(frozen=True)
class Optimized:
    """What came of it."""

    result: Result
    rows: tuple[Measurement, ...]  # program order, then the order found; empty if nothing was measured
    source: str  # what the results are bitwise those of; see `Runtime.source`
    is_interrupted: bool  # Ctrl-C ended the search or the runs; what was written is right all the same


def optimize(job: Job, solve: Callable[[Problem], Result], observer: Observer) -> Optimized:
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
        rows = runtime.measure(graph, {result.method: order}, job.repeats, observer.note, observer.on_run)
        rows = _with_limits(rows, {result.method: result.problem.memory_limit})
        is_interrupted = not is_complete(rows, 2, job.repeats)
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
    """Write a model in the order of a schedule, or its arena; return what the results are bitwise those of."""
    check_output(model, output, overwrite=overwrite, is_header=is_header)
    runtime = load_runtime(model, options, note)
    graph = runtime.graph("roofline", _nothing)
    return runtime.write(graph, read_order(schedule, graph, force=force), output, note)


def measure(
    model: str,
    schedules: Sequence[str],
    repeats: int,
    options: ImportOptions,
    observer: Observer,
    *,
    force: bool = False,
) -> list[Measurement]:
    """Measure a model in program order and then of each schedule; Ctrl-C leaves only what ran."""
    observer.on_stage(1, 3, "importing the program")
    runtime = load_runtime(model, options, observer.note)
    graph = runtime.graph("roofline", observer.note)
    read = {path: read_program_schedule(path, graph, force=force) for path in schedules}
    orders = {path: one_device_order(path, loaded, graph) for path, loaded in read.items()}
    for order in orders.values():
        runtime.check(graph, order)
    observer.on_stage(2, 3, "measuring what each op takes")
    measured = runtime.graph("measured", _nothing)
    observer.on_stage(3, 3, f"running {len(orders) + 1} order{'s' * bool(orders)}")
    rows = runtime.measure(measured, orders, repeats, observer.note, observer.on_run)
    return _with_limits(rows, {path: loaded.problem.memory_limit for path, loaded in read.items()})


def is_complete(rows: Sequence[Measurement], orders: int, repeats: int) -> bool:
    """Whether every order ran as often as it should, so that nothing was interrupted."""
    return len(rows) == orders and all(len(row.microseconds) == repeats for row in rows)


def _with_limits(rows: Sequence[Measurement], limits: Mapping[str, int | None]) -> list[Measurement]:
    """Return the rows with the memory limits that their orders were to keep."""
    return [replace(row, memory_limit=limits.get(row.order)) for row in rows]


def check_runs(model: str, rows: Sequence[Measurement]) -> None:
    """Raise `ScheduleError` if results differ from run to run or from program order."""
    for row in rows:
        if not row.is_equal:
            raise ScheduleError(
                f"{model}: the results of {row.order} differ from run to run or from program order; nothing was written"
            )


def check_limit(name: str, result: Result, *, remedy: str = "", consequence: str = "") -> None:
    """Refuse a schedule that does not keep the memory limit."""
    limit = result.problem.memory_limit
    if result.is_feasible or limit is None:
        return
    least = least_peak(result.problem, result.lower_bound if result.is_proven_infeasible else 0)
    if result.is_proven_infeasible and result.problem.recompute:
        reason = result.notes[-1]
    elif least > limit:
        reason = f"no {'schedule' if result.problem.recompute else 'order'} needs less than {format_bytes(least)}"
    else:
        reason = f"the least that was found is {format_bytes(result.peak_memory)}"
    if not result.problem.recompute and remedy:
        lowest = recomputation_bound(result.problem.graph)[0]
        reason += f"; {remedy}" if lowest <= limit else f", and not less than {format_bytes(lowest)} if ops run again"
    text = f"{name}: the memory limit of {format_bytes(limit)} is not kept: {reason}"
    raise ScheduleError("; ".join(filter(None, (text, consequence))))


def limit_sentence(result: Result) -> str:
    """Say how a schedule keeps the memory limit: by its order alone, or what runs again for how much time.

    Empty without a limit.
    """
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
