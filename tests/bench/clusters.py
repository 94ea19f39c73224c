"""What a cluster's engine costs per task, and what share of two workers it keeps busy, on this machine.

    python tests/bench/clusters.py [dask] [ray] [--seconds 10]

Starts a head and two workers on the loopback and gives them tasks that sleep for 10 ms, 100 ms and 1 s, each with a
graph of some 50 ops, of which there are ten. Per line: the tasks per second, the share of two workers' time in which
they slept, and the processor time per task of the command with its driver, and of the cluster's head. The processor
time bounds what one head can do, whatever else the machine does.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from models.clusters import cluster
from schedopt.core.base.parallel import map_as_ended, using
from schedopt.core.experiments.clusters.cluster import Cluster
from schedopt.datasets.layered import LayeredParameters, layered_graph

TICKS = os.sysconf("SC_CLK_TCK")


def sleep(seconds, graph):
    """Sleep, as a task with a graph."""
    time.sleep(seconds)
    return graph.num_ops


def processor_time(group):
    """Return the seconds of processor time of a group of processes that run."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) in group:
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def graphs():
    """Return ten graphs of some 50 ops."""
    rng = np.random.default_rng(0)
    return [layered_graph(LayeredParameters(nodes=50), rng, f"layered-{number}") for number in range(10)]


def measure(kind, seconds):
    """Measure an engine; prints a row per length of a task."""
    given = graphs()
    with tempfile.TemporaryDirectory() as folder, cluster(kind, Path(folder)) as running:
        heads = {process.pid for process in running.head}
        for length in (0.01, 0.1, 1.0):
            with Cluster(kind, running.address) as workers, using(workers):
                count = max(8, int(2 * seconds / length))
                tasks = (given[number % len(given)] for number in range(count))
                list(map_as_ended(partial(sleep, 0.0), given * 2, 1))  # what is loaded once
                own = {os.getpgid(0), os.getpgid(workers._process.pid)}
                before, head = processor_time(own), processor_time(heads)
                start = time.monotonic()
                done = sum(1 for _, future in map_as_ended(partial(sleep, length), tasks, 1) if future.result() >= 0)
                wall = time.monotonic() - start
                assert done == count
                spent, head = processor_time(own) - before, processor_time(heads) - head
            share = 100 * count * length / (2 * wall)
            print(
                f"| {kind} | {1000 * length:.0f} ms | {count} | {count / wall:.1f} | {share:.0f}% | "
                f"{1000 * spent / count:.1f} ms | {1000 * head / count:.1f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["dask", "ray"])
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    import clusters  # workers find the function in this file by its name

    print("| engine | task | tasks | per second | two workers busy | command and driver | head |")
    for kind in options.kinds:
        clusters.measure(kind, options.seconds)
