"""A comparison of methods: its runs, and how to read, save and draw them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...version import VERSION
from ..base.errors import ClusterError, SchedoptError, UsageError
from ..base.options import spelled
from ..base.parallel import is_here, map_unordered
from ..base.tables import Printed, csv_of, text_of
from ..files.atomic import write_as
from ..files.costgraph import graph_hash
from ..files.json_lines import JsonLines, key_of
from ..graph.graph import CostGraph
from ..model.allocators import Allocator
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..report.result import CHANGED, OPENING, Result
from ..report.summaries import Cell, MethodSummary, Status, by_graph, summarise
from ..search.method_spec import MethodSpec, check_supported, parse_method
from ..search.options import CompareOptions
from ..search.parameters import Parameters
from ..search.registry import BUDGET_EXAMPLE
from ..search.search import Watcher
from ..search.warm_up import warm_up
from ..solve.placed import check_allocator, solve_and_place, warm_up_places
from .report import comparison_page, graph_table, remarks, summary_table, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType


SUFFIXES = {".csv": "a row per run", ".json": "settings, summary and runs", ".html": "a page of tables and charts"}


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """Finished runs, in the order graph, method, seed, whatever the number of jobs; printed, the table of all methods.

    Parameters
    ----------
    settings
        The common settings of all runs.
    methods, reference, graphs
        Names, as in the cells.
    cells
        The finished runs; fewer than `planned` if it was interrupted.
    planned
        How many runs belong to it.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("one")
    >>> op = builder.add_op("op", outputs=[1024])
    >>> comparison = schedopt.compare(builder.build(), "input, lpmf")
    >>> comparison.reference, [(s.method, s.gap_from_bound.mean) for s in comparison.summaries()]
    ('input', [('input', 0.0), ('lpmf', 0.0)])
    >>> comparison.save("runs.csv")
    """

    settings: CompareOptions
    methods: tuple[str, ...]
    reference: str
    graphs: tuple[str, ...]
    cells: tuple[Cell, ...]
    planned: int

    @property
    def is_complete(self) -> bool:
        """Whether every run is finished."""
        return len(self.cells) == self.planned

    def summaries(self) -> list[MethodSummary]:
        """Summarise each method over the graphs; see `summarise`."""
        return summarise(self.cells, self.methods, self.reference)

    def document(self) -> dict[str, Any]:
        """Return settings, summary per method and all cells as plain values for JSON."""
        return {
            "schedopt": VERSION,
            **self.settings.document(),
            "methods": list(self.methods),
            "reference": self.reference,
            "graphs": len(self.graphs),
            "runs": len(self.cells),
            "complete": self.is_complete,
            "summary": [asdict(summary) for summary in self.summaries()],
            "cells": [asdict(cell) for cell in self.cells],
        }

    def csv(self) -> str:
        """Return one row per cell, with a header; missing values of a failed run are empty."""
        return csv_of(map(asdict, self.cells), (field.name for field in fields(Cell)))

    @property
    def title(self) -> str:
        """The subject of the comparison: task, graphs, devices, limits, budgets and seeds."""
        return title_of(self.settings, len(self.graphs))

    def report(self, per_graph: bool = False) -> Iterator[RenderableType]:
        """Yield the output of `schedopt compare`; `per_graph` adds a table with a row per graph."""
        from rich.text import Text

        yield Text(self.title, style="bold")
        if not self.cells:
            return
        summaries, task = self.summaries(), self.settings.kind
        if per_graph:
            yield graph_table(by_graph(self.cells), self.methods, task)
            yield Text("* the best known" + ", mean over seeds" * (self.settings.seeds > 1))
            yield Text()
        yield summary_table(summaries, self.reference)
        for line in remarks(summaries, self.cells, self.reference, task):
            yield Text(line)

    def summary(self, per_graph: bool = False) -> str:
        """Return the output of `schedopt compare`, as text; `per_graph` adds a table with a row per graph."""
        return text_of(*self.report(per_graph))

    def page(self) -> str:
        """Return a web page that needs no other file: tables that sort by a click, charts, and every graph."""
        return comparison_page(self.settings, self.methods, self.reference, self.cells)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a row per run (`.csv`), settings, summary and runs (`.json`), or a page (`.html`)."""
        texts = {".html": self.page, ".csv": self.csv, ".json": self.json}
        write_as(path, SUFFIXES, lambda suffix: texts[suffix]())

    def json(self) -> str:
        """Return settings, summary and runs as a JSON document."""
        return json.dumps(self.document(), indent=1) + "\n"

    def plot(self) -> Figure:
        """Draw performance profiles, improvements, and quality against time; in a notebook the figure shows itself."""
        from ..report.plots.comparison_charts import draw_comparison
        from ..report.plots.figures import show_in_notebook

        figure = draw_comparison(self.cells, self.methods, self.reference, self.title)
        show_in_notebook(figure)
        return figure


RunName: TypeAlias = tuple[str, str, int]
T = TypeVar("T")
File = TypeVar("File", bound=JsonLines)


@dataclass(frozen=True)
class Run:
    """A run to do: a method, with its budget, on a graph with a seed."""

    problem: Problem
    spec: MethodSpec
    seed: int
    sha256: str
    key: str
    allocator: Allocator | None = None  # then the value is what it reserves

    @property
    def name(self) -> RunName:
        """Its graph, method and seed."""
        return self.problem.graph.name, self.spec.text, self.seed


def attempt(call: Callable[[], T]) -> T | Exception:
    """Call something that may fail in any way, and return its error: a method's code is not ours."""
    try:
        return call()
    except Exception as error:
        return error


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def run_cell(run: Run, interrupt: threading.Event | None = None) -> Cell:
    """Do a run in this process; an error makes a failed cell that says its type and message."""
    done = attempt(lambda: _solve_timed(run, interrupt))
    if isinstance(done, Exception):
        return _cell(run, status="failed", error=_reason(done))
    result, cpu_seconds = done
    evaluations = round(result.evaluations, 3)
    status: Status = "infeasible" if result.is_proven_infeasible else "limit-not-met"
    if result.is_feasible:
        status = "optimal" if result.status == "optimal" else "feasible"
    value, bound = result.value, result.lower_bound
    if (reserved := result.reserved) is not None and result.problem.task == "memory":
        value, bound = reserved.peak, reserved.bound
        status = "feasible" if status == "optimal" and not reserved.is_optimal else status
    return _cell(
        run,
        status=status,
        value=value,
        peak_memory=result.peak_memory,
        reserved=None if reserved is None else reserved.peak,
        runtime_us=result.runtime,
        excess=result.excess,
        lower_bound=int(bound) if isinstance(value, int) else bound,
        evaluations=int(evaluations) if evaluations.is_integer() else evaluations,
        seconds=round(result.seconds, 6),
        cpu_seconds=round(cpu_seconds, 6),
        timed_out=not result.is_repeatable,
        found_by=result.found_by,
        note="; ".join(note for note in result.notes if not note.startswith((OPENING, CHANGED))),  # those of one plan
    )


def _cell(run: Run, **found: Any) -> Cell:
    """Return the cell of a run with its result."""
    graph = run.problem.graph
    return Cell(graph.name, run.sha256, model_of(graph).num_ops, run.spec.text, run.seed, **found)


def _solve_timed(run: Run, interrupt: threading.Event | None) -> tuple[Result, float]:
    warm_up(run.problem, run.spec)
    warm_up_places(addresses=False, allocator=run.allocator is not None)
    start, watcher = time.process_time(), None if interrupt is None else Watcher(interrupt)
    result = solve_and_place(run.problem, run.spec, None, run.allocator, seed=run.seed, watcher=watcher)
    return result, time.process_time() - start


def cells_of(runs: list[Run], jobs: int, interrupt: threading.Event | None = None) -> Generator[Cell, None, None]:
    """Yield cells as they finish: in this process until it is interrupted, or by workers, whose end is an error."""
    if interrupt is not None or is_here(jobs):
        for run in runs:
            cell = run_cell(run, interrupt)
            if interrupt is not None and interrupt.is_set():
                return
            yield cell
        return
    with closing(map_unordered(run_cell, runs, jobs)) as ended:
        for run, future in ended:
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                raise UsageError(
                    f"the workers broke down ({_reason(error)}); if memory ran out use fewer {spelled('jobs')}, "
                    f"and {spelled('resume')} to keep what is finished"
                ) from error
            if isinstance(error, ClusterError):
                raise error
            yield future.result() if error is None else _cell(run, status="failed", error=_reason(error))


class ResumeFile(JsonLines):
    """Finished cells on disk; failed runs are kept for the record and tried again."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "a comparison", "name a new file to resume from")

    def find(self, key: str, graph: str, method: str) -> Cell | None:
        """Return the finished cell of a run, unless it failed, under the names that graph and method have now."""
        record = self.records.get(key, {"status": "failed"})
        return None if record["status"] == "failed" else Cell(**{**record, "graph": graph, "method": method})


def opened(kind: Callable[[str], File], path: str | os.PathLike[str] | None) -> AbstractContextManager[File | None]:
    """Open a file of finished runs, if one is named."""
    return nullcontext() if path is None else closing(kind(os.fspath(path)))


def parse_spec(method: str | MethodSpec) -> MethodSpec:
    """Parse a method; if its own code cannot even be imported, that is left to its cells to say."""
    if isinstance(method, MethodSpec):
        return method
    parsed = attempt(lambda: parse_method(method))
    if isinstance(parsed, SchedoptError):
        raise parsed
    if isinstance(parsed, Exception):
        return MethodSpec(method.strip(), method.strip().partition(":")[0], Parameters())
    return parsed


class Experiment:
    """All runs of a comparison, checked before the first starts; `execute` does them."""

    def __init__(
        self,
        graphs: Sequence[CostGraph],
        methods: Sequence[str | MethodSpec],
        settings: CompareOptions = CompareOptions(),
        reference: str | None = None,
    ) -> None:
        specs = [parse_spec(method) for method in methods]
        self.settings = settings = settings.for_methods(spec.name for spec in specs)
        self.graphs = tuple(graph.name for graph in graphs)
        self.methods = tuple(spec.text for spec in specs)
        for what, names in (("method", self.methods), ("graph", self.graphs)):
            if not names:
                raise UsageError(f"there is no {what} to compare")
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise UsageError(f"the {what} '{name}' is given twice")
        named = [self.methods[0]] if reference is None else [text for text in self.methods if text == reference]
        named = named or [spec.text for spec in specs if spec.name == reference]
        if len(named) != 1:
            raise UsageError(f"the reference '{reference}' must be one of the methods: {', '.join(self.methods)}")
        self.reference = named[0]
        problems = [settings.problem(graph) for graph in graphs]
        for problem in problems:
            check_allocator(problem, settings.allocator)
        for spec in specs:
            if settings.evaluations is not None and not spec.method.counts_evaluations:
                raise UsageError(
                    f"method '{spec.name}' does not count evaluations; leave {spelled('evaluations')} out and limit "
                    f"the others each, as in {BUDGET_EXAMPLE}, or all by {spelled('time_limit')}"
                )
            check_supported(spec, problems[0], spec.evaluations)
        most, limit = settings.evaluations, settings.time_limit
        specs = [replace(s, evaluations=s.evaluations or most, time_limit=s.time_limit or limit) for s in specs]
        self.runs = {run.name: run for problem in problems for run in self._runs(problem, specs)}
        self.cells: dict[RunName, Cell] = {}
        self.resume: ResumeFile | None = None

    def _runs(self, problem: Problem, specs: Sequence[MethodSpec]) -> Iterator[Run]:
        digest, settings = graph_hash(problem.graph), self.settings
        for spec in specs:
            facts: dict[str, Any] = {"graph": digest, "method": spec.name, "parameters": spec.parameters.identity()}
            facts |= {"problem": problem.document(), "budget": [spec.evaluations, spec.time_limit]}
            facts |= {} if settings.allocator is None else {"allocator": str(settings.allocator)}
            for seed in range(settings.seed, settings.seed + settings.seeds):
                yield Run(problem, spec, seed, digest, key_of({**facts, "seed": seed}), settings.allocator)

    @property
    def unfinished(self) -> list[Run]:
        """The runs still to do."""
        return [run for name, run in self.runs.items() if name not in self.cells]

    def resume_from(self, file: ResumeFile | None) -> None:
        """Take over the finished runs of a file, if there is one, and write those that `execute` does to it."""
        self.resume = file
        for name, run in self.runs.items():
            if file is not None and (cell := file.find(run.key, run.problem.graph.name, run.spec.text)) is not None:
                self.cells[name] = cell

    def compile(self) -> None:
        """Compile the kernels of every method still to run; one that fails here says so in its cells."""
        for run in {run.spec.text: run for run in self.unfinished}.values():
            attempt(partial(warm_up, run.problem, run.spec))

    def execute(
        self,
        *,
        jobs: int = 1,
        on_cell: Callable[[Cell], None] = lambda cell: None,
        interrupt: threading.Event | None = None,
    ) -> Comparison:
        """Do the runs still to do; Ctrl-C ends it with those finished so far."""
        try:
            with closing(cells_of(self.unfinished, jobs, interrupt)) as finished:
                for cell in finished:
                    name = (cell.graph, cell.method, cell.seed)
                    if self.resume is not None:
                        self.resume.write(self.runs[name].key, asdict(cell))
                    self.cells[name] = cell
                    on_cell(cell)
        except KeyboardInterrupt:
            pass
        cells = tuple(self.cells[name] for name in self.runs if name in self.cells)
        return Comparison(self.settings, self.methods, self.reference, self.graphs, cells, len(self.runs))
