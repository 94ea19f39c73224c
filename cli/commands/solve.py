"""`schedopt solve`: the main job, a graph in, a verified schedule out."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..options import (
    BandwidthOption,
    DevicesOption,
    EvaluationsOption,
    ForceFlag,
    GraphArgument,
    JobsOption,
    JsonFlag,
    LatencyOption,
    MemoryLimitOption,
    QuietFlag,
    SeedOption,
    TaskOption,
    TimeLimitOption,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.problem import Problem
    from ...core.solve import Result


class OutputFormat(str, enum.Enum):
    """What `solve` prints."""

    table = "table"
    order = "order"
    json = "json"


def solve(
    graph: GraphArgument,
    method: Annotated[
        str,
        typer.Option("--method", "-m", help="One of `schedopt methods`, with parameters as in brkga:elites=10."),
    ] = "auto",
    decoder: Annotated[
        Optional[str],  # noqa: UP045 - Typer reads it at run time on Python 3.10
        typer.Option("--decoder", help="How brkga makes a schedule of its keys: queue (the paper's) or lazy."),
    ] = None,
    decode: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--decode", help="How topoformer makes orders of priorities: greedy, sample or beam."),
    ] = None,
    width: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--width", help="Orders that topoformer draws, or partial orders in its beam."),
    ] = None,
    weights: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--weights",
            help="Weights for topoformer, regal, gas or idrs. (default: those shipped)",
        ),
    ] = None,
    task: TaskOption = "memory",
    devices: DevicesOption = None,
    memory_limit: MemoryLimitOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = "0",
    evaluations: EvaluationsOption = None,
    time_limit: TimeLimitOption = None,
    seed: SeedOption = 0,
    jobs: JobsOption = 1,
    initial: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--initial", help="Schedule to start from; the result is never worse. (any method that searches)"),
    ] = None,
    force: ForceFlag = False,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", "-o", help="Write the schedule as JSON to this file."),
    ] = None,
    plot: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--plot", help="Draw the schedule beside the input order: .png or .svg, .html page, .json trace."),
    ] = None,
    format: Annotated[OutputFormat, typer.Option("--format", help="What to print on standard output.")] = (
        OutputFormat.table
    ),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Schedule a graph for least peak memory or least time, and verify the schedule."""
    from pathlib import Path

    from ...core.errors import FormatError
    from ...core.files.atomic import write_atomically
    from ...core.files.costgraph import read_graph
    from ...core.plots.draw import check_target
    from ...core.search.registry import parse_method
    from ...core.units import parse_seconds
    from ..console import Talk, show, write
    from ..problem import make_problem, problem_settings
    from ..progress import run_with_progress

    talk = Talk(quiet)
    flags = {"decoder": decoder, "decode": decode, "width": None if width is None else str(width), "weights": weights}
    spec = parse_method(method, **flags)
    settings = problem_settings(task, devices, memory_limit, bandwidth, latency, [spec.name])
    seconds = None if time_limit is None else parse_seconds(time_limit)
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise FormatError(f"{output}: the folder does not exist")
    if plot is not None:
        check_target(plot)
    problem = make_problem(read_graph(graph, talk.note), settings)
    start = _read_initial(initial, problem, force)
    result = run_with_progress(
        talk,
        problem,
        spec,
        evaluations=evaluations,
        time_limit=seconds,
        seed=seed,
        jobs=jobs,
        initial=start,
    )
    from ...core.files.schedule_json import format_document, result_document

    document = format_document(result_document(result))
    if output is not None:
        write_atomically(output, document)
    if plot is not None:
        _draw(result, plot)
    if json or format is OutputFormat.json:
        write(document)
    elif format is OutputFormat.order:
        names = problem.graph.op_names
        write("".join(f"{names[op]}\n" for op in result.schedule.op_order()))
    else:
        ops, tensors = problem.graph.num_ops, problem.graph.num_data_tensors
        show(_summary(result), f"{problem.graph.name}: {ops:,} ops, {tensors:,} tensors")
    _remarks(talk, result)
    if output is not None:
        talk.note(f"wrote {output}")
    if plot is not None:
        talk.note(f"wrote {plot}")
    if result.status == "interrupted":
        raise typer.Exit(130)
    if not result.is_feasible:
        raise typer.Exit(1)


def _read_initial(path: str | None, problem: Problem, force: bool):  # type: ignore[no-untyped-def]
    if path is None:
        return None
    from ...core.errors import UsageError
    from ...core.files.schedule_json import read_schedule

    loaded = read_schedule(path, problem.graph, force=force)
    if loaded.problem.devices > problem.devices:
        raise UsageError(
            f"{path}: the schedule uses {loaded.problem.devices} devices, more than --devices {problem.devices}"
        )
    return loaded.schedule


def _draw(result: Result, target: str) -> None:
    """Draw the result, and the input order beside it unless that is what was asked for."""
    from ...core.costs.timeline import input_timeline, timeline_of
    from ...core.files.atomic import write_atomically
    from ...core.plots.draw import draw

    timelines = [timeline_of(result.method, result.problem, result.schedule)]
    if result.method != "input":
        timelines.insert(0, input_timeline(result.problem.graph))
    write_atomically(target, draw(timelines, target))


def _summary(result: Result) -> Table:
    """Build the table that `solve` prints."""
    from rich.table import Table

    from ...core.solve import reference_value
    from ...core.units import format_bytes, format_microseconds

    problem = result.problem
    what = "peak memory" if problem.task == "memory" else "makespan"
    table = Table()
    table.add_column("")
    table.add_column(what, justify="right")
    table.add_column("against input", justify="right")
    before = reference_value(problem)
    table.add_row("input order, device 0", problem.format_value(before), "")
    table.add_row(
        f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else ""),
        f"[bold]{problem.format_value(result.value)}[/]",
        f"[bold]{_change(result.value, before)}[/]",
    )
    table.add_row("lower bound", problem.format_value(result.lower_bound), _change(result.lower_bound, before))
    table.add_section()
    gap = "none" if result.gap <= 0 else f"{100 * result.gap:.2f}%"
    table.add_row("status", result.status, "" if result.status == "optimal" else f"gap to bound {gap}")
    if problem.task == "memory":
        table.add_row("makespan", format_microseconds(result.simulation.runtime), "")
    else:
        table.add_row("peak memory", format_bytes(result.simulation.peak), "")
    if problem.memory_limit is not None:
        excess = result.simulation.peak - problem.memory_limit
        kept = "kept" if excess <= 0 else f"exceeded by {format_bytes(excess)}"
        table.add_row("memory limit per device", format_bytes(problem.memory_limit), kept)
    if problem.devices > 1:
        _add_devices(table, result)
    table.add_row("evaluations", f"{result.evaluations:,.0f}", "")
    table.add_row("time", f"{result.seconds:.2f} s", "")
    return table


def _add_devices(table: Table, result: Result) -> None:
    from ...core.units import format_bytes, format_microseconds

    schedule = result.schedule
    on_device = [(schedule.items >= 0) & (schedule.targets == d) for d in range(result.problem.devices)]
    for device, (ops, peak) in enumerate(zip(on_device, result.simulation.peak_per_device, strict=True)):
        busy = float(result.problem.graph.runtime[schedule.items[ops]].sum())
        table.add_row(
            f"device {device}: {int(ops.sum()):,} ops", format_bytes(int(peak)), f"busy {format_microseconds(busy)}"
        )
    transfers = int((schedule.items < 0).sum())
    if transfers:
        moved = schedule.items[schedule.items < 0]
        size = int(result.problem.graph.tensor_size[~moved].sum())
        table.add_row("transfers", f"{transfers:,}", format_bytes(size))


def _change(value: float, before: float) -> str:
    if before == 0:
        return "" if value == 0 else "worse"
    return f"{100 * (value / before - 1):+.2f}%"


def _remarks(talk, result: Result) -> None:  # type: ignore[no-untyped-def]
    """Say on standard error what the table cannot."""
    from ...core.search.registry import METHODS
    from ...core.solve import reference_value

    problem = result.problem
    for note in result.notes:
        talk.note(note)
    if problem.task == "runtime" and not problem.graph.runtime.any():
        talk.note(f"{problem.graph.name}: every op has runtime 0, so every schedule takes 0 us")
    elif result.value > reference_value(problem):
        talk.note("the input order is better than what this method found; --method auto never returns worse")
    if not result.is_repeatable:
        remedy = "; --evaluations repeats exactly" if METHODS[result.method].counts_evaluations else ""
        talk.note(f"time ended or steered the search, so the same seed may give another result{remedy}")
    if not result.is_feasible:
        talk.note("no schedule within the memory limit was found; this is the one of least excess")
