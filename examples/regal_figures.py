"""REGAL's figures: each subcommand draws one as a PNG, and prints its numbers.

usage: python examples/regal_figures.py FIGURE ... [--output FILE, default regal_FIGURE.png]

  histogram RUNS.csv...         figure 2: improvements of one method over another, graph by graph, a panel per file
  sweep RUNS.csv...             figure 3: improvement over BRKGA 5K against the evaluations, a panel per file
  entropy GRAPHS...             figure 4a: entropy of the placement actions, over graphs
  rounds RUN...                 figure 4b: best validation against the rounds of message passing T
  curves RUN...                 figure 8: reward of the training batches over steps; with --graphs N the gap of the
                                improvement from N graphs trained on to N unseen ones
  actions GRAPHS...             figure 11: how often each action is chosen, and for ops of how much memory
  topologies RUNS.csv...        figure 12: box plot of the rewards by topology, a panel per file

RUNS.csv is what `schedopt compare --output` writes, as examples/regal_table1.sh (figure 2),
examples/regal_generalise.sh (figure 3) and examples/regal_topologies.sh (figure 12) do; RUN is a folder of `schedopt
train regal` or `train gas`, as examples/regal_ablation.sh makes them. `python examples/regal_figures.py FIGURE --help`
has the options and the paper's numbers. A laptop hour is for the runs: drawing takes seconds, and `entropy`, `actions`
and `curves --graphs` a second or less per graph.
"""

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

BRKGA = "brkga"


# Files of runs ------------------------------------------------------------------------------------------------


def read_runs(path):
    """Return method -> graph -> the mean value of its feasible runs; methods and graphs as in the file."""
    from schedopt.core.comparison.summaries import mean_of

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
    from schedopt.core.comparison.summaries import improvement_percent

    found = (improvement_percent(*pair) for pair in pairs_of(values, method, reference).values())
    return [improvement for improvement in found if improvement is not None]


def with_error(values):
    """Write a mean with half of its 95% confidence interval."""
    from schedopt.core.comparison.summaries import estimate

    found = estimate(values)
    return f"{found.mean:+.2f} ± {found.half_width or 0:.2f}%"


def panels(count, width=5.0, height=4.0):
    """Return a figure with this many axes beside each other."""
    from schedopt.core.plots import figures

    return figures.panels(count, width, height)


def histogram(options):
    """Figure 2: improvements of a method over another, graph by graph.

    The paper, REGAL over BRKGA 5K on TensorFlow's graphs, runtime (peak memory): matches or beats it on 87.4% (88.9%)
    of the graphs, highest improvement 26.0% (54.3%), worst regression 24.0% (17.9%). Ties are not drawn, but counted.
    """
    import numpy as np
    from schedopt.core.plots.comparison_charts import improvement_histogram

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
            named = re.fullmatch(r"([0-9a-f]{16})(-\d+)?", graph)
            topology = known.get(graph) or (named[1] if named else graph)
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
    from schedopt.datasets.duplicates import topology_hash

    return {graph_name(path): topology_hash(read_graph(path)) for path in find_graphs(graphs)}


# Networks -----------------------------------------------------------------------------------------------------


def decided(options):
    """Yield, for each graph, what the network sees, its policy, and the levels that solve would take for each op."""
    import torch
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.policies.networks.shipped import weights_file
    from schedopt.policies.regal.batch import multigraph_batch
    from schedopt.policies.regal.distributions import taken_actions
    from schedopt.policies.regal.network import load_network
    from schedopt.policies.regal.rewards import Setting, make_case

    torch.set_num_threads(1)
    network = load_network(weights_file(options.weights))
    shape = network.parameters_
    setting = Setting(shape.task, shape.devices, shape.actions, options.features)
    for path in find_graphs(options.graphs):
        case = make_case(lambda path=path: read_graph(path), setting, options.seed, None, "")
        with torch.inference_mode():
            policy = network(multigraph_batch([case.searched]))
            levels = taken_actions(policy, options.actions, lambda case=case: case.start.drawn()[0])
        yield case.searched, shape.heads, policy, levels.numpy()


def entropy(options):
    """Figure 4a: entropy of the joint placement action, over graphs, in nats.

    That of the actions taken by the ops of a graph tells whether they are all the same; that of the policy, the mean
    over ops of the entropy of what it draws from, how sure it is. The paper's 16 joint actions have at most 2.77 nats;
    the mean of its histogram is 1.71: "neither uniform random, nor constant".
    """
    import numpy as np

    names = ("of the actions taken", "of the policy, per op")
    found = []
    for _, heads, policy, levels in decided(options):
        placement = levels[:, [head.kind == "placement" for head in heads]]
        if not placement.shape[1]:
            raise SystemExit(f"{options.weights}: does not choose placements")
        _, counts = np.unique(placement, axis=0, return_counts=True)
        shares = counts / counts.sum()
        found.append((max(0.0, -float((shares * np.log(shares)).sum())), float(policy.entropy("placement"))))
    choices = int(np.prod([head.choices for head in heads if head.kind == "placement"], dtype=np.float64))
    print(f"{len(found)} graphs, {choices:,} joint placement actions, at most {np.log(choices):.2f} nats")
    figure, axes = panels(2)
    for axis, name, values in zip(axes, names, np.array(found).T, strict=True):
        print(f"  entropy {name}: mean {values.mean():.2f}, from {values.min():.2f} to {values.max():.2f} nats")
        axis.hist(values, bins=options.bins)
        axis.set(xlabel="entropy, nats", ylabel="graphs", title=name)
    return figure


def actions(options):
    """Figure 11: frequency of each placement and scheduling action, and the mean relative memory of its ops.

    A placement action is for the device whose affinity has the largest mean, or for none if several have; a scheduling
    action is high, middle or low by the mean of the priority. Relative memory is that of an op's inputs and outputs,
    over the most of an op in its graph. The paper, peak memory: ops of more memory get lower priorities; most of those
    of most memory have no affinity, most of those of least memory prefer device 2.
    """
    import numpy as np

    counts, memory = defaultdict(int), defaultdict(float)
    for searched, heads, _, levels in decided(options):
        of_ops = searched.nodes[:, 0].astype(np.float64) + searched.nodes[:, 1]
        relative = of_ops / max(of_ops.max(), 1e-300)
        for op, kind in enumerate(zip(placed(levels, heads), scheduled(levels, heads), strict=True)):
            counts[kind] += 1
            memory[kind] += relative[op]
    rows, columns = (sorted({kind[at] for kind in counts}) for at in (0, 1))
    table = np.array([[counts.get((row, column), 0) for column in columns] for row in rows], np.float64)
    sums = np.array([[memory.get((row, column), 0.0) for column in columns] for row in rows])
    shares, means = 100 * table / table.sum(), np.divide(sums, table, out=np.zeros_like(sums), where=table > 0)
    print(f"{int(table.sum()):,} ops: share of ops, and mean relative memory")
    print("  " + " " * 12 + "".join(f"{column:>24}" for column in columns))
    for at, row in enumerate(rows):
        cells = (f"{share:.1f}%, {mean:.3f}" for share, mean in zip(shares[at], means[at], strict=True))
        print(f"  {row:12}" + "".join(f"{cell:>24}" for cell in cells))
    figure, axes = panels(2)
    for axis, values, name in zip(axes, (shares, means), ("frequency, %", "mean relative memory"), strict=True):
        axis.imshow(values, cmap="Blues", aspect="auto", vmin=0, vmax=2 * max(values.max(), 1e-300))
        for (row, column), value in np.ndenumerate(values):
            axis.text(column, row, f"{value:.3g}", ha="center", va="center")
        axis.set(title=name, xlabel="scheduling priority", ylabel="placement")
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
    return figure


def placed(levels, heads):
    """Return, for each op, the device that it prefers."""
    means = [at for at, head in enumerate(heads) if head.kind == "placement" and head.what == "mean"]
    if not means:
        return ["not chosen"] * len(levels)
    chosen = levels[:, means]
    top = chosen == chosen.max(1, keepdims=True)
    return [f"device {row.argmax() + 1}" if row.sum() == 1 else "none" for row in top]


def scheduled(levels, heads):
    """Return, for each op, whether its priority is high or low."""
    for at, head in enumerate(heads):
        if head.kind == "scheduling" and head.what == "mean":
            twice = 2 * (levels[:, at] + 1) - (head.choices + 1)
            return [("low", "middle", "high")[1 + (value > 0) - (value < 0)] for value in twice.tolist()]
    return ["not chosen"] * len(levels)


# Runs of training ---------------------------------------------------------------------------------------------


def rounds(options):
    """Figure 4b: the best improvement in validation that runs reached, against the rounds of message passing T.

    Of several runs with the same T the best counts, as in the paper's sweep of hyperparameters; there, runs with T > 0
    are better than with T = 0, and overall better as T grows.
    """
    from schedopt.policies.networks.shipped import described
    from schedopt.policies.training.run_folder import WEIGHTS, curve_of

    best = {}
    print(f"{'T':>3} {'improvement':>12}  run")
    for run in options.runs:
        count = described(Path(run, WEIGHTS))["rounds"]
        reached = max(line[options.measure] for line in curve_of(run))
        best[count] = max(reached, best.get(count, reached))
        print(f"{count:>3} {reached:>+11.2f}%  {run}")
    figure, (axis,) = panels(1)
    counts = sorted(best)
    axis.plot(counts, [best[count] for count in counts], marker="o")
    axis.set(xlabel="rounds of message passing, T", ylabel="best improvement in validation, %")
    axis.set_xticks(counts)
    axis.grid(alpha=0.3)
    return figure


def curves(options):
    """Figure 8: mean reward of an epoch's batches of training graphs, over steps, a panel per run.

    A reward above -1 is better than plain BRKGA with as many evaluations. With --graphs N, what is kept as the run's
    weights is compared with BRKGA, at the run's evaluations of a validation, on N graphs that it was trained on and on
    N that it never saw: drawn as its own are, or with --training and --held-out the first N of those given. The paper,
    TensorFlow's graphs: 7.25% on the training set and 7.09% on the test set for runtime, 4.36% and 3.56% for memory.
    """
    from schedopt.policies.training.run_folder import curve_of

    figure, axes = panels(len(options.runs))
    for axis, run in zip(axes, options.runs, strict=True):
        lines = [line for line in curve_of(run) if "reward" in line]
        print(f"{run}: {len(lines)} epochs with rewards")
        for line in lines:
            print(f"  step {line['step']:>7,}  reward {line['reward']:.4f}")
        axis.plot([line["step"] for line in lines], [line["reward"] for line in lines], marker=".")
        axis.axhline(-1, color="black", linewidth=0.8, alpha=0.5)
        axis.set(xlabel="step", ylabel="reward of the training graphs", title=Path(run).name)
        axis.grid(alpha=0.3)
        if options.graphs:
            seen, unseen = (improvements_by(run, graphs, options.seed) for graphs in both_sets(run, options))
            print(f"  improvement on {len(seen)} training graphs: {with_error(seen)}")
            print(f"  improvement on {len(unseen)} unseen graphs: {with_error(unseen)}")
            gap = sum(seen) / len(seen) - sum(unseen) / len(unseen)
            print(f"  gap {gap:+.2f} percentage points")
    return figure


def both_sets(run, options):
    """Return graphs that a run was trained on, and as many that it never saw."""
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.datasets.filters import KeepImproving
    from schedopt.datasets.recipe import Recipe
    from schedopt.policies.regal.rewards import DrawnGraphs
    from schedopt.policies.regal.training import KIND
    from schedopt.policies.training.run_folder import read_checkpoint

    if options.training or options.held_out:
        if not (options.training and options.held_out):
            raise SystemExit("give both --training and --held-out, or neither")
        return [
            [read_graph(path) for path in find_graphs(paths)[: options.graphs]]
            for paths in (options.training, options.held_out)
        ]
    settings = read_checkpoint(run, KIND).parameters
    keep = (KeepImproving(settings.improving),) if settings.improving else ()
    recipe, count = Recipe(settings.synthetic, settings.seed, keep), min(options.graphs, settings.training_graphs)
    drawn = (DrawnGraphs(recipe, first, count) for first in (0, settings.training_graphs))
    return [[graphs.maker(number)() for number in range(count)] for graphs in drawn]


def improvements_by(run, graphs, seed):
    """Return how much better than BRKGA the weights of a run are on graphs, in percent."""
    from schedopt.core.comparison.summaries import improvement_percent
    from schedopt.core.problem import Problem
    from schedopt.core.solve import solve
    from schedopt.policies.networks.shipped import described
    from schedopt.policies.regal.training import KIND
    from schedopt.policies.training.run_folder import WEIGHTS, read_checkpoint

    weights, evaluations = Path(run, WEIGHTS), read_checkpoint(run, KIND).parameters.validation_evaluations
    shape = described(weights)
    method = "gas" if shape["encoder"] == "lstm" else "regal"
    found = []
    for graph in graphs:
        problem = Problem(graph, shape["task"], shape["devices"])
        pair = [
            solve(problem, name, evaluations=evaluations, seed=seed).value
            for name in (f"{method}:weights={weights}", BRKGA)
        ]
        found.append(improvement_percent(*pair) or 0.0)
    return found


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = parser.add_subparsers(required=True, metavar="FIGURE")

    def add(figure, inputs, metavar):
        one = figures.add_parser(
            figure.__name__, description=figure.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        one.add_argument(inputs, nargs="+", metavar=metavar)
        one.add_argument("--output", default=f"regal_{figure.__name__}.png", metavar="FILE")
        one.set_defaults(figure=figure)
        return one

    for figure in (histogram, sweep, topologies):
        one = add(figure, "runs", "RUNS.csv")
        one.add_argument(
            "--reference", default="", help="the method that others are against (default: the first brkga)"
        )
        if figure is not sweep:
            one.add_argument("--method", default="", help="the method that is drawn (default: the first regal)")
        if figure is histogram:
            one.add_argument("--bins", type=int, default=40)
        if figure is topologies:
            one.add_argument("--graphs", nargs="+", metavar="GRAPHS", help="the graphs, if their names do not tell")
    for figure in (entropy, actions):
        one = add(figure, "graphs", "GRAPHS")
        one.add_argument("--weights", default="regal-runtime", help="shipped ones by name, or a file")
        one.add_argument("--actions", choices=("expected", "most-likely", "sample"), default="sample")
        one.add_argument("--features", type=int, default=400, help="evaluations that features come from")
        one.add_argument("--seed", type=int, default=1000)
        if figure is entropy:
            one.add_argument("--bins", type=int, default=20)
    one = add(rounds, "runs", "RUN")
    one.add_argument("--measure", default="sample_improvement_percent", help="of curve.jsonl")
    one = add(curves, "runs", "RUN")
    one.add_argument("--graphs", type=int, default=0, metavar="N", help="to measure the gap on")
    one.add_argument("--training", nargs="+", metavar="GRAPHS", help="graphs of the training, if they were given")
    one.add_argument("--held-out", nargs="+", metavar="GRAPHS", help="graphs that it did not have")
    one.add_argument("--seed", type=int, default=1000)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    options.figure(options).savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
