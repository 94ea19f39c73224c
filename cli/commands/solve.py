"""`schedopt solve`: the main job, a graph in, a verified schedule out."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from ...core.search.options import SolveOptions
from ...core.search.registry import DEFAULT_METHOD, FLAG_CHOICES, FLAGS
from ..made_options import options_of, with_options
from ..options import ForceFlag, GraphArgument, JsonFlag, MethodOption, QuietFlag, remark_bare_bytes

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
    decoder: str | None = typer.Option(
        None, help=FLAGS["decoder"], rich_help_panel=_LEARNED, autocompletion=_choices("decoder")
    ),
    decode: str | None = typer.Option(
        None, help=FLAGS["decode"], rich_help_panel=_LEARNED, autocompletion=_choices("decode")
    ),
    width: int | None = typer.Option(None, help=FLAGS["width"], rich_help_panel=_LEARNED),
    weights: str | None = typer.Option(None, help=FLAGS["weights"], rich_help_panel=_LEARNED),
    initial: str | None = typer.Option(
        None, help="Schedule to start from; the result is never worse. (any method that searches)"
    ),
    force: ForceFlag = False,
    output: str | None = typer.Option(None, "--output", "-o", help="Write the schedule as JSON to this file."),
    plot: str | None = typer.Option(
        None, help="Draw the schedule beside the input order: .png, .svg or .pdf, .html page, .json trace."
    ),
    format: OutputFormat = typer.Option(OutputFormat.table, help="What to print on standard output."),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    **given: Any,
) -> None:
    """Schedule a graph for least peak memory or least time, and verify the schedule."""
    from ...core.api.graphs import graph_of
    from ...core.files.atomic import check_writable, write_atomically
    from ...core.report.plots.draw import check_target
    from ...core.search.method_spec import parse_method
    from ..console import Output, show, tell, write
    from ..progress import run_with_progress
    from ..reports.solve import draw_result, remark

    out = Output(quiet)
    remark_bare_bytes(out, given["memory_limit"])
    flags = {"decoder": decoder, "decode": decode, "width": None if width is None else str(width), "weights": weights}
    spec = parse_method(method, **flags)
    options = SolveOptions(**given).for_methods([spec.name])
    if output is not None:
        check_writable(output)
    if plot is not None:
        check_target(plot)
    problem = options.problem(graph_of(graph, out.note))
    start = _read_initial(initial, problem, force)
    result = run_with_progress(out, problem, spec, options.alignment, **options.budget, initial=start)
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
    remark(out, result)
    if output is not None:
        out.note(f"wrote {output}")
    if plot is not None:
        draw_result(result, plot)
        out.note(f"wrote {plot}")
    if result.status == "interrupted":
        raise typer.Exit(130)
    if not result.is_feasible:
        raise typer.Exit(1)


with_options(solve, {"weights": options_of(SolveOptions)})


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
