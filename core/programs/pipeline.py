"""From a program to the same one in another order: the stages of `apply`, `measure` and `optimize`, each done once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import ScheduleError, UsageError
from ..files.atomic import check_writable, write_atomically
from ..problem.problem import Problem
from ..report.result import Result
from ..search.problem_settings import ProblemSettings
from .imported import with_imported
from .measurement import Measurement, OnRun
from .memory_limit import check_limit
from .options import ImportOptions
from .runners import Note, check_output, load_runner, repeats_ops
from .schedule_order import check_order, one_device_order, read_order, read_program_schedule

SEARCHING = "searching for an order"


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Observer:
    """Who is told how a job goes.

    Parameters
    ----------
    note
        Called with each remark worth showing.
    on_stage
        Told the number of a stage that begins, how many there are, and what is done in it.
    on_run
        Told before each measured run.
    """

    note: Note = _nothing
    on_stage: Callable[[int, int, str], None] = _nothing
    on_run: OnRun = _nothing


@dataclass(frozen=True)
class Job:
    """What `optimize` does.

    Parameters
    ----------
    model
        An `.onnx` or `.pt2` file, or `module:function`.
    output
        The file to write, `.onnx` or `.pt2` as the model is.
    options
        How the model is imported, its costs included.
    settings
        The memory limit on the one device, and whether ops may run again; by default neither.
    schedule
        Where to write the schedule, if anywhere.
    repeats
        Measured runs of each order; 0 measures nothing.
    overwrite
        Whether the output may be the model itself.

    Raises
    ------
    UsageError, FormatError
        If a file could not be written, or is the model or another of them.
    """

    model: str
    output: str
    options: ImportOptions = field(default_factory=lambda: ImportOptions(costs="measured"))
    settings: ProblemSettings = field(default_factory=ProblemSettings)
    schedule: str | None = None
    repeats: int = 5
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_output(self.model, self.output, overwrite=self.overwrite)
        if self.settings.recompute and not repeats_ops(self.model):
            raise UsageError(f"{self.model}: an ONNX file runs each node once; leave out --recompute")
        if self.schedule is not None:
            if self.schedule in (self.model, self.output):
                raise UsageError(f"{self.schedule}: is the model or the output; name another file for the schedule")
            check_writable(self.schedule)


@dataclass(frozen=True)
class Optimized:
    """What came of it.

    Parameters
    ----------
    result
        The verified schedule with its bound.
    rows
        What was measured: program order, then the order found; empty if nothing was.
    is_interrupted
        Whether Ctrl-C ended the search or the runs; what was written is right all the same.
    """

    result: Result
    rows: tuple[Measurement, ...]
    is_interrupted: bool


def optimize(job: Job, solve: Callable[[Problem], Result], observer: Observer) -> Optimized:
    """Import a program, find an order of less peak memory, run both orders, and write the program in the new one.

    The program is loaded and its ops are measured once. Nothing is written before every stage has succeeded.

    Parameters
    ----------
    job
        What to do.
    solve
        Solves the problem that the program poses; where it is interrupted, nothing is measured.
    observer
        Who is told how it goes.

    Raises
    ------
    FormatError, ProgramError, UsageError
        If the model cannot be read or run, or has no use for an option.
    ScheduleError
        If no order was found that keeps the memory limit, or results differ.
    """
    measures_ops = job.options.costs == "measured"
    stages = iter(range(1, 6))
    total = 3 + measures_ops + (job.repeats > 0)

    def stage(what: str) -> None:
        observer.on_stage(next(stages), total, what)

    stage("importing the program")
    runner = load_runner(job.model, job.options, observer.note)
    if measures_ops:
        stage("measuring what each op takes")
    graph = with_imported(runner.graph(job.options.costs, observer.note), job.model, job.options)
    stage(SEARCHING)
    result = solve(job.settings.problem(graph))
    remedy = "let ops run again with --recompute" if repeats_ops(job.model) else ""
    check_limit(job.model, result, remedy=remedy, consequence="nothing was written")
    order = result.schedule.op_order().tolist()
    rows: list[Measurement] = []
    is_interrupted = result.status == "interrupted"
    if job.repeats and not is_interrupted:
        stage("running both orders")
        rows = runner.measure(graph, {result.method: order}, job.repeats, observer.note, observer.on_run)
        rows = _with_limits(rows, {result.method: result.problem.memory_limit})
        is_interrupted = not is_complete(rows, 2, job.repeats)
        check_equal(job.model, rows)
    stage("comparing results, writing the program")
    runner.write(graph, order, job.output, observer.note)
    if job.schedule is not None:
        write_atomically(job.schedule, result.json())
    return Optimized(result, tuple(rows), is_interrupted)


def apply(
    model: str,
    schedule: str,
    output: str,
    options: ImportOptions,
    note: Note,
    *,
    force: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a model in the order of a schedule, after a run that gave bitwise equal results.

    Parameters
    ----------
    model
        An `.onnx` or `.pt2` file, or `module:function`.
    schedule
        Schedule file of the model's graph.
    output
        The file to write, `.onnx` or `.pt2` as the model is.
    options
        As the model was imported.
    note
        Called with each remark worth showing.
    force
        Whether to take a schedule that says that it was made for another graph.
    overwrite
        Whether the output may be the model itself.

    Raises
    ------
    FormatError, ProgramError, UsageError
        If the model or the schedule cannot be read, the model cannot be run, or the output cannot be written.
    ScheduleError
        If the schedule is no order of this program, or its results would differ; then nothing is written.
    """
    check_output(model, output, overwrite=overwrite)
    runner = load_runner(model, options, note)
    graph = runner.graph("roofline", _nothing)
    runner.write(graph, read_order(schedule, graph, force=force), output, note)


def measure(
    model: str,
    schedules: Sequence[str],
    repeats: int,
    options: ImportOptions,
    observer: Observer,
    *,
    force: bool = False,
) -> list[Measurement]:
    """Measure a model in program order, and in the order of each schedule.

    Parameters
    ----------
    model
        An `.onnx` or `.pt2` file, or `module:function`.
    schedules
        Schedule files of the model's graph.
    repeats
        Rounds; in each every order runs in a process of its own.
    options
        As the model was imported; costs are measured whatever they say.
    observer
        Who is told how it goes.
    force
        Whether to take schedules that say that they were made for another graph.

    Returns
    -------
    list
        Program order first, then the schedules; only what ran if Ctrl-C ended it.

    Raises
    ------
    FormatError, ProgramError, UsageError
        If the model or a schedule cannot be read, or a run fails.
    ScheduleError
        If a schedule is not one of this program.
    """
    observer.on_stage(1, 3, "importing the program")
    runner = load_runner(model, options, observer.note)
    graph = runner.graph("roofline", observer.note)
    read = {path: read_program_schedule(path, graph, force=force) for path in schedules}
    orders = {path: one_device_order(path, loaded, graph) for path, loaded in read.items()}
    for order in orders.values():
        check_order(graph, order)
    observer.on_stage(2, 3, "measuring what each op takes")
    measured = runner.graph("measured", _nothing)
    observer.on_stage(3, 3, f"running {len(orders) + 1} order{'s' * bool(orders)}")
    rows = runner.measure(measured, orders, repeats, observer.note, observer.on_run)
    return _with_limits(rows, {path: loaded.problem.memory_limit for path, loaded in read.items()})


def is_complete(rows: Sequence[Measurement], orders: int, repeats: int) -> bool:
    """Whether every order ran as often as it should, so that nothing was interrupted."""
    return len(rows) == orders and all(len(row.microseconds) == repeats for row in rows)


def _with_limits(rows: Sequence[Measurement], limits: Mapping[str, int | None]) -> list[Measurement]:
    """Return the rows with the memory limits that their orders were to keep."""
    return [replace(row, memory_limit=limits.get(row.order)) for row in rows]


def check_equal(model: str, rows: Sequence[Measurement]) -> None:
    """Raise `ScheduleError` if results differ from run to run or from program order."""
    for row in rows:
        if not row.is_equal:
            raise ScheduleError(
                f"{model}: the results of {row.order} differ from run to run or from program order; nothing was written"
            )
