"""The runs of a comparison: a method on a graph with a seed, done one by one, by processes or by a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from ..base.errors import ClusterError, UsageError
from ..base.options import spelled
from ..base.parallel import is_here, map_as_ended
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..report.result import Result
from ..report.summaries import Cell, Status
from ..search.method_spec import MethodSpec
from ..search.search import Watcher
from ..search.warm_up import warm_up
from ..solve.solve import solve

T = TypeVar("T")


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
