"""`schedopt compare`: several methods on many graphs, with gaps and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...core.search.options import CompareOptions
from ...core.search.registry import BUDGET_EXAMPLE, COMPARED_METHODS, method_names
from .. import options as shared
from ..console import Output, complain, show, write
from ..made_options import options_of, with_options

if TYPE_CHECKING:
    from ...core.experiments.comparison import Experiment
    from ...core.report.summaries import Cell
    from ..progress import Bar


def _one_more(incomplete: str) -> list[str]:
    """Return the possible continuations of the last of several methods, for shells to complete."""
    return [incomplete[: incomplete.rfind(",") + 1] + name for name in method_names()]


def compare(
    graphs: shared.GraphsArgument,
    methods: str = typer.Option(
        COMPARED_METHODS,
        "--methods",
        "-m",
        help=f"Methods, commas between, with parameters and budgets as in {BUDGET_EXAMPLE}.",
        autocompletion=_one_more,
    ),
    reference: str | None = typer.Option(None, help="The method to compare with. (default: the first)"),
    jobs: shared.ClusterJobsOption = None,
    backend: shared.BackendOption = "loky",
    address: shared.AddressOption = None,
    per_graph: bool = typer.Option(False, "--per-graph", help="Print a row per graph as well."),
    output: str | None = shared.output_option(
        "Write .csv (a row per run), .json (everything) or .html (a page of tables and charts)."
    ),
    plot: str | None = typer.Option(
        None, help="Draw performance profiles, improvements, and quality against time to a .png, .svg or .pdf."
    ),
    resume: str | None = shared.RESUME,
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
    **given: Any,
) -> None:
    """Compare methods on graphs: improvement over a reference, gaps to the best known and the lower bound, time.

    Each method runs on each graph under the same budget and seeds. A failing method costs its own runs only.

    Percentages are taken per graph, of the mean over seeds, then averaged over graphs.
    """
    from ...core.api.compare import experiment_of
    from ...core.base.parallel import is_here
    from ...core.experiments.comparison import SUFFIXES, ResumeFile, opened
    from ...core.files.atomic import check_apart, write_atomically
    from ...core.report.plots.draw import PICTURES, check_target
    from ..progress import compiling, interruptible, progress_bar

    out = Output(quiet)
    shared.remark_bare_bytes(out, given["memory_limit"])
    check_target(output, SUFFIXES)
    check_target(plot, PICTURES)
    check_apart((output, plot), (*graphs, resume, given["machine"], given["op_times"]))
    experiment = experiment_of(graphs, methods, CompareOptions(**given), reference, out.note)
    with opened(ResumeFile, resume) as file:
        experiment.resume_from(file)
        if file is not None:
            out.note(f"{len(experiment.cells)} of {len(experiment.runs)} runs are taken from {resume}")
        with shared.workers_of(backend, address, jobs, lambda: shared.kept_in(resume)) as workers:
            with compiling(out):
                experiment.compile()
            with (
                interruptible(out, "the runs done so far") if is_here(workers) else nullcontext() as interrupt,
                progress_bar(out, "", len(experiment.runs)) as bar,
            ):
                on_cell = _progress(experiment, bar) if out.shows_progress else lambda cell: None
                comparison = experiment.execute(jobs=workers, on_cell=on_cell, interrupt=interrupt)
    try:
        if json:
            write(comparison.json())
        elif comparison.cells:
            for part in comparison.report(per_graph):
                show(part)
    finally:  # also if the reader of a pipe left
        if output is not None:
            comparison.save(output)
        if plot is not None and comparison.cells:
            from ...core.report.plots.figures import render

            write_atomically(plot, render(comparison.plot(), Path(plot).suffix))
    if output is not None:
        out.note(f"wrote {output}")
    if plot is not None and comparison.cells:
        out.note(f"wrote {plot}")
    if not comparison.is_complete:
        kept = f"kept in {resume}; the same command goes on from there" if resume else "not kept; --resume keeps them"
        complain(f"interrupted: {len(comparison.cells)} of {comparison.planned} runs are done and {kept}")
        raise typer.Exit(130)
    if not any(cell.is_feasible for cell in comparison.cells):
        raise typer.Exit(1)


with_options(compare, {"reference": options_of(CompareOptions, without=["jobs"])})


def _progress(experiment: Experiment, bar: Bar) -> Callable[[Cell], None]:
    """Show on a bar the number of finished runs, the present run, and the best value on that graph so far."""

    def describe() -> str:
        run = next(iter(experiment.unfinished), None)
        if run is None:
            return "done"
        cells = [one for one in experiment.cells.values() if one.graph == run.problem.graph.name and one.is_feasible]
        best = min((cell.value for cell in cells if cell.value is not None), default=None)
        so_far = "" if best is None else f", best {run.problem.format_value(best)}"
        return f"{run.spec.text} on {run.problem.graph.name}{so_far}"

    bar(len(experiment.cells), what=describe())
    return lambda cell: bar(what=describe())
