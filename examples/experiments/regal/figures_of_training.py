"""REGAL's figures 4b and 8, of the runs of `schedopt train regal` and `train gas`; figures.py is their command."""

from pathlib import Path

from figures_of_runs import BRKGA, panels, with_error


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
        (count,) = described(Path(run, WEIGHTS), ("rounds",))
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


def carded(axis, card):
    """Draw the improvements on validation graphs that the card of shipped weights has, and where rewards begin."""
    import yaml

    known, before = yaml.safe_load(card.read_text()), 0.0
    rewarded = [number for number, phase in enumerate(known["recipe"]["phases"], 1) if phase["reward"]]
    rows = []
    for run in known["runs"]:
        rows += [(phase, before + seconds, *found) for phase, _, seconds, *found in run["curve"]]
        before = rows[-1][1]
    print(f"{card.stem}: {len(rows)} validations in {before / 3600:.2f} hours")
    for column, name in enumerate(("drawn", "most likely"), 2):
        axis.plot([row[1] / 60 for row in rows], [row[column] for row in rows], marker=".", label=name)
        print(f"  {name} actions: first {rows[0][column]:+.2f}%, last {rows[-1][column]:+.2f}%")
    first = next(row[1] for row in rows if row[0] in rewarded)
    axis.axvline(first / 60, color="black", linewidth=0.8, linestyle="--", label="rewards from here on")
    axis.set(xlabel="minutes", ylabel="improvement over BRKGA, validation, %", title=card.stem)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")


def curves(options):
    """Figure 8: mean reward of an epoch's batches of training graphs, over steps, a panel per run.

    A reward above -1 is better than plain BRKGA with as many evaluations. In place of a run stands shipped weights'
    name: then it is the improvement on validation graphs, over time, as their card has it. With --graphs N, what is
    kept as the run's weights is compared with BRKGA, at the run's evaluations of a validation, on N graphs that it
    was trained on and on N that it never saw: drawn as its own are, or with --training and --held-out the first N of
    those given. The paper, TensorFlow's graphs: 7.25% on the training set and 7.09% on the test set for runtime,
    4.36% and 3.56% for memory.
    """
    from schedopt.policies.networks.shipped import WEIGHTS
    from schedopt.policies.training.run_folder import curve_of

    figure, axes = panels(len(options.runs))
    for axis, run in zip(axes, options.runs, strict=True):
        if (card := WEIGHTS / f"{run}.yaml").exists() and not Path(run).exists():
            carded(axis, card)
            continue
        lines = [line for line in curve_of(run) if "reward" in line]
        print(f"{run}: {len(lines)} epochs with rewards")
        for line in lines:
            print(f"  step {line['step']:>7,}  reward {line['reward']:.4f}")
        axis.plot([line["step"] for line in lines], [line["reward"] for line in lines], marker=".")
        axis.axhline(-1, color="black", linewidth=0.8, alpha=0.5)
        axis.set(xlabel="step", ylabel="reward of the training graphs", title=title_of(run))
        axis.grid(alpha=0.3)
        if options.graphs:
            seen, unseen = (improvements_by(run, graphs, options.seed) for graphs in both_sets(run, options))
            print(f"  improvement on {len(seen)} training graphs: {with_error(seen)}")
            print(f"  improvement on {len(unseen)} unseen graphs: {with_error(unseen)}")
            gap = sum(seen) / len(seen) - sum(unseen) / len(unseen)
            print(f"  gap {gap:+.2f} percentage points")
    return figure


def title_of(run):
    """Return the name of a run's folder, or of the one that holds the only run of a recipe."""
    return Path(run).parent.name if Path(run).name == "all" else Path(run).name


def both_sets(run, options):
    """Return graphs that a run was trained on, and as many that it never saw."""
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.datasets.filters import KeepImproving
    from schedopt.datasets.recipe import Recipe
    from schedopt.policies.regal.rewards import drawn_graphs
    from schedopt.policies.regal.training import DRAWN, TRAINED, TrainingParameters
    from schedopt.policies.training.run_folder import read_checkpoint

    if options.training or options.held_out:
        if not (options.training and options.held_out):
            raise SystemExit("give both --training and --held-out, or neither")
        return [
            [read_graph(path) for path in find_graphs(paths)[: options.graphs]]
            for paths in (options.training, options.held_out)
        ]
    settings = read_checkpoint(run, TrainingParameters).parameters
    keep = (KeepImproving(settings.improving),) if settings.improving else ()
    recipe, count = Recipe(settings.synthetic, settings.seed, keep), min(options.graphs, settings.training_graphs)
    drawn = (
        drawn_graphs(recipe, first, count, Path(run, DRAWN)) for first in (TRAINED, TRAINED + settings.training_graphs)
    )
    return [[graphs.maker(number)() for number in range(count)] for graphs in drawn]


def improvements_by(run, graphs, seed):
    """Return how much better than BRKGA the weights of a run are on graphs, in percent."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.report.summaries import improvement_percent
    from schedopt.core.solve.solve import solve
    from schedopt.policies.networks.shipped import described
    from schedopt.policies.regal.training import TrainingParameters
    from schedopt.policies.training.run_folder import WEIGHTS, read_checkpoint

    weights, evaluations = (
        Path(run, WEIGHTS),
        read_checkpoint(run, TrainingParameters).parameters.validation_evaluations,
    )
    encoder, task, devices = described(weights, ("encoder", "task", "devices"))
    method = "gas" if encoder == "lstm" else "regal"
    found = []
    for graph in graphs:
        problem = Problem(graph, task, devices)
        pair = [
            solve(problem, name, evaluations=evaluations, seed=seed).value
            for name in (f"{method}:weights={weights}", BRKGA)
        ]
        found.append(improvement_percent(*pair) or 0.0)
    return found
