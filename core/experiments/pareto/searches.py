"""One search of a front, with the bound on the peak of what it found, in a worker too; finished ones on disk."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.errors import FormatError, ScheduleError, UsageError
from ...bounds.recompute_bounds import recompute_bound
from ...files.json_lines import JsonLines
from ...model.simulator import simulate
from ...model.verifier import verify
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...report.result import Result
from ...search.method_spec import parse_method
from ...search.options import ParetoOptions
from ...search.registry import DEFAULT_METHOD
from ...search.search import Watcher
from ...search.warm_up import warm_up
from ...solve.solve import solve

SPEC = parse_method(DEFAULT_METHOD)
BOUND_SHARE = 0.1
"""Of the time limit of a search, for the bound on the peak of what it found."""


_WRITTEN = (
    *("method", "found_by", "status", "lower_bound", "evaluations", "seconds", "seed", "is_repeatable", "notes"),
    "is_proven_infeasible",
)


@dataclass(frozen=True)
class SearchResult:
    """A finished search: its result, and the bytes that no schedule which takes no more time is below."""

    result: Result
    peak_bound: int


class SweepFile(JsonLines):
    """Finished searches on disk."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "a front", "name a new file to resume from")

    def find(self, key: str, problem: Problem) -> SearchResult | None:
        """Return a finished search of a problem, its schedule verified."""
        record = self.records.get(key)
        if record is None:
            return None
        try:
            schedule = Schedule.from_steps(*(record[name] for name in ("items", "sources", "targets")))
            verify(problem, schedule, enforce_limit=False)
            written: dict[str, Any] = {name: record[name] for name in _WRITTEN}
            written["notes"] = tuple(written["notes"])
            found = Result(problem, schedule, simulate(problem, schedule), **written)
            return SearchResult(found, int(record["peak_bound"]))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, UsageError, ScheduleError) as error:
            raise FormatError(f"{self.path}: a line is not of a front ({error}); name a new file") from error

    def append(self, key: str, found: SearchResult) -> None:
        """Write a finished search through to the disk."""
        result, schedule = found.result, found.result.schedule
        assert math.isfinite(result.lower_bound)
        steps = {name: getattr(schedule, name).tolist() for name in ("items", "sources", "targets")}
        written = {name: getattr(result, name) for name in _WRITTEN}
        self.write(key, {**written, "peak_bound": found.peak_bound, **steps})


def search(
    whole: Problem, problem: Problem, settings: ParetoOptions, initial: Schedule | None, interrupt: threading.Event
) -> SearchResult | None:
    """Do a search, and bound what it found under the problem of the front; None if it was interrupted."""
    result = solve(problem, SPEC, **settings.budget, initial=initial, watcher=Watcher(interrupt))
    if result.status == "interrupted":
        return None
    return SearchResult(result, _peak_bound(whole, settings, result, interrupt))


def search_there(
    whole: Problem, problem: Problem, settings: ParetoOptions, initial: Schedule | None
) -> SearchResult | None:
    """Do a search in a worker of a cluster, one thread of it, whose kernels may not be compiled yet."""
    warm_up(problem, SPEC)
    return search(whole, problem, replace(settings, jobs=1), initial, Watcher().interrupt)


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
