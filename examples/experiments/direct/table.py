"""A rule and draws around it beside list schedulers and searches, for each task and number of devices.

usage: python examples/experiments/direct/table.py FOLDER [--graphs N] [--tasks runtime memory] [--devices 2]
           [--bandwidth 10GB/s] [--latency 5us] [--methods METHOD...] [--resume FILE]
    schedopt gen synthetic FOLDER --count 200 --seed 0 --filter 0.18 makes REGAL's filtered graphs (A.1.4), of which
    none was trained on, and schedopt gen synthetic FOLDER --nodes 500-2000 --count 12 --seed 0 larger ones.
A row per method: the mean gap to the best proven bound, how much better it is than the first method (both with 95%
confidence intervals), on how many graphs it is no worse, and the median processor time of a run. The peak is without
transfer costs. REGAL gives no numbers of direct prediction: it was orders of magnitude slower (5.2) and generalised
poorly (1).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import schedopt

METHODS = ("brkga:evaluations=50000", "direct:decode=rule", "direct", "heft", "gp-dfs", "auto:evaluations=1000")


def main() -> None:
    """Print a table per task and number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--tasks", nargs="+", default=["runtime", "memory"])
    parser.add_argument("--devices", type=int, nargs="+", default=[2])
    parser.add_argument("--bandwidth")
    parser.add_argument("--latency", default="0us")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--resume")
    given = parser.parse_args()
    files = sorted(given.folder.glob("*.pb.gz"))[: given.graphs]
    for task in given.tasks:
        links = {"bandwidth": given.bandwidth, "latency": given.latency} if task == "runtime" else {}
        for devices in given.devices:
            print(f"{task}, {devices} devices, {len(files)} graphs, {links}:", flush=True)
            found = schedopt.compare(
                files, given.methods, task=task, devices=devices, seed=1000, resume=given.resume, **links
            )
            _print_table(found, given.methods)


def _print_table(found: schedopt.Comparison, methods: list[str]) -> None:
    shape = len(found.graphs), len(methods)
    values, bounds, seconds = (
        np.array([getattr(cell, name) for cell in found.cells], float).reshape(shape)
        for name in ("value", "lower_bound", "cpu_seconds")
    )
    gaps = values / bounds.max(1, keepdims=True) - 1
    better = 1 - values / values[:, :1]
    for at, method in enumerate(methods):
        no_worse = (better[:, at] > -1e-9).mean()
        print(
            f"  {method:28} gap {_mean(gaps[:, at])}, better {_mean(better[:, at])}, no worse {no_worse:.0%}, "
            f"{1000 * np.median(seconds[:, at]):.0f} ms",
            flush=True,
        )


def _mean(values: np.ndarray) -> str:
    """Return a mean and its 95% confidence interval."""
    error = 1.96 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{100 * values.mean():+7.2f} ± {100 * error:.2f}%"


if __name__ == "__main__":
    main()
