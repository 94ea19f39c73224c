"""`schedopt solve`: the main job, a graph in, a verified schedule out."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.search.registry import DEFAULT_METHOD, FLAG_CHOICES, FLAGS
from ..options import (
    AddressesFlag,
    AlignOption,
    BandwidthOption,
    DevicesOption,
    EvaluationsOption,
    ForceFlag,
    GraphArgument,
    JobsOption,
    JsonFlag,
    LatencyOption,
    MachineOption,
    MaxOverheadOption,
    MemoryLimitOption,
    MethodOption,
    OpTimesOption,
    PinsOption,
    QuietFlag,
    RecomputeFlag,
    ReplicateFlag,
    SeedOption,
    TaskOption,
    TimeLimitOption,
    remark_bare_bytes,
)

if TYPE_CHECKING:
    from ...core.problem.problem import Problem
    from ...core.problem.schedule import Schedule


_LEARNED = "Parameters of some methods"


def _choices(flag: str) -> Callable[[], list[str]]:
    return lambda: list(FLAG_CHOICES[flag])


class OutputFormat(str, enum.Enum):
    """What `solve` prints."""

    table = "table"
    order = "order"
    json = "json"


def solve(
    graph: GraphArgument,
    method: MethodOption = DEFAULT_METHOD,
    decoder: Annotated[
        str | None,
        typer.Option("--decoder", help=FLAGS["decoder"], rich_help_panel=_LEARNED, autocompletion=_choices("decoder")),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option("--decode", help=FLAGS["decode"], rich_help_panel=_LEARNED, autocompletion=_choices("decode")),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option("--width", help=FLAGS["width"], rich_help_panel=_LEARNED),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", help=FLAGS["weights"], rich_help_panel=_LEARNED),
    ] = None,
    task: TaskOption = "memory",
    devices: DevicesOption = None,
    memory_limit: MemoryLimitOption = None,
    recompute: RecomputeFlag = False,
    max_overhead: MaxOverheadOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = "0",
    machine: MachineOption = None,
    op_times: OpTimesOption = None,
    pins: PinsOption = None,
    replicate: ReplicateFlag = False,
    evaluations: EvaluationsOption = None,
    time_limit: TimeLimitOption = None,
    addresses: AddressesFlag = False,
    align: AlignOption = None,
    seed: SeedOption = 0,
    jobs: JobsOption = 1,
    initial: Annotated[
        str | None,
        typer.Option("--initial", help="Schedule to start from; the result is never worse. (any method that searches)"),
    ] = None,
    force: ForceFlag = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the schedule as JSON to this file."),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot", help="Draw the schedule beside the input order: .png, .svg or .pdf, .html page, .json trace."
        ),
    ] = None,
    format: Annotated[OutputFormat, typer.Option("--format", help="What to print on standard output.")] = (
        OutputFormat.table
    ),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Schedule a graph for least peak memory or least time, and verify the schedule."""
    from ...core.addresses.alignment import alignment_of
    from ...core.base.units import parse_seconds
    from ...core.files.atomic import check_writable, write_atomically
    from ...core.programs.reading import read_any
    from ...core.report.plots.draw import check_target
    from ...core.search.method_spec import parse_method
    from ...core.search.problem_settings import OnMachine, ProblemSettings, Recompute, problem_settings
    from ..console import Talk, show, tell, write
    from ..progress import run_with_progress
    from ..reports.solve import draw_result, remark

    talk = Talk(quiet)
    remark_bare_bytes(talk, memory_limit)
    flags = {"decoder": decoder, "decode": decode, "width": None if width is None else str(width), "weights": weights}
    spec = parse_method(method, **flags)
    again = Recompute(recompute, max_overhead)
    on = OnMachine(machine, op_times, pins is not None, replicate)
    settings = problem_settings(task, devices, memory_limit, bandwidth, latency, [spec.name], again, on)
    alignment = alignment_of(addresses, align)
    seconds = None if time_limit is None else parse_seconds(time_limit)
    if output is not None:
        check_writable(output)
    if plot is not None:
        check_target(plot)
    problem = ProblemSettings(**settings).problem(read_any(graph, talk.note))
    start = _read_initial(initial, problem, force)
    budget = {"evaluations": evaluations, "time_limit": seconds, "alignment": alignment}
    result = run_with_progress(talk, problem, spec, **budget, seed=seed, jobs=jobs, initial=start)
    document = result.json()
    if json or format is OutputFormat.json:
        write(document)
    elif format is OutputFormat.order:
        write("".join(f"{name}\n" for name in result.order))
    else:
        show(result.table(), result.title())
        if explanation := result.explain():
            tell(explanation)
    if output is not None:  # before anything more is said, which could fail
        write_atomically(output, document)
    remark(talk, result)
    if output is not None:
        talk.note(f"wrote {output}")
    if plot is not None:
        draw_result(result, plot)
        talk.note(f"wrote {plot}")
    if result.status == "interrupted":
        raise typer.Exit(130)
    if not result.is_feasible:
        raise typer.Exit(1)


def _read_initial(path: str | None, problem: Problem, force: bool) -> Schedule | None:
    if path is None:
        return None
    from ...core.base.errors import UsageError
    from ...core.files.schedule_json import read_schedule

    loaded = read_schedule(path, problem.graph, force=force)
    if loaded.problem.devices > problem.devices:
        raise UsageError(
            f"{path}: the schedule uses {loaded.problem.devices} devices, more than --devices {problem.devices}"
        )
    return loaded.schedule
