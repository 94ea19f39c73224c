"""What the scripts of this folder share: rows of a CSV file that a script goes on from, and means with intervals."""

import csv
import time
from pathlib import Path

import schedopt
from schedopt.core.report.summaries import estimate


class Rows:
    """Rows of a CSV file, each written through as soon as it is there; those of an earlier run are kept.

    Parameters
    ----------
    path
        The file, made if it does not exist.
    fields
        Its columns.
    key
        Those of them by which a row is known.
    """

    def __init__(self, path, fields, key):
        self.path, self.fields, self.key = Path(path), fields, key
        if not self.path.exists():
            self._append(dict(zip(fields, fields, strict=True)))
        with self.path.open(newline="") as file:
            self.rows = list(csv.DictReader(file))
        if self.rows and set(self.rows[0]) != set(fields):
            raise SystemExit(f"{path}: has other columns than {', '.join(fields)}; name a new file")

    def find(self, *key):
        """Return the rows of a key, of which the last fields may be left out."""
        names = self.key[: len(key)]
        return [row for row in self.rows if tuple(row[name] for name in names) == tuple(map(str, key))]

    def add(self, **row):
        """Write a row."""
        row = {name: str(row[name]) for name in self.fields}
        self.rows.append(row)
        self._append(row)

    def _append(self, row):
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self.fields, lineterminator="\n").writerow(row)


CLOCKS = ("wall", "processor")


def use_clock(clock):
    """Let time limits be of processor time where asked: seconds then mean the same on a busy machine as on an idle one.

    A method with a clock of its own, as cp-sat, keeps to wall time within them.
    """
    if clock == "processor":
        time.monotonic = time.process_time


def solved(graph, limit, method, seconds):
    """Return what a method finds under a limit of bytes: columns of a row, times in percent of all ops once."""
    result = schedopt.solve(graph, method, memory_limit=limit, recompute=True, time_limit=seconds)
    problem = result.problem
    once = float(problem.op_times.sum())
    taken = problem.time_of(len(result.schedule), result.runtime)
    status = "infeasible" if result.is_proven_infeasible else "kept" if result.is_feasible else "not kept"
    return {
        "status": status,
        "peak": result.peak_memory,
        "added": 100 * (taken / once - 1) if result.is_feasible else "",
        "bound": "" if result.is_proven_infeasible else 100 * (result.lower_bound / once - 1),
        "found_in": round(result.seconds, 2),
        "why": " ".join(result.notes) if result.is_proven_infeasible else "",
    }


def mean(values, tried=None):
    """Write a mean in percent with half of its 95% confidence interval, and over how many values of how many tried."""
    found = estimate(values)
    of_all = "" if tried in (None, found.graphs) else f" of {tried}"
    if found.mean is None:
        return f"–{f' (n=0{of_all})' if of_all else ''}"
    interval = "" if found.half_width is None else f" ± {found.half_width:.2f}"
    return f"{found.mean:.2f}{interval}% (n={found.graphs}{of_all})"


def numbers(rows, field):
    """Return a column as numbers, empty ones left out."""
    return [float(row[field]) for row in rows if row[field]]
