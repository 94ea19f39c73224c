"""Peak memory of ever larger layered graphs on one device: time, memory and improvement of `auto`, as a plot.

usage: python examples/experiments/topoformer/scaling.py [OPS..., default 1000 10000 100000]
       [--time-limit SECONDS, default 60] [--seed N, default 0] [--output FILE, default scaling.png]

Runs `schedopt gen layered` and `schedopt solve` for each number of ops, prints a row for each, and draws it. Wall
time and resident memory are of the whole `solve` process: it also reads the graph (one of 100,000 ops has millions
of edges), compiles what is not yet compiled, and verifies the schedule; the search has the seconds given. A laptop
hour: the default takes minutes.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

SCHEDOPT = os.environ.get("SCHEDOPT", "schedopt")
AXES = ("wall time, s", "resident memory, GiB", "improvement over input order, %")


def run_measured(command):
    """Run a command; returns its wall time in seconds and its peak resident memory in GiB."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    return time.monotonic() - start, usage.ru_maxrss / 2**20


def measure(ops, seconds, seed):
    """Return what is drawn of one size, and a row of the table."""
    from schedopt.core.files.costgraph import read_graph
    from schedopt.core.model.simulator import input_peak

    with tempfile.TemporaryDirectory() as work:
        path, output = Path(work, "graph.pb"), Path(work, "schedule.json")
        generate = [SCHEDOPT, "gen", "layered", "--nodes", str(ops), "--seed", str(seed), "--quiet", path]
        subprocess.run(generate, check=True)
        solve = [SCHEDOPT, "solve", path, "--time-limit", f"{seconds}s", "--quiet", "--output", output]
        wall, memory = run_measured(solve)
        found = json.loads(output.read_text())
        graph = read_graph(path)
    improvement = 100 * (1 - found["peak_memory"] / input_peak(graph))
    gap = 100 * (found["peak_memory"] / found["lower_bound"] - 1)
    row = (
        f"{ops:>9,} {len(graph.edges[0]):>10,} {wall:>8.1f} {found['seconds']:>9.1f} {memory:>12.2f} "
        f"{improvement:>12.2f}% {gap:>8.2f}%  {found['found_by']}"
    )
    return (wall, memory, improvement), row


def draw(sizes, points, output):
    """Plot each measure over the number of ops."""
    from schedopt.core.report.plots.figures import new_figure

    figure = new_figure(4.0 * len(AXES), 3.5)
    axes = figure.subplots(1, len(AXES))
    for axis, name, values in zip(axes, AXES, zip(*points, strict=True), strict=True):
        axis.plot(sizes, values, marker="o")
        axis.set(xscale="log", xlabel="ops", ylabel=name, ylim=(0, 1.1 * max(values)))
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.savefig(output, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="scaling.png")
    options = parser.parse_args()
    print(f"layered graphs, seed {options.seed}, auto, {options.time_limit:g} s")
    print("      ops      edges  wall, s search, s  memory, GiB  improvement  to bound  found by")
    points = []
    for ops in options.ops:
        point, row = measure(ops, options.time_limit, options.seed)
        print(row, flush=True)
        points.append(point)
    draw(options.ops, points, options.output)


if __name__ == "__main__":
    main()
