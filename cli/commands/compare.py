"""`schedopt compare`: several methods on many graphs, with gaps and confidence intervals."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..options import (
    BandwidthOption,
    DevicesOption,
    EvaluationsOption,
    GraphsArgument,
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
    from ...core.comparison.experiment import Comparison, Experiment
    from ...core.comparison.summaries import Cell
    from ..console import Talk

_PLOTS = {".png": "a picture", ".svg": "a picture"}
_OptionalText = Optional[str]  # noqa: UP045 - Typer reads it at run time on Python 3.10


class Backend(str, enum.Enum):
    """Where joblib runs the workers."""

    loky = "loky"
    dask = "dask"
    ray = "ray"


BACKEND_HELP = (
    "loky: processes here. dask, ray: all workers of the cluster of DASK_SCHEDULER_ADDRESS or RAY_ADDRESS, "
    "else of one started here."
)


def compare(
    graphs: GraphsArgument,
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "-m", help="Methods, commas between, with parameters and budgets as in brkga:evaluations=1000."
        ),
    ],
    reference: Annotated[
        _OptionalText, typer.Option("--reference", help="The method to compare with. (default: the first)")
    ] = None,
    task: TaskOption = "memory",
    devices: DevicesOption = None,
    memory_limit: MemoryLimitOption = None,
    bandwidth: BandwidthOption = None,
    latency: LatencyOption = "0",
    evaluations: EvaluationsOption = None,
    time_limit: TimeLimitOption = None,
    seed: SeedOption = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs per method and graph, from --seed on.")] = 1,
    jobs: JobsOption = 1,
    backend: Annotated[Backend, typer.Option("--backend", help=BACKEND_HELP)] = Backend.loky,
    per_graph: Annotated[bool, typer.Option("--per-graph", help="Print a row per graph as well.")] = False,
    output: Annotated[
        _OptionalText,
        typer.Option("--output", "-o", help="Write .csv (a row per run), .json (everything) or .html (the tables)."),
    ] = None,
    plot: Annotated[
        _OptionalText,
        typer.Option(
            "--plot", help="Draw performance profiles, improvements, and quality against time to a .png or .svg."
        ),
    ] = None,
    resume: Annotated[
        _OptionalText,
        typer.Option("--resume", help="Keep finished runs in this .jsonl file, and skip those it has already."),
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare methods on graphs: improvement over a reference, gaps to the best known and the lower bound, time.

    Each method runs on each graph under the same budget and seeds. A failing method costs its own runs only.

    Percentages are taken per graph, of the mean over seeds, then averaged over graphs.
    """
    from contextlib import closing, nullcontext

    from ...core.comparison.comparison import SUFFIXES
    from ...core.comparison.experiment import Experiment, Settings, parse_spec
    from ...core.comparison.resume import ResumeFile
    from ...core.plots.draw import check_target
    from ...core.units import parse_seconds
    from ..console import Talk, show, write
    from ..problem import problem_settings, read_graphs
    from ..progress import compiling, interruptible

    talk = Talk(quiet)
    for target, endings in ((output, SUFFIXES), (plot, _PLOTS)):
        if target is not None:
            check_target(target, endings)
    specs = [parse_spec(text) for text in methods.split(",") if text.strip()]
    settings = Settings(
        **problem_settings(task, devices, memory_limit, bandwidth, latency, [spec.name for spec in specs]),
        evaluations=evaluations,
        time_limit=None if time_limit is None else parse_seconds(time_limit),
        seed=seed,
        seeds=seeds,
    )
    experiment = Experiment(read_graphs(graphs, talk), specs, settings, reference)
    with nullcontext() if resume is None else closing(ResumeFile(resume)) as file:
        if file is not None:
            experiment.resume_from(file)
            talk.note(f"{len(experiment.cells)} of {len(experiment.runs)} runs are taken from {resume}")
        alone = backend is Backend.loky and jobs == 1
        with interruptible(talk, "the runs done so far") if alone else nullcontext() as interrupt:
            with compiling(talk):
                experiment.compile()
            with _workers(backend.value, jobs) as workers, _progress(talk, experiment) as on_cell:
                comparison = experiment.execute(jobs=workers, on_cell=on_cell, interrupt=interrupt)
    if json:
        write(comparison.json())
    elif comparison.cells:
        for part in comparison.report(per_graph):
            show(part)
    if output is not None:
        comparison.save(output, per_graph)
        talk.note(f"wrote {output}")
    if plot is not None and comparison.cells:
        _draw(comparison, plot)
        talk.note(f"wrote {plot}")
    if not comparison.is_complete:
        kept = f"kept in {resume}; the same command goes on from there" if resume else "not kept; --resume keeps them"
        done = f"{len(comparison.cells)} of {comparison.planned} runs are done"
        typer.echo(f"interrupted: {done} and {kept}", err=True)
        raise typer.Exit(130)
    if not any(cell.is_feasible for cell in comparison.cells):
        raise typer.Exit(1)


def _draw(comparison: Comparison, target: str) -> None:
    from pathlib import Path

    from ...core.files.atomic import write_atomically
    from ...core.plots.figures import render

    write_atomically(target, render(comparison.plot(), Path(target).suffix))


@contextmanager
def _workers(backend: str, jobs: int) -> Iterator[int]:
    """Make joblib use a backend; yields the number of jobs to ask it for, -1 for all of a cluster."""
    from joblib import parallel_config

    if backend == "loky":
        yield jobs
    elif backend == "dask":
        with _dask_client(jobs), parallel_config("dask"):
            yield -1
    else:
        _register_ray()
        with parallel_config("ray"):
            yield jobs if jobs > 1 else -1


def _dask_client(jobs: int) -> Any:
    try:
        import dask  # type: ignore[import-not-found, import-untyped]
        from distributed import Client  # type: ignore[import-not-found, import-untyped]
    except ImportError as error:
        raise _missing("dask", "distributed", error) from error
    address = dask.config.get("scheduler-address", None)
    if address:
        return Client(address)
    # One thread each, so that processor times are of one run.
    return Client(n_workers=jobs if jobs > 1 else None, threads_per_worker=1, dashboard_address=None)


def _register_ray() -> None:
    try:
        import ray  # type: ignore[import-not-found, import-untyped]
        from ray.util.joblib import register_ray  # type: ignore[import-not-found, import-untyped]
    except ImportError as error:
        raise _missing("ray", "ray", error) from error
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    register_ray()


def _missing(backend: str, package: str, error: ImportError) -> Exception:
    from ...core.errors import UsageError

    return UsageError(f"--backend {backend} needs a package ({error}); pip install {package}")


@contextmanager
def _progress(talk: Talk, experiment: Experiment) -> Iterator[Callable[[Cell], None]]:
    """Show a bar on a terminal: runs done, what runs now, the best value on that graph."""
    if not talk.shows_progress or not experiment.unfinished:
        yield lambda cell: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    problem = experiment.unfinished[0].problem
    best: dict[str, float] = {}

    def describe() -> str:
        run = next(iter(experiment.unfinished), None)
        if run is None:
            return "done"
        name = run.problem.graph.name
        so_far = f", best {problem.format_value(best[name])}" if name in best else ""
        return escape(f"{run.spec.text} on {name}{so_far}")

    def note_best(cell: Cell) -> None:
        if cell.is_feasible and cell.value is not None:
            best[cell.graph] = min(cell.value, best.get(cell.graph, cell.value))

    for cell in experiment.cells.values():
        note_best(cell)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=talk.console, transient=True) as progress:
        bar = progress.add_task(describe(), total=len(experiment.runs), completed=len(experiment.cells))

        def on_cell(cell: Cell) -> None:
            note_best(cell)
            progress.update(bar, advance=1, description=describe())

        yield on_cell
