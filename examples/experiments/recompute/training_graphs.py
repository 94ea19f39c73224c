"""Training graphs under memory limits that no order keeps: added time of `recompute`, the bound, what is impossible.

usage: python examples/experiments/recompute/training_graphs.py FOLDER... [--limits SHARE..., default 0.8 0.6 0.4]
       [--seconds S, default 30] [--order-seconds S, default 10] [--every N-th of each folder by name, default 1]
       [--graphs N of each folder, default all] [--above persistent|least, default persistent]
       [--clock wall|processor, default wall] [--output FILE, default training_graphs.csv]

Graphs of a folder called `training`, and those whose file says `training`, `sgd` or `adam`. The limit is the weights
and other persistent bytes, and the share of what the best order (`auto` in --order-seconds) takes beside them; with
--above least, what no schedule is below, and the share of what that order takes above it. FILE is gone on with; the
tables are printed of all it has. *Impossible* is proven, by one of three things: one op takes more with its inputs and
outputs; what is kept to the end does (gradients that are outputs, for instance); or a cut. Means are over the graphs on
which the limit was kept, in percent of the time of all ops once, with half of the 95% confidence interval. With
--clock processor, seconds are of processor time, so that other work on the machine does not shorten them. A graph takes
about two minutes; a laptop hour: a folder of 30 graphs.
"""

import argparse
from pathlib import Path

import schedopt
from rows import CLOCKS, Rows, mean, numbers, solved, use_clock
from schedopt.core.bounds.bounds import memory_bound

KEY = ("folder", "graph", "share", "seconds", "above", "clock")
FIELDS = (*KEY, "ops", "order", "limit", "status", "peak", "added", "bound", "found_in", "why")
NAMES = ("training", "sgd", "adam")
NEAR = 5.0
REASONS = {"one op": "alone needs", "kept to the end": "the last step", "a cut": "runs in at least"}


def training_graphs(folder):
    """Return the files of a folder's training graphs."""
    files = sorted(file for file in Path(folder).iterdir() if ".pb" in file.name)
    if Path(folder).resolve().name == "training":
        return files
    return [file for file in files if any(name in file.name for name in NAMES)]


def measure(options, rows):
    """Do every search that has no row yet."""
    for folder in options.folders:
        for file in training_graphs(folder)[:: options.every][: options.graphs]:
            key = (Path(folder).resolve().name, file.name.partition(".pb")[0])
            asked = options.seconds, options.above, options.clock
            todo = [share for share in options.limits if not rows.find(*key, share, *asked)]
            if not todo:
                continue
            graph = schedopt.read_graph(file)
            order = schedopt.solve(graph, time_limit=options.order_seconds).peak_memory
            floor = int(graph.persistent.sum())
            if options.above == "least":
                floor = memory_bound(schedopt.Problem(graph, recompute=True))
            for share in todo:
                limit = max(1, floor + int(share * (order - floor)))
                known = dict(zip(KEY, (*key, share, *asked), strict=True))
                found = solved(graph, limit, "recompute", options.seconds)
                found["why"] = "; ".join(reason for reason, text in REASONS.items() if text in found["why"])
                rows.add(**known, ops=graph.num_ops, order=order, limit=limit, **found)


def table(options, rows):
    """Print what is summed up per folder and share, then a row per graph."""
    wanted = str(options.seconds), options.above, options.clock
    asked = [row for row in rows.rows if (row["seconds"], row["above"], row["clock"]) == wanted]
    heads = ("folder", "limit", "graphs", "kept", "proven impossible", "not kept", "added", "bound", f"within {NEAR:g}")
    print(f"seed 0, {options.seconds:g} s of {options.clock} time\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for folder in dict.fromkeys(row["folder"] for row in asked):
        for share in options.limits:
            found = [row for row in asked if (row["folder"], row["share"]) == (folder, str(share))]
            kept = [row for row in found if row["status"] == "kept"]
            near = sum(float(row["added"]) - float(row["bound"]) <= NEAR for row in kept)
            counts = [len(kept), *(sum(row["status"] == s for row in found) for s in ("infeasible", "not kept"))]
            cells = [folder, f"{share:g}", len(found), *counts, mean(numbers(kept, "added"))]
            cells += [mean(numbers(kept, "bound")), f"{near} of {len(kept)}"]
            print(f"| {' | '.join(map(str, cells))} |")
    heads = ("graph", "ops", *(f"at {share:g}" for share in options.limits))
    print(f"\nadded (bound), percent\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for folder, graph in dict.fromkeys((row["folder"], row["graph"]) for row in asked):
        found = {row["share"]: row for row in asked if (row["folder"], row["graph"]) == (folder, graph)}
        cells = [graph, next(iter(found.values()))["ops"]]
        print(f"| {' | '.join([*cells, *(cell(found.get(str(share))) for share in options.limits)])} |")


def cell(row):
    """Write what is added and its bound, or why there is no schedule."""
    if row is None:
        return ""
    if row["status"] == "infeasible":
        return f"impossible ({row['why']})"
    bound = f"({float(row['bound']):.2f})"
    return f"{float(row['added']):.2f} {bound}" if row["status"] == "kept" else f"not kept {bound}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--limits", nargs="+", type=float, default=[0.8, 0.6, 0.4])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--order-seconds", type=float, default=10.0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--graphs", type=int)
    parser.add_argument("--above", choices=("persistent", "least"), default="persistent")
    parser.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0])
    parser.add_argument("--output", default="training_graphs.csv")
    options = parser.parse_args()
    use_clock(options.clock)
    rows = Rows(options.output, FIELDS, KEY)
    measure(options, rows)
    table(options, rows)


if __name__ == "__main__":
    main()
