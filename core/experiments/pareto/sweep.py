"""The searches of a front: both ends, then a memory limit after the other between them.

The ends are the least peak that adds no time, and the least peak at any time. On one device these are the best order
and the best schedule with recomputation; on several, the least makespan and the least peak of the fullest device. What
was found for one limit is where the search for the next lower one starts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....version import VERSION
from ...base.parallel import call_there, is_here
from ...base.units import format_bytes
from ...bounds.bounds import memory_bound
from ...files.costgraph import graph_hash
from ...graph.graph import CostGraph
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...report.result import Result
from ...search.options import ParetoOptions
from ...search.warm_up import warm_up
from .front import ParetoFront
from .points import LimitBound, front_points
from .searches import SPEC, SearchResult, SweepFile, search, search_there

Progress = Callable[[int, str], None]


class Sweep:
    """All searches of a front; `execute` does them."""

    def __init__(self, graph: CostGraph, settings: ParetoOptions = ParetoOptions()) -> None:
        self.graph, self.settings = graph, settings
        self.problem = settings.problem(graph)
        self.file: SweepFile | None = None
        self.interrupt = threading.Event()
        self.progress: Progress = lambda done, what: None
        self.found: list[SearchResult] = []
        self.resumed = 0
        self.planned = settings.points + 1
        self._digest = graph_hash(graph)

    def resume_from(self, file: SweepFile | None) -> None:
        """Take over the finished searches of a file, if there is one, and write those that `execute` does to it."""
        self.file = file

    def compile(self) -> None:
        """Compile the kernels of all searches."""
        for problem in (self._least_time(), self.problem, self._limited(1 + int(self.graph.persistent.sum()))):
            warm_up(problem, SPEC)

    def execute(self, progress: Progress | None = None, interrupt: threading.Event | None = None) -> ParetoFront:
        """Do the searches; Ctrl-C ends it with those finished so far."""
        self.progress, self.interrupt = progress or self.progress, interrupt or self.interrupt
        self.found.clear()
        bounds: list[LimitBound] = []
        least_peak, once = memory_bound(self.problem), float(self.problem.op_times.sum())
        try:
            first = self._search(self._least_time(), None, "the least peak of any order")
            bounds.append(LimitBound(first.peak_memory, once if self.problem.recompute else first.lower_bound))
            last = self._search(self.problem, first.schedule, "the least peak at any time")
            least_peak = max(least_peak, int(last.lower_bound))
            limits = self._limits(first.peak_memory, last.peak_memory)
            self.planned = 2 + len(limits)
            start = first
            for limit in limits:
                start = self._search(self._limited(limit), start.schedule, "the least time")
                bounds.append(LimitBound(limit, max(start.lower_bound, bounds[-1].time)))
        except KeyboardInterrupt:
            pass
        found = [(one.result, max(least_peak, one.peak_bound)) for one in self.found]
        points = front_points(self.problem, found, bounds)
        return ParetoFront(
            self.problem, points, tuple(bounds), least_peak, self.settings, len(self.found), self.planned
        )

    def _least_time(self) -> Problem:
        """Return the problem of the end that adds no time."""
        return replace(self.problem, recompute=False, task="memory" if self.problem.recompute else "runtime")

    def _limited(self, limit: int) -> Problem:
        return replace(self.problem, task="runtime", memory_limit=limit)

    def _limits(self, high: int, low: int) -> list[int]:
        """Return the limits between both ends, from high to low, that one included; none if the ends are the same."""
        gaps = self.settings.points - 1
        limits = [high - round(number * (high - low) / gaps) for number in range(1, gaps + 1)]
        return sorted({limit for limit in limits if limit < high}, reverse=True)

    def _search(self, problem: Problem, initial: Schedule | None, what: str) -> Result:
        """Do a search, or take it from the file."""
        limit = "" if problem.memory_limit is None else f" within {format_bytes(problem.memory_limit)}"
        self.progress(len(self.found), f"{what}{limit}")
        key = self._key(problem)
        found = None if self.file is None else self.file.find(key, problem)
        self.resumed += found is not None
        if found is None:
            asked = self.problem, problem, self.settings, initial
            if is_here(1):
                found = search(*asked, self.interrupt)
            else:
                found = call_there(search_there, *asked, must_stop=self.interrupt.is_set)
            if found is None:
                raise KeyboardInterrupt
            if self.file is not None:
                self.file.append(key, found)
        self.found.append(found)
        return found.result

    def _key(self, problem: Problem) -> str:
        """Return a hash of all that decides a search, but for where it starts."""
        settings = self.settings
        facts: dict[str, Any] = {
            "schedopt": VERSION,
            "graph": self._digest,
            "problem": problem.document(),
            "budget": [settings.evaluations, settings.time_limit, settings.seed],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
