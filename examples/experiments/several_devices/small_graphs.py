"""Every method on small graphs, both tasks, two and four devices, in the same time.

usage: python examples/experiments/several_devices/small_graphs.py FOLDER [--graphs N] [--seconds S] [--devices 2 4]
       [--methods NAME...] [--largest OPS] [--only GRAPH...] [--bandwidth BYTES_PER_SECOND] [--latency MICROSECONDS]
       [--open] [--jobs N] [--seed N] [--clock wall|processor, default wall] [--resume FILE.jsonl]
    schedopt gen synthetic FOLDER --nodes 8-58 --count 200 --seed 2018 makes the graphs: 10 to 60 ops.
A row per task and number of devices says, of each method: the mean of how far it is above the best of all, with its
standard error, on how many graphs it is above it, and how many it proves optimal. A last row names the graphs on which
`auto` is not the best. With --clock processor, seconds are of processor time, those of cp-sat, too, so that other work
on the machine does not shorten them; with --jobs N the first method has N workers, each with the whole time. What is
finished is in the file of --resume and not run again. --largest leaves out the graphs of more ops, --only all but those
of these names, and --open those that the first method proves optimal: nothing can be better there, and the other
methods, which do not know it, would take all the time. Folders in the folder are searched, too. Transfers are free
without --bandwidth and --latency.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import schedopt
from recorded_runs import RecordedRuns, count_processor_time, share_processor_time

METHODS = ("auto", "cp-sat", "step-search", "annealing", "local-search", "brkga", "brkga:decoder=lazy")
LOADING = 1.0  # s


def main() -> None:
    """Print a table per task and number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--tasks", nargs="+", default=["memory", "runtime"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--largest", type=int)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--bandwidth", type=float)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    if given.clock == "processor":
        count_processor_time()
    files = [file for file in sorted(given.folder.rglob("*.pb.gz"))[: given.graphs] if _is_wanted(file, given)]
    runs = RecordedRuns(given.resume)
    for task in given.tasks:
        for devices in given.devices:
            print(f"{task}, {devices} devices, {len(files)} graphs, {given.seconds:g} s:", flush=True)
            _print_table(files, task, devices, given, runs)


def _is_wanted(file: Path, given: argparse.Namespace) -> bool:
    is_small = given.largest is None or schedopt.read_graph(file).num_ops <= given.largest
    return is_small and (not given.only or file.name.split(".")[0] in given.only)


def _print_table(files: list[Path], task: Any, devices: int, given: argparse.Namespace, runs: RecordedRuns) -> None:
    methods, links = given.methods, {"bandwidth": given.bandwidth, "latency": given.latency}
    for method in methods:  # kernels are loaded once per process, which no method's seconds should pay for
        schedopt.solve(files[0], task=task, devices=devices, method=method, time_limit=LOADING, **links)
    values, proven, beaten = np.full((len(files), len(methods)), np.nan), np.zeros(len(methods), int), []

    def run(file: Path, method: str, jobs: int) -> list[Any]:
        if given.clock == "processor":
            share_processor_time(jobs)
        limits = {"time_limit": given.seconds, "jobs": jobs, "seed": given.seed}
        result = schedopt.solve(file, task=task, devices=devices, method=method, **limits, **links)
        return [result.value, result.status == "optimal"]

    for row, file in enumerate(files):
        for column, method in enumerate(methods):
            paid = [given.bandwidth, given.latency] if given.bandwidth or given.latency else []
            jobs = 1 if column else given.jobs
            key = [str(file.relative_to(given.folder)), task, devices, method, given.seconds, given.clock, *paid]
            key += [f"{jobs} workers"] if jobs > 1 else []
            key += [f"seed {given.seed}"] if given.seed else []
            values[row, column], is_proven = runs.found(key, partial(run, file, method, jobs))
            proven[column] += is_proven
            if given.open and is_proven and not column:
                values[row] = np.nan
                break
        if values[row, 0] > values[row].min() * (1 + 1e-12):
            beaten.append(f"{file.name.split('.')[0]} {values[row, 0] / values[row].min() - 1:.2%}")
    values = values[~np.isnan(values[:, 0])]
    if given.open:
        print(f"  {len(values)} graphs of {len(files)} are open", flush=True)
        if not len(values):
            return
    above = values / values.min(1, keepdims=True) - 1
    for column, method in enumerate(methods):
        error = above[:, column].std(ddof=1) / len(above) ** 0.5 if len(above) > 1 else 0.0
        count = int((above[:, column] > 1e-12).sum())
        print(f"  {method:20} {above[:, column].mean():7.2%} +- {error:.2%}, above on {count}, {proven[column]} proven")
    print(f"  {methods[0]} is above the best on: {', '.join(beaten) or 'none'}", flush=True)


if __name__ == "__main__":
    main()
