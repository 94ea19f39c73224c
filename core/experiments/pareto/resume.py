"""Finished searches of a front on disk, so that it goes on where it stopped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import FormatError, ScheduleError, UsageError
from ...files.json_lines import JsonLines
from ...model.simulator import simulate
from ...model.verifier import verify
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...report.result import Result

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
