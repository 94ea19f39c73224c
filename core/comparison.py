"""Compare methods on graphs: every method on every graph with every seed, under the same budget (DESIGN 8)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ..version import VERSION
from .errors import SchedoptError, UsageError
from .graph import CostGraph
from .parameters import Parameters
from .problem import Problem, Task
from .registry import METHODS, MethodSpec, check_supported, parse_method
from .resume import ResumeFile, graph_hash
from .solve import Result, solve, warm_up
from .statistics import Cell, Estimate, MethodSummary, summarise

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What all runs of a comparison share.

    Parameters
    ----------
    task, devices, memory_limit, bandwidth, latency
        As in `Problem`: bytes, bytes per second, microseconds.
    evaluations, time_limit
        Budget of each run, schedules priced and seconds; by default the method's own.
    seed, seeds
        The first seed, and how many.

    Raises
    ------
    UsageError
        If a budget or the number of seeds is not positive.
    """

    task: Task = "memory"
    devices: int = 1
    memory_limit: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    evaluations: int | None = None
    time_limit: float | None = None
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        for name in ("evaluations", "time_limit", "seeds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name.replace('_', ' ')} must be above 0, not {value}")

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem that a graph poses."""
        return Problem(graph, self.task, self.devices, self.memory_limit, self.bandwidth, self.latency)

    def budget(self, spec: MethodSpec) -> tuple[int | None, float | None]:
        """Return the evaluations and seconds that a method gets: its own, the shared ones, or its default."""
        evaluations, seconds = spec.evaluations or self.evaluations, spec.time_limit or self.time_limit
        if evaluations is None and seconds is None:
            return spec.method.default_evaluations, spec.method.default_seconds
        return evaluations, seconds


@dataclass(frozen=True)
class Run:
    """A run to do: a method on a graph with a seed; `sha256` is of the graph, `key` of all that decides the result."""

    problem: Problem
    spec: MethodSpec
    seed: int
    sha256: str
    key: str


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What became of a call: its value, or the error it raised."""

    value: T | None
    error: Exception | None


def attempt(call: Callable[[], T]) -> Attempt[T]:
    """Call something that may fail in any way: the one broad `except` of the project."""
    try:
        return Attempt(call(), None)
    except Exception as error:
        return Attempt(None, error)


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def run_cell(run: Run, evaluations: int | None, time_limit: float | None) -> Cell:
    """Do a run in this process; an error makes a failed cell that says its type and message.

    Parameters
    ----------
    run
        The run.
    evaluations, time_limit
        The shared budget; the method's own comes before it.
    """
    graph = run.problem.graph
    identity: dict[str, Any] = {
        "graph": graph.name,
        "sha256": run.sha256,
        "ops": graph.num_ops,
        "method": run.spec.text,
        "seed": run.seed,
    }
    done = attempt(lambda: _solve_timed(run, evaluations, time_limit))
    if done.value is None:
        assert done.error is not None
        return Cell(**identity, status="failed", error=_reason(done.error))
    result, cpu_seconds = done.value
    return _cell(identity, result, cpu_seconds)


def _solve_timed(run: Run, evaluations: int | None, time_limit: float | None) -> tuple[Result, float]:
    for array in vars(run.problem.graph).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)  # pickling forgets it, and the kernels would be compiled once more
    warm_up(run.problem, run.spec.name)
    start = time.process_time()
    result = solve(run.problem, run.spec, evaluations=evaluations, time_limit=time_limit, seed=run.seed)
    return result, time.process_time() - start


def _cell(identity: dict[str, Any], result: Result, cpu_seconds: float) -> Cell:
    problem, peak, evaluations = result.problem, result.simulation.peak, round(result.evaluations, 3)
    return Cell(
        **identity,
        status="infeasible" if not result.is_feasible else "optimal" if result.status == "optimal" else "feasible",
        value=result.value,
        peak_memory=peak,
        runtime_us=result.simulation.runtime,
        excess=problem.fitness(peak, result.simulation.runtime)[0],
        lower_bound=int(result.lower_bound) if problem.task == "memory" else result.lower_bound,
        evaluations=int(evaluations) if evaluations.is_integer() else evaluations,
        seconds=round(result.seconds, 6),
        cpu_seconds=round(cpu_seconds, 6),
        timed_out=not result.is_repeatable,
        found_by=result.found_by,
    )


@dataclass(frozen=True)
class Comparison:
    """Finished runs, in the order graph, method, seed, which does not depend on the number of jobs.

    Parameters
    ----------
    settings
        What all runs share.
    methods, reference, graphs
        Names, as in the cells.
    cells
        The finished runs; fewer than `planned` if it was interrupted.
    planned, reused
        How many runs belong to it, and how many of the cells come from an earlier call.
    """

    settings: Settings
    methods: tuple[str, ...]
    reference: str
    graphs: tuple[str, ...]
    cells: tuple[Cell, ...]
    planned: int
    reused: int

    @property
    def is_complete(self) -> bool:
        """Whether every run is finished."""
        return len(self.cells) == self.planned

    def summaries(self) -> list[MethodSummary]:
        """Summarise each method over the graphs; see `summarise`."""
        return summarise(self.cells, self.methods, self.reference)

    def document(self) -> dict[str, Any]:
        """Return settings, summary per method and all cells as plain values for JSON."""
        summaries = []
        for summary in self.summaries():
            columns = {field.name: getattr(summary, field.name) for field in fields(summary)}
            summaries.append({k: v._asdict() if isinstance(v, Estimate) else v for k, v in columns.items()})
        settings = asdict(self.settings)
        settings["latency_us"], settings["time_limit_s"] = settings.pop("latency"), settings.pop("time_limit")
        return {
            "schedopt": VERSION,
            **settings,
            "methods": list(self.methods),
            "reference": self.reference,
            "graphs": len(self.graphs),
            "runs": len(self.cells),
            "complete": self.is_complete,
            "summary": summaries,
            "cells": [asdict(cell) for cell in self.cells],
        }

    def csv(self) -> str:
        """Return one row per cell, with a header; what a failed run lacks is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in fields(Cell)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(cell) for cell in self.cells)
        return text.getvalue()


def parse_spec(method: str | MethodSpec) -> MethodSpec:
    """Parse a method; if its own code cannot even be imported, that is left to its cells to say."""
    if isinstance(method, MethodSpec):
        return method
    parsed = attempt(lambda: parse_method(method))
    if parsed.value is not None:
        return parsed.value
    name = method.strip().partition(":")[0]
    if isinstance(parsed.error, SchedoptError) or name not in METHODS:
        assert parsed.error is not None
        raise parsed.error
    return MethodSpec(method.strip(), name, Parameters())


def _find_reference(reference: str | None, specs: Sequence[MethodSpec]) -> str:
    texts = [spec.text for spec in specs]
    if reference is None or reference in texts:
        return reference or texts[0]
    named = [spec.text for spec in specs if spec.name == reference]
    if len(named) != 1:
        raise UsageError(f"the reference '{reference}' must be one of the methods: {', '.join(texts)}")
    return named[0]


def _find_repeated(names: Sequence[str]) -> str | None:
    return next((name for number, name in enumerate(names) if name in names[:number]), None)


class Experiment:
    """All runs of a comparison, checked before the first starts; `execute` does them.

    Parameters
    ----------
    graphs
        Graphs with distinct names.
    methods
        Specs of the registry, `name:parameter=value:...`, each once.
    settings
        What all runs share.
    reference
        The method to compare with, by its spec or, if only one has it, its name; by default the first.

    Raises
    ------
    UsageError
        If a method cannot do a graph's problem, or something is missing, unknown or given twice.
    """

    def __init__(
        self,
        graphs: Sequence[CostGraph],
        methods: Sequence[str | MethodSpec],
        settings: Settings = Settings(),
        reference: str | None = None,
    ) -> None:
        self.settings = settings
        self.specs = [parse_spec(method) for method in methods]
        self.graphs = tuple(graph.name for graph in graphs)
        self.methods = tuple(spec.text for spec in self.specs)
        for what, names in (("method", self.methods), ("graph", self.graphs)):
            if not names:
                raise UsageError(f"there is no {what} to compare")
            if repeated := _find_repeated(names):
                raise UsageError(f"the {what} '{repeated}' is given twice")
        self.reference = _find_reference(reference, self.specs)
        problems = [settings.problem(graph) for graph in graphs]
        for spec in self.specs:
            self._check(spec, problems[0])
        self.runs = [run for problem in problems for run in self._runs(problem)]
        self.cells: dict[int, Cell] = {}
        self.reused = 0

    def _check(self, spec: MethodSpec, problem: Problem) -> None:
        if self.settings.evaluations is not None and not spec.method.counts_evaluations:
            raise UsageError(
                f"method '{spec.name}' does not count evaluations; leave --evaluations out and limit the others "
                "each, as in brkga:evaluations=5000, or all by --time-limit"
            )
        check_supported(spec, problem, spec.evaluations or self.settings.evaluations)

    def _runs(self, problem: Problem) -> Iterator[Run]:
        digest, settings = graph_hash(problem.graph), self.settings
        for spec in self.specs:
            facts = {
                "schedopt": VERSION,
                "graph": digest,
                "method": spec.name,
                "parameters": asdict(spec.parameters),
                "problem": [settings.task, settings.devices, settings.memory_limit],
                "transfers": [settings.bandwidth, settings.latency],
                "budget": settings.budget(spec),
            }
            for seed in range(settings.seed, settings.seed + settings.seeds):
                text = json.dumps({**facts, "seed": seed}, sort_keys=True, default=str)
                yield Run(problem, spec, seed, digest, hashlib.sha256(text.encode()).hexdigest())

    @property
    def unfinished(self) -> list[int]:
        """Indices of the runs still to do."""
        return [index for index in range(len(self.runs)) if index not in self.cells]

    def reuse(self, file: ResumeFile) -> int:
        """Take over finished runs of an earlier call; returns how many."""
        runs = enumerate(self.runs)
        found = {i: file.find(run.key, run.problem.graph.name, run.spec.text) for i, run in runs}
        self.cells.update({index: cell for index, cell in found.items() if cell is not None})
        self.reused = len(self.cells)
        return self.reused

    def compile(self) -> None:
        """Compile the kernels of every method still to run; one that fails here says so in its cells."""
        for name in dict.fromkeys(self.runs[index].spec.name for index in self.unfinished):
            attempt(partial(warm_up, self.runs[0].problem, name))

    def execute(
        self,
        *,
        jobs: int | None = None,
        resume: ResumeFile | None = None,
        on_cell: Callable[[Cell], None] = lambda cell: None,
    ) -> Comparison:
        """Do the runs still to do, through joblib; Ctrl-C ends it with those finished so far.

        Parameters
        ----------
        jobs
            Workers; by default those of the `joblib.parallel_config` around the call, else 1.
        resume
            Where each finished run is written at once.
        on_cell
            Called with each finished run, in the order of finishing.

        Raises
        ------
        UsageError
            If the workers themselves broke down.
        """
        try:
            with closing(_in_parallel(self._calls(), jobs)) as finished:
                for index, cell in finished:
                    self.cells[index] = cell
                    if resume is not None:
                        resume.append(self.runs[index].key, cell)
                    on_cell(cell)
        except KeyboardInterrupt:
            pass
        cells = tuple(self.cells[index] for index in sorted(self.cells))
        planned = len(self.runs)
        return Comparison(self.settings, self.methods, self.reference, self.graphs, cells, planned, self.reused)

    def _calls(self) -> list[tuple[int, Run, int | None, float | None]]:
        settings = self.settings
        return [(index, self.runs[index], settings.evaluations, settings.time_limit) for index in self.unfinished]


def _run_indexed(index: int, run: Run, evaluations: int | None, time_limit: float | None) -> tuple[int, Cell]:
    return index, run_cell(run, evaluations, time_limit)


def _in_parallel(calls: list[Any], jobs: int | None) -> Generator[tuple[int, Cell], None, None]:
    """Yield finished cells with their indices; whatever the workers' machinery raises is a usage error."""
    with closing(_through_joblib(calls, jobs)) as results:
        while True:
            outcome = attempt(lambda: next(results, None))
            if outcome.error is not None:
                raise UsageError(
                    f"the workers broke down ({_reason(outcome.error)}); if memory ran out use fewer --jobs, "
                    "and --resume to keep what is finished"
                ) from outcome.error
            if outcome.value is None:
                return
            yield outcome.value


def _through_joblib(calls: list[Any], jobs: int | None) -> Generator[tuple[int, Cell], None, None]:
    from joblib import Parallel, delayed, effective_n_jobs

    options = {"n_jobs": jobs, "batch_size": 1, "max_nbytes": None}
    try:
        parallel = Parallel(**options, return_as="generator_unordered")
        size = len(calls)
    except ValueError:  # Ray's backend only returns lists, so it gets a few runs at a time
        parallel = Parallel(**options)
        size = 4 * effective_n_jobs(jobs)
    for start in range(0, len(calls), max(1, size)):
        yield from parallel(delayed(_run_indexed)(*call) for call in calls[start : start + size])


def compare(
    graphs: Sequence[CostGraph],
    methods: Sequence[str | MethodSpec],
    settings: Settings = Settings(),
    *,
    reference: str | None = None,
    jobs: int | None = None,
    resume: str | Path | None = None,
    on_cell: Callable[[Cell], None] = lambda cell: None,
) -> Comparison:
    """Run every method on every graph with every seed; see `Experiment` and `Experiment.execute`.

    Parameters
    ----------
    graphs, methods, settings, reference
        As in `Experiment`.
    jobs, on_cell
        As in `Experiment.execute`.
    resume
        A file that keeps finished runs, read first; see `ResumeFile`.

    Raises
    ------
    UsageError, FormatError
        Before the first run, if anything cannot be used as given.
    """
    experiment = Experiment(graphs, methods, settings, reference)
    if resume is None:
        experiment.compile()
        return experiment.execute(jobs=jobs, on_cell=on_cell)
    with closing(ResumeFile(resume)) as file:
        experiment.reuse(file)
        experiment.compile()
        return experiment.execute(jobs=jobs, resume=file, on_cell=on_cell)
