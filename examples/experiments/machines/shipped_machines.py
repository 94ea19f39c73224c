"""`auto` on the three machines of `examples/machines`, and against another version in the same time.

usage: python examples/experiments/machines/shipped_machines.py GRAPH... --resume FILE.jsonl [--before FILE.jsonl]
       [--seconds 2] [--seeds 3] [--tasks runtime memory] [--machines FILE...]

Run it once with each version, each into a file of its own; then --before prints, of every machine and task, how far
both are above the better of their bounds, and the mean of the paired differences with its 95% interval over graphs,
seeds averaged. Seconds are of processor time. A run that keeps no memory limit counts as none; a graph for which either
version has such a run is named and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import schedopt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "several_devices"))

from recorded_runs import RecordedRuns, count_processor_time  # noqa: E402

MACHINES = sorted((HERE.parents[1] / "machines").glob("*.yaml"))


def main() -> None:
    """Run what is not known yet, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--resume", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=["runtime", "memory"])
    parser.add_argument("--machines", type=Path, nargs="+", default=MACHINES)
    given = parser.parse_args()
    count_processor_time()
    runs = RecordedRuns(given.resume)
    for graph in given.graphs:
        for machine in given.machines:
            for task in given.tasks:
                for seed in range(given.seeds):
                    key = [graph.name, machine.stem, task, given.seconds, seed]
                    runs.found(key, lambda g=graph, m=machine, t=task, s=seed: solved(g, m, t, s, given.seconds))
    if given.before:
        compare(runs.done, RecordedRuns(given.before).done)


def solved(graph: Path, machine: Path, task: Any, seed: int, seconds: float) -> list[Any]:
    """Return the value, None if the limits are not kept, and the bound."""
    result = schedopt.solve(graph, task=task, machine=machine, seed=seed, time_limit=seconds)
    print(graph.name, machine.stem, task, seed, result.value, result.status, file=sys.stderr)
    is_kept = result.status in ("optimal", "feasible")
    return [float(result.value) if is_kept else None, float(result.lower_bound)]


def compare(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Print a row per machine and task."""
    cells: dict[tuple[str, str], dict[str, list[tuple[Any, ...]]]] = {}
    for name in now.keys() & before.keys():
        graph, machine, task, *_ = json.loads(name)
        pair = (before[name], now[name])
        cells.setdefault((machine, task), {}).setdefault(graph, []).append(pair)
    for (machine, task), graphs in sorted(cells.items()):
        gaps = []
        for graph, pairs in sorted(graphs.items()):
            values = [[side[0] for side in pair] for pair in pairs]
            if any(value is None for pair in values for value in pair):
                kept = [sum(pair[at] is not None for pair in values) for at in (0, 1)]
                print(f"  {graph} on {machine}, {task}: kept the limits {kept[0]} and {kept[1]} times of {len(pairs)}")
                continue
            bound = max(side[1] for pair in pairs for side in pair)
            if bound == 0:  # no op takes any time
                continue
            gaps.append(100 * (np.array(values).mean(axis=0) / bound - 1))
        old, new = np.array(gaps).T
        difference = 100 * ((100 + new) / (100 + old) - 1)
        spread = 1.96 * difference.std(ddof=1) / len(difference) ** 0.5
        open_gaps = old > 2
        print(
            f"{machine}, {task}: {len(old)} graphs, {old.mean():.2f}% above the bound before, {new.mean():.2f}% now; "
            f"difference {difference.mean():+.2f} ± {spread:.2f}%, from {difference.min():+.2f} to "
            f"{difference.max():+.2f}; of {open_gaps.sum()} gaps above 2%: {old[open_gaps].mean():.2f}% before, "
            f"{new[open_gaps].mean():.2f}% now"
        )


if __name__ == "__main__":
    main()
