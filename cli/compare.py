"""`schedopt compare`: several methods on many graphs, with gaps and confidence intervals."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Sequence
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
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

    from ..core.comparison import Comparison, Experiment
    from ..core.statistics import Cell, Estimate, GraphResults, MethodSummary
    from .console import Talk

_PERCENTAGES = {
    "improvement": "improvement",
    "gap_from_best": "gap from the best known",
    "gap_from_bound": "gap from the lower bound",
}
_REMARKABLE = {
    "infeasible": "infeasible (in no percentage, and worse than any feasible run)",
    "timed_out": "ended by the time limit",
}
_NOTHING = "–"
_LEAST_WIDTH = 11
_HTML_WIDTH = 1000
_OUTPUTS = {".csv": "a row per run", ".json": "settings, summary and runs", ".html": "the tables"}
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

    from ..core.comparison import Experiment, Settings, parse_spec
    from ..core.resume import ResumeFile
    from ..core.units import parse_seconds
    from .console import Talk, show, write
    from .problem import problem_settings, read_graphs
    from .progress import compiling, interruptible

    talk = Talk(quiet)
    _check_output(output)
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
        write(_json(comparison))
    elif comparison.cells:
        for part in _report(comparison, per_graph):
            show(part)
    if output is not None:
        _write_output(comparison, per_graph, output)
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
    if Path(output).suffix not in _OUTPUTS:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in _OUTPUTS.items())
        raise UsageError(f"{output}: the name must end in one of {known}")
    if not Path(output).absolute().parent.is_dir():
        raise FormatError(f"{output}: the folder does not exist")


def _write_output(comparison: Comparison, per_graph: bool, output: str) -> None:
    from pathlib import Path

    from ..core.atomic import write_atomically

    suffix = Path(output).suffix
    if suffix == ".html":
        text = _html(comparison, per_graph)
    else:
        text = comparison.csv() if suffix == ".csv" else _json(comparison)
    write_atomically(output, text)


def _json(comparison: Comparison) -> str:
    from json import dumps

    return dumps(comparison.document(), indent=1) + "\n"


def _html(comparison: Comparison, per_graph: bool) -> str:
    """Return the printed tables as a web page that needs no other file."""
    from io import StringIO

    from rich.console import Console

    console = Console(record=True, file=StringIO(), width=_HTML_WIDTH, highlight=False)
    for part in _report(comparison, per_graph):
        console.print(part)
    return console.export_html()


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


class _FirstThatFits:
    """Shows the first of some tables that is not too wide, else the last."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        wide = options.update(width=_HTML_WIDTH)
        fitting = (t for t in self.tables if console.measure(t, options=wide).maximum <= options.max_width)
        yield next(fitting, self.tables[-1])


def _report(comparison: Comparison, per_graph: bool) -> Iterator[RenderableType]:
    """Yield what is printed: titles, tables and remarks."""
    from rich.text import Text

    from ..core.statistics import by_graph

    summaries = comparison.summaries()
    yield Text(_title(comparison), style="bold")
    if per_graph:
        yield _graph_table(comparison, by_graph(comparison.cells))
        yield Text("* the best known" + ", mean over seeds" * (comparison.settings.seeds > 1))
        yield Text()
    yield _FirstThatFits([_summary_table(comparison, summaries, between) for between in " \n"])
    for line in _remarks(comparison, summaries):
        yield Text(line)


def _table() -> Table:
    """Start a table that spends its width on numbers, not on lines."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)


def _summary_table(comparison: Comparison, summaries: list[MethodSummary], between: str) -> Table:
    """Build one row per method; `between` a mean and its interval is a space or, to save width, a line break."""
    from rich.text import Text

    table = _table()
    table.add_column("method", overflow="fold", min_width=_LEAST_WIDTH)
    headers = ("improvement", "gap from\nbest\nknown", "gap from\nlower\nbound", "wins/\nties/\nlosses")
    for header in (*headers, "proven\noptimal", "time, s", "CPU, s"):
        table.add_column(header, justify="right", no_wrap=True)

    def write(estimate: Estimate, total: int, decimals: int = 2, unit: str = "%", sign: str = "") -> str:
        return between.join(_estimate(estimate, total, decimals, unit, sign))

    for summary in summaries:
        is_reference, total = summary.method == comparison.reference, summary.graphs
        table.add_row(
            Text(summary.method),
            "reference" if is_reference else write(summary.improvement, total, sign="+"),
            write(summary.gap_from_best, total),
            write(summary.gap_from_bound, total),
            _NOTHING if is_reference else f"{summary.wins}/{summary.ties}/{summary.losses}",
            f"{summary.optimal_graphs}",
            write(summary.seconds, total, _decimals(summary.seconds), ""),
            write(summary.cpu_seconds, total, _decimals(summary.cpu_seconds), ""),
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


def _decimals(seconds: Estimate) -> int:
    """Return how many decimals show three digits of a time, four at most."""
    from math import floor, log10

    return min(4, max(0, 2 - floor(log10(seconds.mean)))) if seconds.mean else 0


def _estimate(estimate: Estimate, total: int, decimals: int, unit: str, sign: str) -> Iterator[str]:
    """Yield a mean, half of its interval, and the number of graphs where it is not all of them."""
    if estimate.mean is None:
        yield _NOTHING
        return
    yield f"{estimate.mean:{sign}.{decimals}f}{unit}"
    if estimate.half_width is not None:
        yield f"±{estimate.half_width:.{decimals}f}"
    if estimate.graphs != total:
        yield f"n={estimate.graphs}"


def _graph_table(comparison: Comparison, results: list[GraphResults]) -> Table:
    """Build one row per graph: the value of each method, the best ones marked."""
    from rich.text import Text

    from ..core.bounds import is_met
    from ..core.units import format_bytes, format_microseconds

    written = format_bytes if comparison.settings.task == "memory" else format_microseconds

    def method_value(result: GraphResults, method: str) -> Text:
        mean = result.value(method)
        if mean is None or result.best is None:
            statuses = {cell.status for cell in result.cells.get(method, [])}
            return Text(" and ".join(sorted(statuses)) or _NOTHING)
        is_best = is_met(mean, result.best)
        return Text(written(mean) + "*" * is_best, style="bold" if is_best else "")

    table = _table()
    table.add_column("graph", overflow="fold")
    for column in ("ops", "lower\nbound", *comparison.methods):
        table.add_column(Text(re.sub(r"(?=-)|(?<=:)", "\n", column)), justify="right", overflow="fold")
    for result in results:
        bound = _NOTHING if result.bound is None else written(result.bound)
        values = [method_value(result, method) for method in comparison.methods]
        table.add_row(Text(result.graph), f"{result.ops:,}", bound, *values)
    return table


def _remarks(comparison: Comparison, summaries: list[MethodSummary]) -> Iterator[str]:
    """Say what the table's numbers are over, what they leave out, and what went wrong."""
    if any(summary.seconds.half_width is not None for summary in summaries):
        yield "± is half of the 95% confidence interval over graphs (Student t)"
    if any(0 < getattr(s, column).graphs < s.graphs for s in summaries for column in _PERCENTAGES):
        yield "n= is the number of graphs of a mean that is not over all of them"
    if comparison.settings.task == "runtime" and not any(cell.value != 0 for cell in comparison.cells):
        yield "every makespan is 0: the ops of these graphs have no runtimes"
    for name, what in _REMARKABLE.items():
        counts = [f"{s.method} {getattr(s, name)} of {s.runs}" for s in summaries if getattr(s, name)]
        if counts:
            yield f"runs {what}: {', '.join(counts)}"
    for summary in summaries:
        for column, what in _PERCENTAGES.items():
            if left_out := getattr(summary, column).left_out:
                yield f"{summary.method}: {left_out} graphs left out of the {what}, whose base is 0 there"
        failures: dict[str, list[Cell]] = {}
        for cell in comparison.cells:
            if cell.method == summary.method and cell.status == "failed":
                failures.setdefault(cell.error, []).append(cell)
        for error, cells in failures.items():
            first = f"first {cells[0].graph}, seed {cells[0].seed}"
            yield f"{summary.method}: {len(cells)} of {summary.runs} runs failed ({first}): {error}"
