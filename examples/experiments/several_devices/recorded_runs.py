"""What the scripts beside this one share: limits of processor time, and runs that are kept and not made again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def count_processor_time() -> None:
    """Let time limits be of processor time, cp-sat's own, too: then only schedopt's look at the clock ends it."""
    from ortools.sat.python import cp_model

    solve = cp_model.CpSolver.solve

    def without_limit(solver: Any, *arguments: Any) -> Any:
        solver.parameters.max_time_in_seconds = 1e9
        return solve(solver, *arguments)

    cp_model.CpSolver.solve = without_limit
    share_processor_time(1)


def share_processor_time(workers: int) -> None:
    """Let a second of time limits be one of each of so many workers, who work at once."""
    time.monotonic = lambda: time.process_time() / workers


class RecordedRuns:
    """What runs gave, of this and of earlier runs of a script: a line of the file each, `[key, what it gave]`."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file and file.exists() else []
        self.done = {json.dumps(key): found for key, found in map(json.loads, lines)}

    def found(self, key: list[Any], run: Callable[[], list[Any]]) -> list[Any]:
        """Return what the run of a key gave, and run it if it is not known."""
        name = json.dumps(key)
        if name not in self.done:
            self.done[name] = run()
            if self.file:
                with self.file.open("a") as out:
                    out.write(json.dumps([key, self.done[name]]) + "\n")
        return self.done[name]
