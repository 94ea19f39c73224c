"""REGAL's figures 2, 3 and 12, of the runs that `schedopt compare --output` wrote; figures.py is their command."""

import csv
import re
from collections import defaultdict
from pathlib import Path

BRKGA = "brkga"


def read_runs(path):
    """Return method -> graph -> the mean value of its feasible runs; methods and graphs as in the file."""
    from schedopt.core.report.summaries import mean_of

    values = defaultdict(lambda: defaultdict(list))
    with Path(path).open(newline="") as file:
        for run in csv.DictReader(file):
            if run["status"] in ("optimal", "feasible"):
                values[run["method"]][run["graph"]].append(float(run["value"]))
    return {method: {graph: mean_of(of) for graph, of in graphs.items()} for method, graphs in values.items()}


def pick(values, wanted, fallback, path):
    """Return the method that is named, or else the first whose name is the fallback's."""
    found = [method for method in values if (method if wanted else method.partition(":")[0]) == (wanted or fallback)]
    if not found:
        raise SystemExit(f"{path}: has no runs of {wanted or fallback}, only of {', '.join(values)}")
    return found[0]


def pairs_of(values, method, reference):
    """Return graph -> the values of both, where there are both."""
    others = values[reference]
    return {graph: (value, others[graph]) for graph, value in values[method].items() if graph in others}


def improvements_of(values, method, reference):
    """Return the improvements in percent, graph by graph; a graph whose reference is 0 is left out."""
    from schedopt.core.report.summaries import improvement_percent

    found = (improvement_percent(*pair) for pair in pairs_of(values, method, reference).values())
    return [improvement for improvement in found if improvement is not None]


def with_error(values):
    """Write a mean with half of its 95% confidence interval."""
    from schedopt.core.report.summaries import estimate

    found = estimate(values)
    return f"{found.mean:+.2f} ± {found.half_width or 0:.2f}%"


def panels(count, width=5.0, height=4.0):
    """Return a figure with this many axes beside each other."""
    from schedopt.core.report.plots.figures import new_figure

    figure = new_figure(width * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def histogram(options):
    """Figure 2: improvements of a method over another, graph by graph.

    The paper, REGAL over BRKGA 5K on TensorFlow's graphs, runtime (peak memory): matches or beats it on 87.4% (88.9%)
    of the graphs, highest improvement 26.0% (54.3%), worst regression 24.0% (17.9%). Ties are not drawn, but counted.
    """
    import numpy as np
    from schedopt.core.report.plots.comparison_charts import improvement_histogram

    figure, axes = panels(len(options.runs))
    for axis, path in zip(axes, options.runs, strict=True):
        values = read_runs(path)
        method, reference = pick(values, options.method, "regal", path), pick(values, options.reference, BRKGA, path)
        found = np.array(improvements_of(values, method, reference))
        is_tie = np.abs(found) < 1e-9
        shares = [100 * float(which.mean()) for which in (found > -1e-9, is_tie, (found < 0) & ~is_tie)]
        print(f"{Path(path).stem}: {method} over {reference}, {len(found)} graphs: {with_error(found)}")
        print("  matched or beaten {:.1f}%, of that tied {:.1f}%, worse {:.1f}%".format(*shares))
        print(f"  highest improvement {max(found.max(), 0):.2f}%, worst regression {abs(min(found.min(), 0)):.2f}%")
        improvement_histogram(axis, found, bins=options.bins, name=method)
        axis.set(xlabel=f"improvement over {reference}, %", ylabel="graphs", title=Path(path).stem)
        axis.legend(fontsize="small")
    return figure


def split_budget(method):
    """Return a method without its evaluations, and those; None if it does not say them."""
    parts = method.split(":")
    budgets = [part.partition("=")[2] for part in parts if part.startswith("evaluations=")]
    rest = ":".join(part for part in parts if not part.startswith("evaluations="))
    return rest, int(budgets[0]) if budgets else None


def sweep(options):
    """Figure 3: mean improvement over BRKGA 5K as the evaluations grow, of all methods that are given several.

    The paper shows that REGAL gets better with more evaluations than it was trained for, and that BRKGA with 50,000
    stays below REGAL with 5,000.
    """
    figure, axes = panels(len(options.runs))
    for axis, path in zip(axes, options.runs, strict=True):
        values = read_runs(path)
        reference = pick(values, options.reference, BRKGA, path)
        curves = defaultdict(dict)
        for method in values:
            name, evaluations = split_budget(method)
            if evaluations is not None:
                curves[name][evaluations] = improvements_of(values, method, reference)
        print(f"{Path(path).stem}: improvement over {reference}, {len(values[reference])} graphs")
        for name, points in curves.items():
            budgets = sorted(points)
            for budget in budgets:
                print(f"  {name:40} {budget:>7,} evaluations: {with_error(points[budget])}")
            axis.plot(budgets, [sum(points[b]) / len(points[b]) for b in budgets], marker="o", label=name)
        axis.axhline(0, color="black", linewidth=0.8, alpha=0.5)
        axis.set(xscale="log", xlabel="evaluations", ylabel=f"improvement over {reference}, %", title=Path(path).stem)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    return figure


def topologies(options):
    """Figure 12: rewards -o_a / o_s of the graphs of each topology; above -1 the method beats the reference.

    The graphs of a topology are those that `schedopt gen augment` names after it, the original and its noisy copies, or
    with --graphs those of the same topology among them. Boxes are quartiles, whiskers the range, topologies in the
    order of their medians. The paper: "The variance for a fixed topology is typically relatively small".
    """
    import numpy as np

    figure, axes = panels(len(options.runs), 8.0)
    known = topologies_of(options.graphs)
    for axis, path in zip(axes, options.runs, strict=True):
        values = read_runs(path)
        method, reference = pick(values, options.method, "regal", path), pick(values, options.reference, BRKGA, path)
        rewards = defaultdict(list)
        for graph, (value, plain) in pairs_of(values, method, reference).items():
            named = re.fullmatch(r"([0-9a-f]{16})(-\d+)?", graph)  # as versions up to 0.2 named them
            topology = known.get(graph) or (named[1] if named else re.sub(r"-copy-\d+$", "", graph))
            rewards[topology].append(-value / plain if plain else -1.0)
        names = sorted(rewards, key=lambda name: np.median(rewards[name]))
        print(f"{Path(path).stem}: reward of {method} against {reference}")
        print(f"  {'topology':16} {'graphs':>6} {'least':>8} {'25%':>8} {'median':>8} {'75%':>8} {'largest':>8}")
        for name in names:
            quartiles = " ".join(f"{value:8.4f}" for value in np.quantile(rewards[name], (0, 0.25, 0.5, 0.75, 1)))
            print(f"  {name:16} {len(rewards[name]):>6} {quartiles}")
        within = float(np.mean([np.std(rewards[name]) for name in names]))
        across = float(np.std([np.mean(rewards[name]) for name in names]))
        print(f"  standard deviation within a topology {within:.4f}, of the topologies' means {across:.4f}")
        axis.boxplot([rewards[name] for name in names], whis=(0, 100))
        axis.axhline(-1, color="black", linewidth=0.8, alpha=0.5)
        axis.set(xlabel="topology", ylabel="reward", title=Path(path).stem)
        axis.set_xticks([])
    return figure


def topologies_of(graphs):
    """Return graph -> its topology, of the files given."""
    if not graphs:
        return {}
    from schedopt.core.files.costgraph import find_graphs, graph_name, read_graph
    from schedopt.datasets.filters import topology_hash

    return {graph_name(path): topology_hash(read_graph(path)) for path in find_graphs(graphs)}
