"""`schedopt solve`: the main job, a graph in, a verified schedule out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

import typer

from ...core.base.errors import UsageError
from ...core.search.options import SolveOptions
from ...core.search.registry import DEFAULT_METHOD, FLAG_CHOICES, FLAGS
from ..console import Output, show, tell, write
from ..made_options import made_option, options_of, with_options
from ..options import ForceFlag, GraphArgument, JsonFlag, MethodOption, QuietFlag, remark_bare_bytes

if TYPE_CHECKING:
    from ...core.problem.problem import Problem
    from ...core.problem.schedule import Schedule


def solve(
    graph: GraphArgument,
    method: MethodOption = DEFAULT_METHOD,
    initial: str | None = typer.Option(
        None, help="Schedule to start from; the result is never worse. (any method that searches)"
    ),
    force: ForceFlag = False,
    output: str | None = typer.Option(None, "--output", "-o", help="Write the schedule as JSON to this file."),
    plot: str | None = typer.Option(
        None, help="Draw the schedule beside the input order: .png, .svg or .pdf, .html page, .json trace."
    ),
    format: Literal["table", "order", "json"] = typer.Option("table", help="What to print on standard output."),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    **given: Any,
) -> None:
    """Schedule a graph for least peak memory or least time, and verify the schedule."""
    from ...core.api.graphs import graph_of
    from ...core.files.atomic import check_writable, write_atomically
    from ...core.report.plots.draw import check_target
    from ...core.search.method_spec import parse_method
    from ..progress import run_with_progress
    from ..reports.solve import draw_result, remark

    out = Output(quiet)
    remark_bare_bytes(out, given["memory_limit"])
    flags = {name: given.pop(name) for name in FLAGS}
    spec = parse_method(method, **{name: None if value is None else str(value) for name, value in flags.items()})
    options = SolveOptions(**given).for_methods([spec.name])
    if output is not None:
        check_writable(output)
    if plot is not None:
        check_target(plot)
    problem = options.problem(graph_of(graph, out.note))
    start = _read_initial(initial, problem, force)
    result = run_with_progress(out, problem, spec, options.alignment, **options.budget, initial=start)
    document = result.json()
    if json or format == "json":
        write(document)
    elif format == "order":
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


def _flag(name: str) -> inspect.Parameter:
    """Return the option for a parameter of some methods."""
    choices = list(FLAG_CHOICES[name]) if name in FLAG_CHOICES else None
    info = typer.Option(
        help=FLAGS[name],
        rich_help_panel="Parameters of some methods",
        autocompletion=None if choices is None else lambda: choices,
    )
    return made_option(name, int | None if name == "width" else str | None, None, info)


with_options(solve, {"method": [*map(_flag, FLAGS), *options_of(SolveOptions)]})


def _read_initial(path: str | None, problem: Problem, force: bool) -> Schedule | None:
    if path is None:
        return None
    from ...core.files.schedule_json import read_schedule

    loaded = read_schedule(path, problem.graph, force=force)
    if loaded.problem.devices > problem.devices:
        raise UsageError(
            f"{path}: the schedule uses {loaded.problem.devices} devices, more than --devices {problem.devices}"
        )
    return loaded.schedule
