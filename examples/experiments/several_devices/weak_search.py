"""Where `auto` with little time is furthest from `auto` with much, and what other starts than its own do for it there.

usage: python examples/experiments/several_devices/weak_search.py FOLDER [--third] [--graphs N] [--skip N]
       [--seconds 1 10 60] [--starts none METHOD...] [--tasks runtime memory] [--kinds synthetic layered real]
       [--ops 100 1000 10000] [--devices 2 4 8] [--transfers free paid] [--limits none 60%]
       [--settled SHARE] [--clock processor|wall, default processor] [--resume FILE.jsonl]
    FOLDER has a folder of graphs for each kind and number of ops, as FOLDER/real-1000. For SIZE 100 and 1000
        schedopt gen synthetic FOLDER/synthetic-SIZE --nodes SIZE-2 --count 12 --seed 20
        schedopt gen layered FOLDER/layered-SIZE --nodes SIZE --count 12 --seed 20
    and for 10000 the same with --count 4 and --model barabasi-albert,watts-strogatz, as the other models are dense.
A cell is a task, a kind, a number of ops, whether transfers take time, a memory limit, and a number of devices. Of
its folder's graphs it takes N from a place of its own on, so that cells with one graph each do not all have the same;
--skip takes the graphs after so many. With --third, only every third cell is run: in turn 2, 4 and 8 devices. Paid
transfers are 1 MB/s and 20 us for synthetic graphs, whose tensors are tens of bytes, 10 GB/s and 5 us for the others.
Layered graphs have no runtimes: an op takes 0.2 ns for each byte that it makes, so that sending it takes half as long
as making it. The peak is without transfers that cost and without a limit.

A row per cell: how far `auto` is above the best that any run found, for each time but the longest, and how far this
best is above the best bound, both means with 95% confidence intervals. A start other than none is a method whose
schedule is given to `auto`, with the rest of the same time; of these, how much lower they are than `auto` alone in the
same time, graph by graph. What is loaded for a start (torch) is loaded before. Last, the cells from the weakest on.
With --settled 0.01 no longer runs are made where the shortest is within 1% of its bound, or proves that nothing fits:
they could gain no more.
With the clock of the processor, its default, seconds are of processor time, so that other work on the machine does not
shorten them.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import schedopt
from recorded_runs import RecordedRuns, count_processor_time

TASKS, KINDS, OPS = ("runtime", "memory"), ("synthetic", "layered", "real"), (100, 1_000, 10_000)
TRANSFERS, LIMITS, DEVICES = ("free", "paid"), ("none", "60%"), (2, 4, 8)
LINKS = {"synthetic": ("1MB/s", "20us"), "layered": ("10GB/s", "5us"), "real": ("10GB/s", "5us")}
MICROSECONDS_PER_BYTE = 2e-4
ALONE = "none"


@dataclass(frozen=True)
class Cell:
    """What to solve, and where in its folder its graphs begin."""

    task: Any
    kind: str
    ops: int
    transfers: str
    limit: str
    devices: int
    place: int

    def settings(self) -> dict[str, Any]:
        """Return what `schedopt.solve` is told of it."""
        bandwidth, latency = LINKS[self.kind] if self.transfers == "paid" else (None, None)
        limit = None if self.limit == "none" else self.limit
        links = {"bandwidth": bandwidth, "latency": latency}
        return {"task": self.task, "devices": self.devices, "memory_limit": limit, **links}

    def files(self, folder: Path, skip: int, count: int) -> list[Path]:
        """Return its graphs."""
        found = sorted((folder / f"{self.kind}-{self.ops}").glob("*.pb.gz"))
        count = max(0, min(count, len(found) - skip))
        return [found[(self.place + skip + at) % len(found)] for at in range(count)]

    def __str__(self) -> str:
        """Return its row's name."""
        return f"{self.task} {self.kind} {self.ops}, {self.transfers}, {self.limit}, {self.devices} devices"


def main() -> None:
    """Print a row per cell, and the cells from the weakest on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--third", action="store_true")
    parser.add_argument("--graphs", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0])
    parser.add_argument("--starts", nargs="+", default=[ALONE])
    for name, choices in (("tasks", TASKS), ("kinds", KINDS), ("transfers", TRANSFERS), ("limits", LIMITS)):
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=choices)
    parser.add_argument("--ops", type=int, nargs="+", choices=OPS, default=OPS)
    parser.add_argument("--devices", type=int, nargs="+", choices=DEVICES, default=DEVICES)
    parser.add_argument("--settled", type=float)
    parser.add_argument("--clock", choices=("processor", "wall"), default="processor")
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    if given.clock == "processor":
        count_processor_time()
    _load(given.starts)
    runs, rows = RecordedRuns(given.resume), []
    for cell in _cells(given):
        files = cell.files(given.folder, given.skip, given.graphs)
        if files:
            rows.append((_print_row(cell, files, given, runs), str(cell)))
    print("from the weakest on:")
    for above, name in sorted(rows, reverse=True):
        print(f"  {above:7.2%}  {name}")


def _cells(given: argparse.Namespace) -> list[Cell]:
    """Return the cells that are asked for; each has its place whatever else is asked for."""
    sides = (TASKS, KINDS, OPS, TRANSFERS, LIMITS, DEVICES)
    asked = [getattr(given, name) for name in ("tasks", "kinds", "ops", "transfers", "limits", "devices")]
    cells = []
    for place, values in enumerate(product(*sides)):
        task, _, _, transfers, limit, _ = values
        is_known = task == "runtime" or (transfers, limit) == (TRANSFERS[0], LIMITS[0])
        turn = sum(side.index(value) for side, value in zip(sides, values, strict=True))
        is_asked = all(value in chosen for value, chosen in zip(values, asked, strict=True))
        if is_known and is_asked and not (given.third and turn % 3):
            cells.append(Cell(*values, place=place // 3))
    return cells


def _load(starts: list[str]) -> None:
    """Load and compile what the starts need, so that no run is charged for it."""
    builder = schedopt.GraphBuilder("two")
    source = builder.add_op("source", outputs=[8], runtime=1.0)
    builder.add_op("sink", inputs=[(source, 0)], outputs=[8], runtime=1.0)
    graph = builder.build()
    for start in starts:
        if start != ALONE:
            for task in TASKS:
                schedopt.solve(graph, start, task=task, devices=2, time_limit=5)


def graph_of(file: Path, kind: str) -> Any:
    """Return a graph, with runtimes if it is layered."""
    graph = schedopt.read_graph(file)
    if kind == "layered":
        made = np.add.reduceat(graph.tensor_size, graph.output_ptr[:-1]).astype(float)
        runtime = made * MICROSECONDS_PER_BYTE
        runtime.flags.writeable = False  # as all arrays of graphs, for which the kernels are compiled
        graph = replace(graph, runtime=runtime)
    return graph


def _solved(file: Path, cell: Cell, start: str, seconds: float) -> list[Any]:
    """Return the value that is reached, the bound, the seconds used, and those of the start.

    The value is None above the limit, and the bound infinite where no schedule keeps it.
    """
    graph = graph_of(file, cell.kind)
    first = None if start == ALONE else schedopt.solve(graph, start, **cell.settings(), time_limit=seconds)
    used = first.seconds if first else 0.0
    result = first
    if first is None or (used < seconds and first.status != "optimal"):
        initial = first.schedule if first else None
        result = schedopt.solve(graph, "auto", **cell.settings(), time_limit=seconds - used, initial=initial)
    value = None if result.status in ("limit-not-met", "infeasible") else result.value
    bound = math.inf if result.status == "infeasible" else result.lower_bound
    return [value, bound, round(used + (result.seconds if result is not first else 0), 3), round(used, 3)]


def _print_row(cell: Cell, files: list[Path], given: argparse.Namespace, runs: RecordedRuns) -> float:
    """Print a cell's row, and return how far `auto` alone in the shortest time is above the best."""
    columns = [(start, seconds) for start in given.starts for seconds in given.seconds]
    columns = [(s, t) for s, t in columns if s == ALONE or t < given.seconds[-1] or len(given.seconds) == 1]
    values, bounds, used = np.empty((3, len(files), len(columns)))
    of_starts = np.empty_like(values)
    settings = list(cell.settings().values())
    for row, file in enumerate(files):
        for at, (start, seconds) in enumerate(columns):
            key = [f"{cell.kind}-{cell.ops}/{file.name}", *settings, start, seconds, given.clock]
            value, bounds[row, at], used[row, at], of_starts[row, at] = runs.found(
                key, partial(_solved, file, cell, start, seconds)
            )
            values[row, at] = np.inf if value is None else value
            if given.settled is not None and values[row, 0] <= (1 + given.settled) * bounds[row, 0]:
                values[row], bounds[row], used[row], of_starts[row] = values[row, 0], bounds[row, 0], used[row, 0], 0
                break
    best = values.min(1)
    kept = np.isfinite(best)
    print(f"{cell}, {len(files)} graphs, {int(kept.sum())} within the limit:", flush=True)
    if not kept.any():
        return 0.0
    best, bound = best[kept], bounds[kept].max(1)
    for at, (start, seconds) in enumerate(columns):
        above = values[kept, at] / best - 1
        text = f"  {start:22} {seconds:4g} s: {mean_of(above)} above the best, {used[:, at].mean():.2f} s used"
        if start != ALONE:
            alone = values[kept, columns.index((ALONE, seconds))]
            text += f", of them {of_starts[:, at].mean():.3f} s for the start"
            text += f", {mean_of(1 - values[kept, at] / alone)} lower than alone"
        print(text, flush=True)
    print(f"  the best is {mean_of(best / bound - 1)} above the bound", flush=True)
    return float((values[kept, 0] / best - 1).mean())


def mean_of(values: Any) -> str:
    """Return a mean and its 95% confidence interval (normal, of the graphs)."""
    if len(values) < 2 or not np.isfinite(values).all():
        return f"{values.mean():.2%}"
    return f"{values.mean():.2%} +- {1.96 * values.std(ddof=1) / len(values) ** 0.5:.2%}"


if __name__ == "__main__":
    main()
