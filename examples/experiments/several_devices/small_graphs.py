"""Every method on small graphs, both tasks, two and four devices, free transfers, in the same time.

usage: python examples/experiments/several_devices/small_graphs.py FOLDER [--graphs N] [--seconds S] [--devices 2 4]
       [--methods NAME...] [--clock wall|processor, default wall] [--resume FILE.jsonl]
    schedopt gen synthetic FOLDER --nodes 8-58 --count 200 --seed 2018 makes the graphs: 10 to 60 ops.
A row per task and number of devices says, of each method: the mean of how far it is above the best of all, with its
standard error, on how many graphs it is above it, and how many it proves optimal. A last row names the graphs on which
`auto` is not the best. With --clock processor, seconds are of processor time, those of cp-sat, too, so that other work
on the machine does not shorten them. What is finished is in the file of --resume and not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import schedopt

METHODS = ("auto", "cp-sat", "step-search", "annealing", "local-search", "brkga", "brkga:decoder=lazy")


def main() -> None:
    """Print a table per task and number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--tasks", nargs="+", default=["memory", "runtime"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    if given.clock == "processor":
        _count_processor_time()
    files = sorted(given.folder.glob("*.pb.gz"))[: given.graphs]
    runs = _Runs(given.resume, given.seconds, given.clock)
    for task in given.tasks:
        for devices in given.devices:
            print(f"{task}, {devices} devices, {len(files)} graphs, {given.seconds:g} s:", flush=True)
            _print_table(files, task, devices, given.methods, runs)


def _count_processor_time() -> None:
    """Let time limits be of processor time, cp-sat's own, too: then only schedopt's look at the clock ends it."""
    from ortools.sat.python import cp_model

    solve = cp_model.CpSolver.solve

    def without_limit(solver: Any, *arguments: Any) -> Any:
        solver.parameters.max_time_in_seconds = 1e9
        return solve(solver, *arguments)

    cp_model.CpSolver.solve = without_limit
    time.monotonic = time.process_time


class _Runs:
    """What methods reached, of this and of earlier runs of the script."""

    def __init__(self, file: Path | None, seconds: float, clock: str) -> None:
        self.file, self.budget = file, [seconds, clock]
        lines = file.read_text().splitlines() if file and file.exists() else []
        self.done = {json.dumps(key): found for key, found in map(json.loads, lines)}

    def found(self, path: Path, task: Any, devices: int, method: str) -> tuple[float, bool]:
        """Return the value that a method reaches, and whether it is proven optimal."""
        key = [path.name, task, devices, method, *self.budget]
        if json.dumps(key) not in self.done:
            limit = self.budget[0]
            result = schedopt.solve(path, task=task, devices=devices, method=method, time_limit=limit)
            self.done[json.dumps(key)] = found = [result.value, result.status == "optimal"]
            if self.file:
                with self.file.open("a") as out:
                    out.write(json.dumps([key, found]) + "\n")
        value, is_proven = self.done[json.dumps(key)]
        return value, is_proven


def _print_table(files: list[Path], task: str, devices: int, methods: list[str], runs: _Runs) -> None:
    values, proven, beaten = np.empty((len(files), len(methods))), np.zeros(len(methods), int), []
    for row, file in enumerate(files):
        for column, method in enumerate(methods):
            values[row, column], is_proven = runs.found(file, task, devices, method)
            proven[column] += is_proven
        if values[row, 0] > values[row].min() * (1 + 1e-12):
            beaten.append(f"{file.name.split('.')[0]} {values[row, 0] / values[row].min() - 1:.2%}")
    above = values / values.min(1, keepdims=True) - 1
    for column, method in enumerate(methods):
        error = above[:, column].std(ddof=1) / len(files) ** 0.5 if len(files) > 1 else 0.0
        count = int((above[:, column] > 1e-12).sum())
        print(f"  {method:20} {above[:, column].mean():7.2%} +- {error:.2%}, above on {count}, {proven[column]} proven")
    print(f"  {methods[0]} is above the best on: {', '.join(beaten) or 'none'}", flush=True)


if __name__ == "__main__":
    main()
