"""How far the peak of `auto` is above what is proven, on each graph of a folder, and against another version's runs.

usage: python examples/experiments/several_devices/peak_bounds.py FOLDER [--graphs N] [--devices 2] [--seconds 1]
       [--seed 1000] [--clock processor|wall, default processor] [--resume FILE.jsonl] [--before FILE.jsonl]
    for FOLDER: schedopt gen synthetic FOLDER --count 200 --seed 0 --filter 0.18; folders in it are searched, too
--resume keeps the runs, and does not make those again that it has; --before is what it kept of another version. Then
graphs are compared one by one: how much lower the bound was, and by how much the peak changed. Means with 95%
confidence intervals. With the clock of the processor, seconds are of processor time, so that other work on the machine
does not shorten them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import schedopt
from recorded_runs import RecordedRuns, count_processor_time


def main() -> None:
    """Print the gaps, and the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--graphs", type=int)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--clock", choices=("processor", "wall"), default="processor")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    if options.clock == "processor":
        count_processor_time()
    runs = RecordedRuns(options.resume)
    files = sorted(options.folder.rglob("*.pb.gz"))[: options.graphs]
    keys = [[str(file.relative_to(options.folder)), options.devices, options.seconds, options.seed] for file in files]
    now = np.array([runs.found(key, lambda key=key: run(options.folder, *key)) for key in keys], float)
    report("now", now)
    if options.before:
        before = np.array([RecordedRuns(options.before).found(key, unknown) for key in keys], float)
        report("before", before)
        change = 100 * (now[:, 0] / before[:, 0] - 1)
        print(f"bound: raised on {sum(now[:, 1] > before[:, 1])}, lower on {sum(now[:, 1] < before[:, 1])}")
        print(f"peak: {interval(change)} %, lower on {sum(change < 0)}, higher on {sum(change > 0)}")


def run(folder: Path, name: str, devices: int, seconds: float, seed: int) -> list[Any]:
    """Return the peak and the bound of a graph, bytes."""
    result = schedopt.solve(folder / name, task="memory", devices=devices, time_limit=seconds, seed=seed)
    return [int(result.peak_memory), int(result.lower_bound)]


def unknown() -> list[Any]:
    """Refuse to run what another version should have."""
    raise SystemExit("--before has no run of the same graph, devices, seconds and seed")


def report(name: str, runs: Any) -> None:
    """Print how far peaks are above their bounds."""
    gaps = 100 * (runs[:, 0] / runs[:, 1] - 1)
    print(
        f"{name}: {len(gaps)} graphs, {interval(gaps)} % above the bound, {sum(gaps <= 0)} at it, "
        f"median {np.median(gaps):.2f}, at most {gaps.max():.1f}"
    )


def interval(values: Any) -> str:
    """Return a mean with its 95% confidence interval."""
    spread = 1.96 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{values.mean():.2f} ± {spread:.2f}"


if __name__ == "__main__":
    main()
