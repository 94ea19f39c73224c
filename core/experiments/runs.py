"""The runs of a comparison: a method on a graph with a seed, done by processes or by a cluster, and kept on disk."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..base.errors import ClusterError, FormatError, UsageError
from ..base.options import spelled
from ..base.parallel import is_here, map_as_ended
from ..files.json_lines import JsonLines
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..report.result import Result
from ..report.summaries import Cell, Status
from ..search.method_spec import MethodSpec
from ..search.search import Watcher
from ..search.settings import from_plain
from ..search.warm_up import warm_up
from ..solve.solve import solve

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
        return _failed(run, done)
    result, cpu_seconds = done
    problem, peak, evaluations = result.problem, result.simulation.peak, round(result.evaluations, 3)
    return Cell(
        **_identity(run),
        status=_status(result),
        value=result.value,
        peak_memory=peak,
        runtime_us=result.simulation.runtime,
        excess=problem.fitness(
            result.simulation.peak_per_device.tolist(), problem.time_of(len(result.schedule), result.simulation.runtime)
        )[0],
        lower_bound=int(result.lower_bound) if problem.task == "memory" else result.lower_bound,
        evaluations=int(evaluations) if evaluations.is_integer() else evaluations,
        seconds=round(result.seconds, 6),
        cpu_seconds=round(cpu_seconds, 6),
        timed_out=not result.is_repeatable,
        found_by=result.found_by,
        note="; ".join(result.notes),
    )


def _status(result: Result) -> Status:
    if result.is_feasible:
        return "optimal" if result.status == "optimal" else "feasible"
    return "infeasible" if result.is_proven_infeasible else "limit-not-met"


def _identity(run: Run) -> dict[str, Any]:
    graph = run.problem.graph
    return {
        "graph": graph.name,
        "sha256": run.sha256,
        "ops": model_of(graph).num_ops,
        "method": run.spec.text,
        "seed": run.seed,
    }


def _failed(run: Run, error: BaseException) -> Cell:
    return Cell(**_identity(run), status="failed", error=_reason(error))


def _solve_timed(run: Run, interrupt: threading.Event | None) -> tuple[Result, float]:
    warm_up(run.problem, run.spec)
    start = time.process_time()
    result = solve(run.problem, run.spec, seed=run.seed, watcher=None if interrupt is None else Watcher(interrupt))
    return result, time.process_time() - start


def one_by_one(runs: list[Run], interrupt: threading.Event) -> Generator[Cell, None, None]:
    """Yield each run's cell, done in this process, until it is interrupted."""
    for run in runs:
        cell = run_cell(run, interrupt)
        if interrupt.is_set():
            return
        yield cell


def in_parallel(runs: list[Run], jobs: int) -> Generator[Cell, None, None]:
    """Yield cells as they finish, done by workers; what breaks these is a usage error, or that of the cluster."""
    if is_here(jobs):
        yield from map(run_cell, runs)
        return
    with closing(map_as_ended(run_cell, runs, jobs)) as ended:
        for run, future in ended:
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                raise UsageError(
                    f"the workers broke down ({_reason(error)}); if memory ran out use fewer {spelled('jobs')}, "
                    f"and {spelled('resume')} to keep what is finished"
                ) from error
            if isinstance(error, ClusterError):
                raise error
            yield future.result() if error is None else _failed(run, error)


class ResumeFile(JsonLines):
    """Finished cells on disk, so that a comparison goes on where it stopped.

    Failed runs are kept for the record and tried again.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "a comparison", "name a new file to resume from")

    def find(self, key: str, graph: str, method: str) -> Cell | None:
        """Return the finished cell of a run, unless it failed, under the names that graph and method have now."""
        record = self.records.get(key)
        if record is None or record.get("status") == "failed":
            return None
        written = {**record, "graph": graph, "method": method}
        try:
            read = asdict(from_plain(Cell, written, "a line"))
            if any(isinstance(value, str) != isinstance(read[name], str) for name, value in written.items()):
                raise UsageError("a number is written as a text")
            if not all(0 <= value < math.inf for value in written.values() if isinstance(value, (int, float))):
                raise UsageError("a number is negative or not finite")
            return Cell(**written)
        except (TypeError, UsageError) as error:
            raise FormatError(
                f"{self.path}: a line lacks fields of a comparison, or has others ({error}); name a new file"
            ) from error

    def append(self, key: str, cell: Cell) -> None:
        """Write a finished cell through to the disk."""
        self.write(key, asdict(cell))


def opened(kind: Callable[[str], File], path: str | os.PathLike[str] | None) -> AbstractContextManager[File | None]:
    """Open a file of finished runs, if one is named."""
    return nullcontext() if path is None else closing(kind(os.fspath(path)))
