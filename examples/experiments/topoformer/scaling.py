"""Peak memory of ever larger layered graphs on one device: gap, memory and time of `auto`, by time limit.

usage: python examples/experiments/topoformer/scaling.py [OPS..., default 1000 4000 16000 64000 200000]
       [--time-limits SECONDS..., default 2 10 60] [--seed N, default 0] [--wall]

Runs `schedopt gen layered` for each number of ops, then `schedopt solve` with each limit, and prints a row for each.
Seconds are of processor time, the limit's too, so that other work on the machine changes nothing; with --wall they
are of wall time. `process` is the whole `solve`: it also reads the graph and verifies the schedule; resident memory is
its largest. The largest graph has 17 million edges and takes 4 GiB; all rows take half an hour.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESSOR_TIME = (
    "import runpy, time; time.monotonic = time.process_time; runpy.run_module('schedopt', run_name='__main__')"
)
HEAD = "      ops      edges  limit, s  process, s  memory, GiB  improvement  to bound  found by"


def run_measured(command):
    """Run a command; returns its wall and processor time in seconds and its peak resident memory in GiB."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def rows(ops, limits, seed, is_wall):
    """Yield the row of each limit for one graph."""
    from schedopt.core.files.costgraph import read_graph
    from schedopt.core.model.simulator import input_peak

    program = ["-m", "schedopt"] if is_wall else ["-c", PROCESSOR_TIME]
    with tempfile.TemporaryDirectory() as work:
        path, output = Path(work, "graph.pb"), Path(work, "schedule.json")
        generate = ["gen", "layered", "--nodes", str(ops), "--seed", str(seed), "--quiet", path]
        subprocess.run([sys.executable, "-m", "schedopt", *generate], check=True)
        graph = read_graph(path)
        edges, before = len(graph.edges[0]), input_peak(graph)
        del graph
        for limit in limits:
            solve = ["solve", path, "--time-limit", f"{limit}s", "--quiet", "--output", output]
            wall, processor, memory = run_measured([sys.executable, *program, *solve])
            found = json.loads(output.read_text())
            improvement = 100 * (1 - found["peak_memory"] / before)
            gap = 100 * (found["peak_memory"] / found["lower_bound"] - 1)
            yield (
                f"{ops:>9,} {edges:>10,} {limit:>9g} {wall if is_wall else processor:>11.1f} {memory:>12.2f} "
                f"{improvement:>11.2f}% {gap:>8.2f}%  {found['found_by']}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", type=int, default=[1000, 4000, 16_000, 64_000, 200_000])
    parser.add_argument("--time-limits", nargs="+", type=float, default=[2.0, 10.0, 60.0], metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wall", action="store_true")
    options = parser.parse_args()
    print(f"layered graphs, seed {options.seed}, auto\n{HEAD}")
    for ops in options.ops:
        for row in rows(ops, options.time_limits, options.seed, options.wall):
            print(row, flush=True)


if __name__ == "__main__":
    main()
