"""Topoformer figures 2 and 3: gap of the peak above approximate DP against time, a panel per file of runs.

usage: python examples/experiments/topoformer/figures.py RUNS.csv...
       [--reference METHOD, default the first of each file] [--output FILE, default topoformer_figures.png]

The files are what `schedopt compare --output RUNS.csv` writes, as table1.sh (figure 2) and table2.sh (figure
3) in this folder do. Points are means over graphs, bars the 95% confidence intervals (Student
t); a gap below 0 is better than approximate DP. A laptop hour is for the runs: drawing takes seconds.
"""

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path


def read_runs(path, reference):
    """Return method -> the estimates of its gap, percent, and of its time, seconds; methods as in the file."""
    from schedopt.core.report.summaries import estimate, gap_percent

    values, seconds = defaultdict(dict), defaultdict(dict)
    with Path(path).open(newline="") as file:
        for run in csv.DictReader(file):
            if run["status"] != "failed":
                values[run["method"]][run["graph"]] = float(run["value"])
                seconds[run["method"]][run["graph"]] = float(run["seconds"])
    base = values[reference or next(iter(values))]
    return {
        method: (
            estimate(gap_percent(of_graph[graph], base[graph]) for graph in of_graph if graph in base),
            estimate(seconds[method].values()),
        )
        for method, of_graph in values.items()
    }


def label_of(method):
    """Return a method's name with trained weights called by the folder of their run."""
    return re.sub(r"weights=(?:.*/)?([^/]+)/weights\.safetensors", r"weights=\1", method)


def draw(files, reference, output):
    """Draw a panel per file, print its numbers."""
    from schedopt.core.report.plots.comparison_charts import gap_against_time
    from schedopt.core.report.plots.figures import new_figure

    columns = min(3, len(files))
    rows = -(-len(files) // columns)
    figure = new_figure(5 * columns, 4 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    for unused in axes.flat[len(files) :]:
        unused.remove()
    handles, numbered = {}, []
    for axis, path in zip(axes.flat, files, strict=False):
        print(Path(path).stem)
        estimates = read_runs(path, reference)
        for method, (gap, time) in estimates.items():
            print(f"  {label_of(method):45} {gap.mean:+7.2f} ± {gap.half_width or 0:.2f}%  {time.mean:10.3f} s")
        handles |= gap_against_time(axis, estimates, numbered)
        axis.set(ylabel="gap above approximate DP, %", title=Path(path).stem)
    figure.legend(handles.values(), map(label_of, handles), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(output, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--reference")
    parser.add_argument("--output", default="topoformer_figures.png")
    options = parser.parse_args()
    draw(options.runs, options.reference, options.output)


if __name__ == "__main__":
    main()
