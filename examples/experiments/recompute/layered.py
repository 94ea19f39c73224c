"""Added time under a memory limit on layered graphs: `recompute`, `fixed-order` and `cp-sat`, and the bound.

usage: python examples/experiments/recompute/layered.py [OPS..., default 100 250 500 1000] [--graphs N, default 20]
       [--seed N, default 0] [--limits SHARE..., default 0.9 0.8 0.7] [--seconds S..., default 10 60]
       [--cp-sat SECONDS, default none] [--cp-sat-graphs N of each size, default all]
       [--clock wall|processor, default wall] [--output FILE, default layered.csv]

MOCCASIN's setting (ICML 2023): graphs of `schedopt gen layered`, every op counts alike, and the limit is a share of the
peak of `networkx.topological_sort`. Each row is one search; FILE is gone on with, and the table is printed of all it
has. *none needed* counts the graphs on which an order alone keeps the limit, in the longest time of `recompute`; means
are over the graphs on which the method kept the limit, in percent of the runs of all ops once, with half of the 95%
confidence interval. *to the bound* is the mean of what is added beyond the bound, and on how many graphs that is at
most 5 points. `(n=3 of 4)`: the limit was kept on 3 of the 4 graphs that the method was tried on. With
--clock processor, seconds are of processor time, so that other work on the machine does not shorten them (cp-sat's are
wall time, always). The default takes five hours; a laptop hour: `--graphs 4`, and a quarter of that: `--seconds 10`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import networkx as nx
import schedopt
from rows import CLOCKS, Rows, mean, numbers, solved, use_clock
from schedopt.core.model.simulator import simulate

SCHEDOPT = os.environ.get("SCHEDOPT", "schedopt")
FIELDS = (
    "ops",
    "seed",
    "graph",
    "share",
    "method",
    "seconds",
    "clock",
    "limit",
    "status",
    "peak",
    "added",
    "bound",
    "found_in",
)
KEY = FIELDS[:7]
NEAR = 5.0


def graphs_of(ops, options):
    """Return the graphs of a size."""
    with tempfile.TemporaryDirectory() as folder:
        counts = ["--nodes", str(ops), "--count", str(options.graphs), "--seed", str(options.seed)]
        subprocess.run([SCHEDOPT, "gen", "layered", folder, *counts, "--quiet"], check=True)
        return [schedopt.read_graph(path) for path in sorted(Path(folder).glob("*.pb*"))]


def sorted_peak(graph):
    """Return the peak of the order that networkx sorts a graph into."""
    sources, targets = graph.edges
    edges = nx.DiGraph()
    edges.add_nodes_from(range(graph.num_ops))
    edges.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    order = list(nx.topological_sort(edges))
    return simulate(schedopt.Problem(graph), schedopt.Schedule.single_device(order)).peak


def runs_of(options):
    """Return the methods with their seconds."""
    runs = [("recompute", seconds) for seconds in options.seconds]
    runs.append(("fixed-order", options.seconds[0]))
    return runs + ([("cp-sat", options.cp_sat)] if options.cp_sat else [])


def measure(options, rows):
    """Do every search that has no row yet."""
    for ops in options.ops:
        for number, graph in enumerate(graphs_of(ops, options)):
            peak = sorted_peak(graph)
            for share in options.limits:
                for method, seconds in runs_of(options):
                    key = (ops, options.seed, graph.name, share, method, seconds, options.clock)
                    is_left_out = method == "cp-sat" and number >= options.cp_sat_graphs
                    if not is_left_out and not rows.find(*key):
                        limit = int(share * peak)
                        known = dict(zip(KEY, key, strict=True))
                        rows.add(**known, limit=limit, **solved(graph, limit, method, seconds))


def table(options, rows):
    """Print a row per size and limit."""
    runs = runs_of(options)
    heads = ["ops", "limit", "graphs", "none needed", *(f"`{method}`, {seconds:g} s" for method, seconds in runs)]
    heads += ["to the bound", f"at most {NEAR:g}", "bound", "not kept", "proven impossible"]
    print(f"seed {options.seed}, {options.clock} time\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for ops in options.ops:
        for share in options.limits:
            found = [
                [row for row in rows.find(ops, options.seed) if matches(row, share, method, seconds, options.clock)]
                for method, seconds in runs
            ]
            best = found[len(options.seconds) - 1]
            gaps = [float(row["added"]) - float(row["bound"]) for row in best if row["status"] == "kept"]
            cells = [f"{ops:,}", f"{share:g}", len(best), sum(added == 0 for added in numbers(best, "added"))]
            cells += [mean(numbers(of_method, "added"), len(of_method)) for of_method in found]
            cells += [mean(gaps), f"{sum(gap <= NEAR for gap in gaps)} of {len(gaps)}", mean(numbers(best, "bound"))]
            cells += [sum(row["status"] == status for row in best) for status in ("not kept", "infeasible")]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def matches(row, share, method, seconds, clock):
    """Whether a row is of a limit, a method and its seconds by a clock."""
    found = row["share"], row["method"], row["seconds"], row["clock"]
    return found == (str(share), method, str(seconds), clock)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", type=int, default=[100, 250, 500, 1000])
    parser.add_argument("--graphs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limits", nargs="+", type=float, default=[0.9, 0.8, 0.7])
    parser.add_argument("--seconds", nargs="+", type=float, default=[10.0, 60.0])
    parser.add_argument("--cp-sat", type=float)
    parser.add_argument("--cp-sat-graphs", type=int, default=sys.maxsize)
    parser.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0])
    parser.add_argument("--output", default="layered.csv")
    options = parser.parse_args()
    use_clock(options.clock)
    rows = Rows(options.output, FIELDS, KEY)
    measure(options, rows)
    table(options, rows)


if __name__ == "__main__":
    main()
