"""`schedopt compare`: several methods on many graphs, with gaps and confidence intervals."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .options import (
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
    from pathlib import Path

    from rich.table import Table

    from ..core.comparison import Comparison, Experiment
    from ..core.graph import CostGraph
    from ..core.resume import ResumeFile
    from ..core.statistics import Cell, Estimate, GraphResults, MethodSummary
    from .console import Talk

_COMPILING_AFTER = 1.5
_PERCENTAGES = {
    "improvement": "improvement",
    "gap_from_best": "gap from the best known",
    "gap_from_bound": "gap from the lower bound",
}
_PERCENTAGES = {
    "improvement": "improvement",
    "gap_from_best": "gap from the best known",
    "gap_from_bound": "gap from the lower bound",
}
_NOTHING = "–"
_LEAST_WIDTH = 11
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
            "--methods", "-m", help="Methods, commas between, with parameters as in brkga:elites=10:evaluations=1000."
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
        typer.Option("--output", "-o", help="Write .csv (a row per run) or .json (settings, summary and runs)."),
    ] = None,
    resume: Annotated[
        _OptionalText,
        typer.Option("--resume", help="Keep finished runs in this .jsonl file, and skip those it has already."),
    ] = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare methods on graphs: improvement over a reference, gaps to the best known and the lower bound, time.

    Each method runs on each graph under the same budget and seeds. Percentages are taken per graph, of the
    mean over seeds, then averaged over graphs. A failing method costs its own runs only.
    """
    from contextlib import closing
    from json import dumps

    from ..core.comparison import Experiment, Settings, parse_spec
    from ..core.resume import ResumeFile
    from ..core.units import parse_seconds
    from .console import Talk, write
    from .problem import problem_settings

    talk = Talk(quiet)
    _check_output(output)
    specs = [parse_spec(text) for text in methods.split(",")]
    settings = Settings(
        **problem_settings(task, devices, memory_limit, bandwidth, latency, [spec.name for spec in specs]),
        evaluations=evaluations,
        time_limit=None if time_limit is None else parse_seconds(time_limit),
        seed=seed,
        seeds=seeds,
    )
    experiment = Experiment(_read_graphs(graphs, talk), specs, settings, reference)
    if resume is None:
        comparison = _execute(talk, experiment, jobs, backend.value, None)
    else:
        with closing(ResumeFile(resume)) as file:
            reused = experiment.reuse(file)
            talk.note(f"{reused} of {len(experiment.runs)} runs are taken from {resume}")
            comparison = _execute(talk, experiment, jobs, backend.value, file)
    if json:
        write(dumps(comparison.document()))
    elif comparison.cells:
        _print_tables(comparison, per_graph)
    if output is not None:
        _write_output(comparison, output)
        talk.note(f"wrote {output}")
    if not comparison.is_complete:
        kept = f"kept in {resume}; the same command goes on from there" if resume else "not kept; --resume keeps them"
        done = f"{len(comparison.cells)} of {comparison.planned} runs are done"
        typer.echo(f"interrupted: {done} and {kept}", err=True)
        raise typer.Exit(130)
    if not any(cell.is_feasible for cell in comparison.cells):
        raise typer.Exit(1)


def _check_output(output: str | None) -> None:
    from pathlib import Path

    from ..core.errors import FormatError, UsageError

    if output is None:
        return
    if Path(output).suffix not in (".csv", ".json"):
        raise UsageError(f"{output}: the name must end in .csv (a row per run) or .json (everything)")
    if not Path(output).absolute().parent.is_dir():
        raise FormatError(f"{output}: the folder does not exist")


def _write_output(comparison: Comparison, output: str) -> None:
    from json import dumps

    from ..core.atomic import write_atomically

    is_csv = output.endswith(".csv")
    write_atomically(output, comparison.csv() if is_csv else dumps(comparison.document(), indent=1) + "\n")


def _read_graphs(arguments: list[str], talk: Talk) -> list[CostGraph]:
    """Read all graphs under names that tell them apart: in a folder the path from there, without suffix."""
    from collections import Counter
    from dataclasses import replace

    from ..core.formats import find_graphs, read_graph

    names: dict[Path, list[str]] = {}
    seen = set()
    for argument in arguments:
        for path in find_graphs([argument]):
            if (key := str(path) if str(path) == "-" else path.resolve()) in seen:
                talk.note(f"{path} is named twice and taken once")
                continue
            seen.add(key)
            names[path] = _possible_names(argument, path)
    counts = Counter(name for possible in names.values() for name in dict.fromkeys(possible))
    graphs = []
    for path, possible in names.items():
        name = next((name for name in possible if counts[name] == 1), possible[-1])
        graphs.append(replace(read_graph(path, talk.note), name=name))
    return graphs


def _possible_names(argument: str, path: Path) -> list[str]:
    """Return what a graph can be called, the shortest first."""
    from pathlib import Path

    from ..core.formats import graph_name

    if str(path) == argument or not Path(argument).is_dir():
        return [graph_name(path), str(path)]
    inside = path.relative_to(argument)
    return [(inside.parent / graph_name(path)).as_posix(), inside.as_posix(), str(path)]


def _execute(talk: Talk, experiment: Experiment, jobs: int, backend: str, resume: ResumeFile | None) -> Comparison:
    """Compile, then do the runs on the chosen backend, showing progress on a terminal."""
    if experiment.unfinished:
        _compile(talk, experiment)
    with _workers(backend, jobs) as workers, _progress(talk, experiment) as on_cell:
        return experiment.execute(jobs=workers, resume=resume, on_cell=on_cell)


def _compile(talk: Talk, experiment: Experiment) -> None:
    from threading import Timer

    text = "compiling the kernels, once per installation (up to a minute)"
    timer = Timer(_COMPILING_AFTER, talk.note, [text])
    timer.daemon = True
    timer.start()
    try:
        experiment.compile()
    finally:
        timer.cancel()


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
    from ..core.errors import UsageError

    return UsageError(f"--backend {backend} needs a package ({error}); pip install {package}")


@contextmanager
def _progress(talk: Talk, experiment: Experiment) -> Iterator[Callable[[Cell], None]]:
    """Show a bar on a terminal: runs done, what runs now, the best value on that graph."""
    if not talk.shows_progress or not experiment.unfinished:
        yield lambda cell: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    problem = experiment.runs[0].problem
    best: dict[str, float] = {}

    def describe() -> str:
        if not experiment.unfinished:
            return "done"
        run = experiment.runs[experiment.unfinished[0]]
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


def _print_tables(comparison: Comparison, per_graph: bool) -> None:
    from rich.text import Text

    from ..core.statistics import by_graph
    from .console import show

    results, summaries = by_graph(comparison.cells), comparison.summaries()
    if per_graph:
        show(_graph_table(comparison, results))
    show(_summary_table(comparison, summaries))
    for line in _remarks(comparison, summaries):
        show(Text(line))


def _summary_table(comparison: Comparison, summaries: list[MethodSummary]) -> Table:
    """Build one row per method; counts of what went wrong only where something did."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_title(comparison)), title_justify="left")
    table.add_column("method", overflow="fold", min_width=_LEAST_WIDTH)
    headers = [f"improvement\nover {comparison.reference}", "gap from\nbest known", "gap from\nlower bound"]
    headers += ["wins / ties\n/ losses", "proven\noptimal", "time, s", "CPU, s"]
    troubles = [name for name in ("infeasible", "failed", "timed_out") if any(getattr(s, name) for s in summaries)]
    for number, header in enumerate(headers + [name.replace("_", " ") for name in troubles]):
        table.add_column(Text(header), justify="right", min_width=None if number else _LEAST_WIDTH)
    for summary in summaries:
        is_reference = summary.method == comparison.reference
        total = summary.graphs
        table.add_row(
            Text(summary.method),
            "reference" if is_reference else _percent(summary.improvement, total, "+"),
            _percent(summary.gap_from_best, total),
            _percent(summary.gap_from_bound, total),
            _NOTHING if is_reference else f"{summary.wins} / {summary.ties} / {summary.losses}",
            f"{summary.optimal_graphs}",
            _seconds(summary.seconds, total),
            _seconds(summary.cpu_seconds, total),
            *(f"{getattr(summary, name)} of {summary.runs}" for name in troubles),
        )
    return table


def _title(comparison: Comparison) -> str:
    settings = comparison.settings
    what = "peak memory" if settings.task == "memory" else "makespan"

    def count(number: int, noun: str) -> str:
        return f"{number:,} {noun}{'s' * (number != 1)}"

    parts = [f"{what}, {count(len(comparison.graphs), 'graph')}, {count(settings.devices, 'device')}"]
    if settings.memory_limit is not None:
        from ..core.units import format_bytes

        parts.append(f"at most {format_bytes(settings.memory_limit)} each")
    if settings.evaluations is not None:
        parts.append(count(settings.evaluations, "evaluation"))
    if settings.time_limit is not None:
        parts.append(f"{settings.time_limit:g} s")
    last = settings.seed + settings.seeds - 1
    parts.append(f"seed {settings.seed}" if settings.seeds == 1 else f"seeds {settings.seed} to {last}")
    return ", ".join(parts)


def _percent(estimate: Estimate, total: int, sign: str = "") -> str:
    return _estimate(estimate, total, sign, 2, "%")


def _seconds(estimate: Estimate, total: int) -> str:
    """Write a time with three digits of its mean, but no more than four decimals."""
    from math import floor, log10

    decimals = 2 - floor(log10(estimate.mean)) if estimate.mean else 0
    return _estimate(estimate, total, "", min(4, max(0, decimals)))


def _estimate(estimate: Estimate, total: int, sign: str, decimals: int, unit: str = "") -> str:
    """Write a mean with half of its interval, and the number of graphs where it is not all of them."""
    if estimate.mean is None:
        return _NOTHING
    interval = "" if estimate.half_width is None else f" ± {estimate.half_width:.{decimals}f}"
    fewer = "" if estimate.graphs == total else f" (n={estimate.graphs})"
    return f"{estimate.mean:{sign}.{decimals}f}{interval}{unit}{fewer}"


def _graph_table(comparison: Comparison, results: list[GraphResults]) -> Table:
    """Build one row per graph: the value of each method, the best ones marked."""
    from rich.table import Table
    from rich.text import Text

    from ..core.units import format_bytes, format_microseconds

    written = format_bytes if comparison.settings.task == "memory" else format_microseconds

    def method_value(result: GraphResults, method: str) -> Text:
        mean = result.value(method)
        if mean is None:
            statuses = {cell.status for cell in result.cells.get(method, [])}
            return Text(" and ".join(sorted(statuses)) or _NOTHING)
        is_best = mean == result.best
        return Text(written(mean) + "*" * is_best, style="bold" if is_best else "")

    what = "value" if comparison.settings.seeds == 1 else "mean over seeds"
    table = Table(title=f"{what} per graph, * the best known", title_justify="left")
    table.add_column("graph", overflow="fold")
    for column in ("ops", "lower bound", *comparison.methods):
        table.add_column(Text(column), justify="right")
    for result in results:
        bound = _NOTHING if result.bound is None else written(result.bound)
        values = [method_value(result, method) for method in comparison.methods]
        table.add_row(Text(result.graph), f"{result.ops:,}", bound, *values)
    return table


def _remarks(comparison: Comparison, summaries: list[MethodSummary]) -> Iterator[str]:
    """Say what the table's numbers are over, and what they leave out."""
    if any(summary.seconds.half_width is not None for summary in summaries):
        yield "± is half of the 95% confidence interval over graphs (Student t)"
    if any(summary.infeasible for summary in summaries):
        yield "infeasible runs are in no percentage; they count as worse than feasible ones"
    for summary in summaries:
        for column, what in _PERCENTAGES.items():
            left_out = getattr(summary, column).left_out
            if left_out:
                yield f"{summary.method}: {left_out} graphs left out of the {what}, whose base is 0 there"
        failures: dict[str, list[Cell]] = {}
        for cell in comparison.cells:
            if cell.method == summary.method and cell.status == "failed":
                failures.setdefault(cell.error, []).append(cell)
        for error, cells in failures.items():
            first = f"first {cells[0].graph}, seed {cells[0].seed}"
            yield f"{summary.method} failed, {len(cells)} of {summary.runs} runs ({first}): {error}"
