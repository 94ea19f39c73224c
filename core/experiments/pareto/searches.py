"""One search of a front, with the bound on the peak of what it found: in this process or in a worker."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace

from ...bounds.recompute_bounds import recompute_bound
from ...model.simulator import simulate
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...report.result import Result
from ...search.method_spec import parse_method
from ...search.registry import DEFAULT_METHOD
from ...search.search import Watcher
from ...search.warm_up import warm_up
from ...solve.solve import solve
from ..options import ParetoOptions
from .resume import SearchResult

SPEC = parse_method(DEFAULT_METHOD)
BOUND_SHARE = 0.1
"""Of the time limit of a search, for the bound on the peak of what it found."""


@dataclass(frozen=True)
class SearchJob:
    """A search that is asked for."""

    whole: Problem
    problem: Problem
    settings: ParetoOptions
    initial: Schedule | None


def search(job: SearchJob, interrupt: threading.Event) -> SearchResult | None:
    """Do a search, and bound what it found; None if it was interrupted."""
    settings = job.settings
    result = solve(job.problem, SPEC, **settings.budget, initial=job.initial, watcher=Watcher(interrupt))
    if result.status == "interrupted":
        return None
    return SearchResult(result, _peak_bound(job.whole, settings, result, interrupt))


def search_there(job: SearchJob) -> SearchResult | None:
    """Do a search in a worker of a cluster, one thread of it, whose kernels may not be compiled yet."""
    warm_up(job.problem, SPEC)
    return search(replace(job, settings=replace(job.settings, jobs=1)), Watcher().interrupt)


def _peak_bound(problem: Problem, settings: ParetoOptions, result: Result, interrupt: threading.Event) -> int:
    """Return the bytes that no schedule is below which takes no more time than a result."""
    if not problem.recompute:
        return int(result.lower_bound) if result.problem.task == "memory" else 0
    total = float(problem.op_times.sum())
    taken = problem.time_of(len(result.schedule), result.runtime)
    order = result.schedule.first_runs()
    memory = simulate(problem, Schedule.single_device(order)).step_memory
    deadline = time.monotonic() + _bound_seconds(settings)
    within = replace(problem, runtime_limit=max(taken, total))
    bound = int(recompute_bound(within, order, memory, stop=lambda: interrupt.is_set() or time.monotonic() > deadline))
    if not result.problem.recompute and problem.op_times.all():  # without added time nothing runs again
        bound = max(bound, int(result.lower_bound))
    return bound


def _bound_seconds(settings: ParetoOptions) -> float:
    if settings.time_limit is None and settings.evaluations is not None:
        return math.inf
    return BOUND_SHARE * (settings.time_limit or SPEC.method.default_seconds or math.inf)
