"""`schedopt train METHOD` for a method with a grid of parameters: the best of them on training graphs."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ....core.base.errors import UsageError
from ....core.base.units import signed
from ....core.search.options import GridOptions
from ....version import VERSION
from ...console import Output, complain, show, write_json
from ...made_options import options_of, with_options
from ...options import (
    ELSEWHERE,
    RESUME,
    AddressOption,
    BackendOption,
    ClusterJobsOption,
    GraphsArgument,
    JsonFlag,
    QuietFlag,
    command_line,
    workers_of,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ....core.experiments.comparison import Comparison, Experiment
    from ....core.experiments.grid_search import Grid
    from ....core.report.summaries import MethodSummary

HELP = (
    "Every setting runs on the same graphs with the same seed and budget; the best improves most over the defaults, "
    "in percent per graph. With --first F all settings run on the first F graphs only, the best share --keep of them "
    "on F / keep, and so on until the last few ran on all."
)
_SHOWN = 10
_SILENT = {"held_out", "jobs", "backend", "address", "output", "resume", "json", "quiet"}


def grid_search(
    ctx: typer.Context,
    graphs: GraphsArgument,
    held_out: list[str] | None = typer.Option(
        None, help="Other graphs, or a folder, to confirm the winner on; repeatable."
    ),
    first: int | None = typer.Option(None, min=1, help="Graphs of the first round. (default: all, no rounds)"),
    keep: float = typer.Option(0.25, min=0.01, max=0.99, help="Share of the settings that goes on to the next round."),
    jobs: ClusterJobsOption = None,
    backend: BackendOption = "loky",
    address: AddressOption = None,
    output: str | None = typer.Option(
        None, "--output", "-o", help="Write the winner to this .yaml; other tasks in it stay."
    ),
    resume: str | None = RESUME,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    **given: Any,
) -> None:
    """Search the grid of the method that the subcommand names, and write the winner."""
    from ....core.api.graphs import graphs_of
    from ....core.base.parallel import is_here
    from ....core.experiments.comparison import ResumeFile, opened
    from ....core.experiments.grid_search import GRIDS, check_apart, confirm, plan, race, runs_of
    from ....core.files.yaml_files import write_yaml
    from ...progress import compiling, interruptible, progress_bar

    out = Output(quiet)
    grid = GRIDS[str(ctx.info_name)]()
    document = _read_output(output, grid.method)
    settings = GridOptions(**given)
    task = settings.task
    training = graphs_of(graphs, out.note)
    others = graphs_of(held_out, out.note) if held_out else []
    check_apart(training, others)
    rounds = plan(len(grid.settings), len(training), first or len(training), keep)
    kept = f"finished runs are kept in {resume}; {ELSEWHERE}" if resume else "nothing is kept; --resume keeps runs"
    with (
        opened(ResumeFile, resume) as file,
        workers_of(backend, address, jobs, lambda: kept) as workers,
        interruptible(out, "the runs done so far") if is_here(workers) else nullcontext() as interrupt,
        progress_bar(out, "", runs_of(rounds) + 2 * len(others)) as bar,
    ):
        best = ""

        def execute(experiment: Experiment) -> Comparison:
            """Do the runs of an experiment, but for those that the file has; leave if interrupted."""
            what = f"{len(experiment.methods)} settings on {len(experiment.graphs)} graphs{best}"
            experiment.resume_from(file)
            if file is not None:
                out.note(f"{len(experiment.cells)} of {len(experiment.runs)} runs are taken from {file.path}")
            bar(len(experiment.cells), what=what)
            with compiling(out):
                experiment.compile()
            done = experiment.execute(jobs=workers, on_cell=lambda cell: bar(what=what), interrupt=interrupt)
            if not done.is_complete:
                go_on = "; the same command goes on from there"
                complain(
                    f"interrupted: the runs done so far are "
                    f"{f'kept in {file.path}{go_on}' if file else 'lost; --resume keeps them'}"
                )
                raise typer.Exit(130)
            return done

        for ranking in race(grid, training, settings, rounds, execute):
            winner = ranking[0]
            best = f", best so far {_improvement(winner)}"
            out.note(f"best of {len(ranking)} on {winner.graphs} graphs: {winner.method}, {_improvement(winner)}")
        confirmed = confirm(grid, winner.method, others, settings, execute) if others else None
    document[task] = {
        "settings": grid.specs[winner.method],
        "found": {
            "command": command_line(ctx, _SILENT),
            "schedopt": VERSION,
            "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
            **{name: getattr(settings, name) for name in ("devices", "evaluations", "seed")},
            "rounds": [f"{r.settings} settings on {r.graphs} graphs" for r in rounds],
            "training": _evidence(winner, graphs),
            **({} if confirmed is None else {"held_out": _evidence(confirmed, held_out or [])}),
        },
    }
    if json:
        write_json({"method": grid.method, "task": task, **document[task]}, indent=1)
    else:
        show(_table(grid, ranking), f"{grid.method}: improvement over its defaults, {ranking[0].graphs} graphs")
        if confirmed is not None:
            show(f"the first on {confirmed.graphs} held-out graphs: {_improvement(confirmed)}")
    if output is not None:
        write_yaml(output, document)
        out.note(f"wrote {output}")


with_options(grid_search, {"held_out": options_of(GridOptions)})


def _read_output(output: str | None, method: str) -> dict[str, Any]:
    """Return what the output file holds already, or the start of a new one."""
    from ....core.files.atomic import check_writable
    from ....core.search.settings import read_document

    if output is not None:
        if Path(output).suffix not in (".yaml", ".yml"):
            raise UsageError(f"{output}: the name must end in .yaml")
        check_writable(output)
        if Path(output).exists():
            return read_document(output, method)
    return {"method": method}


def _evidence(summary: MethodSummary, paths: list[str]) -> dict[str, Any]:
    """Return the improvement over the defaults on some graphs, and where those are from."""
    from ....datasets.folder import made_by

    improvement = summary.improvement
    return {
        "graphs": summary.graphs,
        "made_by": made_by(paths),
        "improvement_percent": _rounded(improvement.mean),
        "standard_error": _rounded(improvement.standard_error),
        "wins_ties_losses": f"{summary.wins}/{summary.ties}/{summary.losses}",
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _table(grid: Grid, ranking: list[MethodSummary]) -> Table:
    from rich.table import Table

    best = ranking[:_SHOWN]
    table = Table(*grid.settings[0], "improvement")
    for summary in best + [s for s in ranking[_SHOWN:] if s.method == grid.reference]:
        values = map(str, grid.specs[summary.method].values())
        table.add_row(*values, "defaults" if summary.method == grid.reference else _improvement(summary))
    return table


def _improvement(summary: MethodSummary) -> str:
    """Write the mean and its standard error."""
    mean, error = summary.improvement.mean, summary.improvement.standard_error
    if mean is None:
        return "none"
    return f"{signed(mean)}%" if error is None else f"{signed(mean)} ± {error:.2f}%"
