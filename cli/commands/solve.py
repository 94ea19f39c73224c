"""`schedopt solve`: the main job, a graph in, a verified schedule out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

import typer

from ...core.base.errors import UsageError
from ...core.search.options import SolveOptions
from ...core.search.registry import DEFAULT_METHOD, FLAG_CHOICES, FLAGS, method_of
from ..console import Output, show, tell, write
from ..made_options import made_option, options_of, with_options
from ..options import ForceFlag, GraphArgument, JsonFlag, MethodOption, QuietFlag, output_option, remark_bare_bytes

if TYPE_CHECKING:
    from ...core.problem.problem import Problem
    from ...core.problem.schedule import Schedule
    from ...core.report.result import Result


def solve(
    graph: GraphArgument,
    method: MethodOption = DEFAULT_METHOD,
    initial: str | None = typer.Option(
        None, help="Schedule to start from; the result is never worse. (any method that searches)"
    ),
    force: ForceFlag = False,
    output: str | None = output_option("Write the schedule as JSON to this file."),
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
    from ...core.files.atomic import check_apart, check_writable, write_atomically
    from ...core.files.schedule_json import order_text
    from ...core.report.plots.draw import check_target
    from ...core.search.method_spec import parse_method
    from ..progress import run_with_progress
    from ..reports import draw_result

    out = Output(quiet)
    remark_bare_bytes(out, given["memory_limit"])
    flags = {name: given.pop(name) for name in FLAGS}
    spec = parse_method(method, **{name: None if value is None else str(value) for name, value in flags.items()})
    options = SolveOptions(**given).for_methods([spec.name])
    if output is not None:
        check_writable(output)
    check_target(plot)
    check_apart((output, plot), (graph, given["machine"], given["op_times"]))
    problem = options.problem(graph_of(graph, out.note))
    start = _read_initial(initial, problem, force)
    places = {"alignment": options.alignment, "allocator": options.allocator}
    result = run_with_progress(out, problem, spec, **places, **options.budget, initial=start)
    document = result.json() if output is not None or json or format == "json" else ""
    try:
        if json or format == "json":
            write(document)
        elif format == "order":
            write(order_text(result.order))
        else:
            show(result.table(), result.title())
            if explanation := result.explain():
                tell(explanation)
    finally:  # also if the reader of a pipe left, and before anything more is said, which could fail
        if output is not None:
            write_atomically(output, document)
        if plot is not None:
            draw_result(result, plot)
    _remark(out, result)
    if output is not None:
        out.note(f"wrote {output}")
    if plot is not None:
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
    if (used := loaded.problem.devices) > problem.devices:
        raise UsageError(f"{path}: the schedule uses {used} devices, more than --devices {problem.devices}")
    return loaded.schedule


def _remark(out: Output, result: Result) -> None:
    """Add remarks to the table on standard error."""
    from ...core.programs.importers import kind_by_name
    from ...core.report.result import reference_value

    problem = result.problem
    for note in result.notes:
        out.note(note)
    if kind_by_name(str(problem.graph.annotations.imported.get("model"))) == "pytorch" and problem.devices == 1:
        out.note("peaks are those of the traced program; schedopt measure also runs the model's own call")
    if problem.devices > 1:
        _remark_homes(out, result)
        graph, items = problem.graph, result.schedule.items
        views = (graph.alias_of >= 0) & (graph.tensor_size == 0) & (graph.tensor_size[graph.root] > 0)
        if free := int(views[~items[items < 0]].sum()):
            out.note(
                f"{graph.name}: {free:,} transfers send views to which the graph gives no bytes, so they cost only the "
                "latency"
            )
    if problem.recompute:
        if problem.counts_runs:
            out.note(f"{problem.graph.name}: no op has a runtime, so that every run counts alike")
        if result.is_proven_infeasible:
            out.note("this is the schedule with the least excess found")
        elif not result.is_feasible:
            out.note("no schedule that keeps the limit was found, none is proven impossible; this has the least excess")
        elif problem.task == "runtime" and len(result.schedule) == problem.graph.num_ops:
            out.note("this order alone keeps the limit: nothing runs again")
    elif problem.task == "runtime" and not problem.graph.runtime.any():
        out.note(f"{problem.graph.name}: every op has runtime 0, so every schedule takes 0 us")
    elif result.value > result.input_value and result.value > reference_value(problem, keeps_limits=True):
        better = "the input order" if problem.is_symmetric else "the input order on one device"
        out.note(f"{better} is better than this result; --method auto never returns a worse one")
    if not result.is_repeatable:
        remedy = "; --evaluations repeats exactly" if method_of(result.method).counts_evaluations else ""
        out.note(f"time ended or steered the search, so the same seed may give another result{remedy}")
    if result.is_feasible or problem.recompute:
        return
    if not result.is_proven_infeasible:
        out.note("no schedule within the memory limit was found, and none is proven impossible")
    out.note("this is the schedule with the least excess found")


def _remark_homes(out: Output, result: Result) -> None:
    """Say how many weights are read on several devices, or that the graph does not know."""
    from ...core.problem.residents import GraphWithHomes

    problem, graph = result.problem, result.problem.graph
    if not isinstance(graph, GraphWithHomes):
        if graph.persistent.any() and not graph.annotations.residents:
            out.note(
                f"{graph.name}: the graph does not say which ops share weights: the persistent bytes of each op are "
                "taken to be its own, and are never sent"
            )
        return
    away = graph.read_away(result.schedule.placement(graph))
    replicated = int((~graph.is_written[away]).sum()) if problem.replicate else 0
    sent = len(away) - replicated
    if replicated or sent:
        how = [f"{replicated:,} as a replica on each of these devices"] if replicated else []
        how += [f"{sent:,} by copies, which are among the transfers"] if sent else []
        out.note(
            f"{replicated + sent:,} of {len(graph.held):,} weights and inputs are read away from their home: "
            f"{', '.join(how)}"
        )
