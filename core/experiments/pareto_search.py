"""The searches of a front: both ends, then a memory limit after the other between them; finished ones on disk.

The ends are the least peak that adds no time, on several devices the least makespan, and the least peak at any time.
Each search starts from the schedule found for the limit above.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..base.parallel import call_in_worker, is_here
from ..base.units import format_bytes
from ..bounds.bounds import memory_bound
from ..bounds.recompute_bounds import recompute_bound
from ..files.costgraph import graph_hash
from ..files.json_lines import JsonLines, key_of
from ..files.schedule_json import read_reserved, reserved_fields
from ..graph.graph import CostGraph
from ..model.reserved import verify_reserved
from ..model.simulator import simulate
from ..model.verifier import verify
from ..problem.machine import ByteMachine
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..report.result import Result
from ..search.method_spec import parse_method
from ..search.options import ParetoOptions
from ..search.registry import DEFAULT_METHOD
from ..search.search import Watcher
from ..search.warm_up import warm_up
from ..solve.placed import check_allocator, solve_and_place, warm_up_places
from .pareto_front import LimitBound, ParetoFront, front_points

SPEC = parse_method(DEFAULT_METHOD)
BOUND_SHARE = 0.1
"""Of the time limit of a search, for the bound on the peak of its schedule."""

_WRITTEN = (
    *("method", "found_by", "status", "lower_bound", "evaluations", "seconds", "seed", "is_repeatable", "notes"),
    "is_proven_infeasible",
)

Found = tuple[Result, int]
"""A finished search: its result, and the bytes that no schedule which takes no more time is below."""


class SweepFile(JsonLines):
    """Finished searches on disk."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, "a front", "name a new file to resume from")

    def find(self, key: str, problem: Problem) -> Found | None:
        """Return a finished search of a problem, its schedule verified."""
        record = self.records.get(key)
        if record is None:
            return None
        schedule = Schedule.from_steps(*(record[name] for name in ("items", "sources", "targets")))
        verify(problem, schedule, enforce_limit=False)
        written: dict[str, Any] = {name: record[name] for name in (*_WRITTEN, "reserved_otherwise")}
        written |= {"notes": tuple(record["notes"]), "reserved": read_reserved(record, self.path)}
        if written["reserved"] is not None:
            verify_reserved(problem, schedule, written["reserved"])
        return Result(problem, schedule, simulate(problem, schedule), **written), record["peak_bound"]

    def append(self, key: str, found: Found) -> None:
        """Write a finished search through to the disk."""
        result, bound = found
        assert math.isfinite(result.lower_bound)
        steps = {name: getattr(result.schedule, name).tolist() for name in ("items", "sources", "targets")}
        steps |= {"reserved_otherwise": result.reserved_otherwise, **reserved_fields(result.reserved)}
        self.write(key, {**{name: getattr(result, name) for name in _WRITTEN}, "peak_bound": bound, **steps})


def search(
    whole: Problem, problem: Problem, settings: ParetoOptions, initial: Schedule | None, interrupt: threading.Event
) -> Found | None:
    """Do a search, and bound its schedule under the problem of the front; None if it was interrupted."""
    given = {**settings.budget, "initial": initial, "watcher": Watcher(interrupt)}
    result = solve_and_place(problem, SPEC, None, settings.allocator, **given)
    return None if result.status == "interrupted" else (result, _peak_bound(whole, settings, result, interrupt))


def search_in_worker(
    whole: Problem, problem: Problem, settings: ParetoOptions, initial: Schedule | None
) -> Found | None:
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
    seconds = math.inf
    if settings.time_limit is not None or settings.evaluations is None:
        seconds = BOUND_SHARE * (settings.time_limit or SPEC.method.default_seconds or math.inf)
    deadline = time.monotonic() + seconds
    within = replace(problem, runtime_limit=max(taken, total))
    bound = int(recompute_bound(within, order, memory, stop=lambda: interrupt.is_set() or time.monotonic() > deadline))
    if not result.problem.recompute and problem.op_times.all():  # without added time nothing runs again
        bound = max(bound, int(result.lower_bound), result.reserved.bound if result.reserved else 0)
    return bound


Progress = Callable[[int, str], None]


class Sweep:
    """All searches of a front; `execute` does them."""

    def __init__(self, graph: CostGraph, settings: ParetoOptions = ParetoOptions()) -> None:
        self.graph, self.settings = graph, settings
        self.problem = problem = settings.problem(graph)
        if (machine := problem.machine).counts_shares:  # the front is in bytes
            given = (getattr(machine, field.name) for field in fields(machine))
            self.problem = replace(problem, machine=ByteMachine(*given))
        check_allocator(self._least_time(), settings.allocator)
        self.file: SweepFile | None = None  # of finished searches, which those that `execute` does are written to
        self.interrupt = threading.Event()
        self.progress: Progress = lambda done, what: None
        self.found: list[Found] = []
        self.resumed = 0
        self.planned = settings.points + 1
        self._digest = graph_hash(graph)

    def compile(self) -> None:
        """Compile the kernels of all searches."""
        for problem in (self._least_time(), self.problem, self._limited(1 + int(self.graph.persistent.sum()))):
            warm_up(problem, SPEC)
        warm_up_places(addresses=False, allocator=self.settings.allocator is not None)

    def execute(self, progress: Progress | None = None, interrupt: threading.Event | None = None) -> ParetoFront:
        """Do the searches; Ctrl-C ends it with those finished so far."""
        self.progress, self.interrupt = progress or self.progress, interrupt or self.interrupt
        self.found.clear()
        bounds: list[LimitBound] = []
        least_peak, once = memory_bound(self.problem), float(self.problem.op_times.sum())
        try:
            first = self._search(self._least_time(), None, "the least peak of any order")
            bounds.append(LimitBound(first.limited_peak, once if self.problem.recompute else first.lower_bound))
            last = self._search(self.problem, first.schedule, "the least peak at any time")
            least_peak = max(least_peak, int(last.lower_bound), last.reserved.bound if last.reserved else 0)
            high, low, gaps = first.limited_peak, last.limited_peak, self.settings.points - 1
            steps = {high - round(number * (high - low) / gaps) for number in range(1, gaps + 1)}
            limits = sorted((limit for limit in steps if limit < high), reverse=True)
            self.planned = 2 + len(limits)
            start = first
            for limit in limits:
                start = self._search(self._limited(limit), start.schedule, "the least time")
                bounds.append(LimitBound(limit, max(start.lower_bound, bounds[-1].time)))
        except KeyboardInterrupt:
            pass
        found = [(result, max(least_peak, bound)) for result, bound in self.found]
        points = front_points(self.problem, found, bounds)
        return ParetoFront(self.problem, points, tuple(bounds), least_peak, self.settings, len(found), self.planned)

    def _least_time(self) -> Problem:
        """Return the problem of the end that adds no time."""
        return replace(self.problem, recompute=False, task="memory" if self.problem.recompute else "runtime")

    def _limited(self, limit: int) -> Problem:
        return replace(self.problem, task="runtime", memory_limit=limit)

    def _search(self, problem: Problem, initial: Schedule | None, what: str) -> Result:
        """Do a search, or take it from the file."""
        limit = "" if problem.memory_limit is None else f" within {format_bytes(problem.memory_limit)}"
        self.progress(len(self.found), f"{what}{limit}")
        key = self._key(problem)
        found = None if self.file is None else self.file.find(key, problem)
        self.resumed += found is not None
        if found is None:
            asked, stop = (self.problem, problem, self.settings, initial), self.interrupt
            is_near = is_here(1)
            found = search(*asked, stop) if is_near else call_in_worker(search_in_worker, *asked, must_stop=stop.is_set)
            if found is None:
                raise KeyboardInterrupt
            if self.file is not None:
                self.file.append(key, found)
        self.found.append(found)
        return found[0]

    def _key(self, problem: Problem) -> str:
        """Return a hash of all that decides a search, but for where it starts."""
        budget = [self.settings.evaluations, self.settings.time_limit, self.settings.seed]
        allocator = {} if self.settings.allocator is None else {"allocator": str(self.settings.allocator)}
        return key_of({"graph": self._digest, "problem": problem.document(), "budget": budget, **allocator})
