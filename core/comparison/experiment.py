"""Compare methods on graphs: every method on every graph with every seed, under the same budget (DESIGN 8)."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...version import VERSION
from ..errors import SchedoptError, UsageError
from ..graph import CostGraph
from ..problem import Problem
from ..search.method_spec import MethodSpec, check_supported, parse_method
from ..search.parameters import Parameters
from ..search.registry import BUDGET_EXAMPLE
from ..search.search import Watcher
from ..search.warm_up import warm_up
from ..solve import Result, solve
from .comparison import Comparison as Comparison
from .resume import ResumeFile, graph_hash
from .settings import Settings as Settings
from .summaries import Cell

T = TypeVar("T")
RunName: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True)
class Run:
    """A run to do: a method, with its budget, on a graph with a seed.

    Parameters
    ----------
    problem, spec, seed
        What to solve, how, and the seed of every random choice.
    sha256
        Of the graph.
    key
        A hash of all that decides the result.
    """

    problem: Problem
    spec: MethodSpec
    seed: int
    sha256: str
    key: str


def attempt(call: Callable[[], T]) -> T | Exception:
    """Call something that may fail in any way, and return its error: the one broad `except` of the project."""
    try:
        return call()
    except Exception as error:
        return error


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def run_cell(run: Run, interrupt: threading.Event | None = None) -> Cell:
    """Do a run in this process; an error makes a failed cell that says its type and message."""
    graph = run.problem.graph
    identity: dict[str, Any] = {
        "graph": graph.name,
        "sha256": run.sha256,
        "ops": graph.num_ops,
        "method": run.spec.text,
        "seed": run.seed,
    }
    done = attempt(lambda: _solve_timed(run, interrupt))
    if isinstance(done, Exception):
        return Cell(**identity, status="failed", error=_reason(done))
    result, cpu_seconds = done
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
        note="; ".join(result.notes),
    )


def _solve_timed(run: Run, interrupt: threading.Event | None) -> tuple[Result, float]:
    for array in vars(run.problem.graph).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)  # pickling forgets it, and the kernels would be compiled once more
    warm_up(run.problem, run.spec)
    start = time.process_time()
    result = solve(run.problem, run.spec, seed=run.seed, watcher=None if interrupt is None else Watcher(interrupt))
    return result, time.process_time() - start


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


def _find_reference(reference: str | None, specs: Sequence[MethodSpec]) -> str:
    texts = [spec.text for spec in specs]
    if reference is None or reference in texts:
        return reference or texts[0]
    named = [spec.text for spec in specs if spec.name == reference]
    if len(named) != 1:
        raise UsageError(f"the reference '{reference}' must be one of the methods: {', '.join(texts)}")
    return named[0]


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
        specs = [parse_spec(method) for method in methods]
        self.settings = settings
        self.graphs = tuple(graph.name for graph in graphs)
        self.methods = tuple(spec.text for spec in specs)
        for what, names in (("method", self.methods), ("graph", self.graphs)):
            if not names:
                raise UsageError(f"there is no {what} to compare")
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise UsageError(f"the {what} '{name}' is given twice")
        self.reference = _find_reference(reference, specs)
        problems = [settings.problem(graph) for graph in graphs]
        for spec in specs:
            self._check(spec, problems[0])
        specs = [
            replace(
                spec,
                evaluations=spec.evaluations or settings.evaluations,
                time_limit=spec.time_limit or settings.time_limit,
            )
            for spec in specs
        ]
        self.runs = {_name(run): run for problem in problems for run in self._runs(problem, specs)}
        self.cells: dict[RunName, Cell] = {}
        self.resume: ResumeFile | None = None

    def _check(self, spec: MethodSpec, problem: Problem) -> None:
        if self.settings.evaluations is not None and not spec.method.counts_evaluations:
            raise UsageError(
                f"method '{spec.name}' does not count evaluations; leave --evaluations out and limit the others "
                f"each, as in {BUDGET_EXAMPLE}, or all by --time-limit"
            )
        check_supported(spec, problem, spec.evaluations)

    def _runs(self, problem: Problem, specs: Sequence[MethodSpec]) -> Iterator[Run]:
        digest, settings = graph_hash(problem.graph), self.settings
        for spec in specs:
            facts = {
                "schedopt": VERSION,
                "graph": digest,
                "method": spec.name,
                "parameters": spec.parameters.identity(),
                "problem": [settings.task, settings.devices, problem.memory_limit],
                "transfers": [settings.bandwidth, settings.latency],
                "budget": [spec.evaluations, spec.time_limit],
            }
            for seed in range(settings.seed, settings.seed + settings.seeds):
                text = json.dumps({**facts, "seed": seed}, sort_keys=True, default=str)
                yield Run(problem, spec, seed, digest, hashlib.sha256(text.encode()).hexdigest())

    @property
    def unfinished(self) -> list[Run]:
        """The runs still to do."""
        return [run for name, run in self.runs.items() if name not in self.cells]

    def resume_from(self, file: ResumeFile) -> None:
        """Take over the finished runs of a file, and write those that `execute` does to it."""
        self.resume = file
        for name, run in self.runs.items():
            cell = file.find(run.key, run.problem.graph.name, run.spec.text)
            if cell is not None:
                self.cells[name] = cell

    def compile(self) -> None:
        """Compile the kernels of every method still to run; one that fails here says so in its cells."""
        for run in {run.spec.text: run for run in self.unfinished}.values():
            attempt(partial(warm_up, run.problem, run.spec))

    def execute(
        self,
        *,
        jobs: int | None = None,
        on_cell: Callable[[Cell], None] = lambda cell: None,
        interrupt: threading.Event | None = None,
    ) -> Comparison:
        """Do the runs still to do, through joblib; Ctrl-C ends it with those finished so far.

        Parameters
        ----------
        jobs
            Workers; by default those of the `joblib.parallel_config` around the call, else 1.
        on_cell
            Called with each finished run, in the order of finishing.
        interrupt
            If given, the runs are done one by one in this process, until it is set.

        Raises
        ------
        UsageError
            If the workers themselves broke down.
        """
        try:
            todo = self.unfinished
            with closing(_in_parallel(todo, jobs) if interrupt is None else _one_by_one(todo, interrupt)) as finished:
                for cell in finished:
                    name = (cell.graph, cell.method, cell.seed)
                    if self.resume is not None:
                        self.resume.append(self.runs[name].key, cell)
                    self.cells[name] = cell
                    on_cell(cell)
        except KeyboardInterrupt:
            pass
        cells = tuple(self.cells[name] for name in self.runs if name in self.cells)
        return Comparison(self.settings, self.methods, self.reference, self.graphs, cells, len(self.runs))


def _name(run: Run) -> RunName:
    return run.problem.graph.name, run.spec.text, run.seed


def _one_by_one(runs: list[Run], interrupt: threading.Event) -> Generator[Cell, None, None]:
    for run in runs:
        cell = run_cell(run, interrupt)
        if interrupt.is_set():
            return
        yield cell


def _in_parallel(runs: list[Run], jobs: int | None) -> Generator[Cell, None, None]:
    """Yield cells as they finish; whatever the workers' machinery raises is a usage error."""
    with closing(_through_joblib(runs, jobs)) as cells:
        while True:
            cell = attempt(lambda: next(cells, None))
            if isinstance(cell, Exception):
                raise UsageError(
                    f"the workers broke down ({_reason(cell)}); if memory ran out use fewer --jobs, "
                    "and --resume to keep what is finished"
                ) from cell
            if cell is None:
                return
            yield cell


def _through_joblib(runs: list[Run], jobs: int | None) -> Generator[Cell, None, None]:
    from joblib import Parallel, delayed, effective_n_jobs

    options = {"n_jobs": jobs, "batch_size": 1, "max_nbytes": None}
    try:
        parallel = Parallel(**options, return_as="generator_unordered")
        size = len(runs)
    except ValueError:  # Ray's backend only returns lists, so it gets a few runs at a time
        parallel = Parallel(**options)
        size = 4 * effective_n_jobs(jobs)
    for start in range(0, len(runs), max(1, size)):
        yield from parallel(delayed(run_cell)(run) for run in runs[start : start + size])
