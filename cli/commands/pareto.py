"""`schedopt pareto`: the front of peak memory against time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...core.search.options import ParetoOptions
from .. import options as shared
from ..console import Output, complain, show, write
from ..made_options import options_of, with_options

if TYPE_CHECKING:
    from ...core.experiments.pareto_front import ParetoFront


def pareto(
    graph: shared.GraphArgument,
    backend: shared.BackendOption = "loky",
    address: shared.AddressOption = None,
    output: str | None = shared.output_option("Write .csv (a row per point) or .json (settings, points and bounds)."),
    plot: str | None = typer.Option(
        None, help="Draw the front and the bound: .png, .svg or .pdf, or a .html page with the table."
    ),
    schedules: str | None = typer.Option(
        None, metavar="FOLDER", help="Write the schedule of each point there: 1.json is the first row."
    ),
    resume: str | None = typer.Option(
        None, help="Keep finished searches in this .jsonl file, and skip those it has already."
    ),
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
    **given: Any,
) -> None:
    """Find the front of peak memory against time: every point a verified schedule, and the bound below it.

    On one device time is what recomputation adds; on several it is the makespan.
    """
    from ...core.api.graphs import graph_of
    from ...core.experiments.comparison import opened
    from ...core.experiments.pareto_front import SUFFIXES
    from ...core.experiments.pareto_search import Sweep, SweepFile
    from ...core.files.atomic import check_apart, check_writable, make_folder
    from ...core.report.plots.draw import PICTURES, check_target
    from ..progress import compiling, interruptible, progress_bar

    out = Output(quiet)
    check_target(output, SUFFIXES)
    check_target(plot, {**PICTURES, ".html": "a page with the table"})
    check_apart((output, plot), (graph, resume, given["machine"], given["op_times"]))
    options = ParetoOptions(**given)
    sweep = Sweep(graph_of(graph, out.note), options)
    if schedules is not None:
        check_writable(make_folder(schedules) / "1.json")
    if sweep.problem.counts_runs:
        out.note(f"{sweep.graph.name}: no op has a runtime, so that every run counts alike")
    with opened(SweepFile, resume) as file:
        sweep.file = file
        kept = shared.kept_in(resume, "searches", "see --resume")
        with shared.workers_of(backend, address, options.jobs, lambda: kept):
            with compiling(out):
                sweep.compile()
            with (
                interruptible(out, "the searches done so far") as interrupt,
                progress_bar(out, "", sweep.planned) as bar,
            ):
                front = sweep.execute(lambda done, what: bar(done=done, what=what), interrupt)
    if sweep.resumed:
        out.note(f"{sweep.resumed} of {front.planned} searches are taken from {resume}")
    try:
        if json:
            write(front.json())
        else:
            for part in front.report():
                show(part)
    finally:  # also if the reader of a pipe left
        written = _written(front, output, plot, schedules)
    for text in written:
        out.note(f"wrote {text}")
    if not front.is_complete:
        kept = f"kept in {resume}; the same command goes on from there" if resume else "not kept; --resume keeps them"
        complain(f"interrupted: {front.searches} of {front.planned} searches are done and {kept}")
        raise typer.Exit(130)


with_options(pareto, {"graph": options_of(ParetoOptions)})


def _written(front: ParetoFront, output: str | None, plot: str | None, schedules: str | None) -> list[str]:
    """Write the requested files of a front with points; return their names."""
    from ...core.files.atomic import write_atomically

    written = []
    if output is not None:
        front.save(output)
        written.append(output)
    if plot is not None and front.points:
        from ...core.report.plots.figures import render

        is_page = Path(plot).suffix == ".html"
        page = front.page().encode() if is_page else render(front.plot().figure, Path(plot).suffix)  # type: ignore[arg-type]
        write_atomically(plot, page)
        written.append(plot)
    if schedules is not None and front.points:
        files = front.save_schedules(schedules)
        others = len(set(Path(schedules).glob("*.json")) - set(files))
        beside = f", in which {others} more .json are none of this front" if others else ""
        written.append(f"{len(files)} schedules to {schedules}{beside}")
    return written
