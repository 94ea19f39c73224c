"""REGAL's figures 4a and 11, of what a network chooses for graphs; figures.py is their command."""

from collections import defaultdict

from figures_of_runs import panels


def decided(options):
    """Yield, for each graph, what the network sees, its policy, and the levels that solve would take for each op."""
    import torch
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.policies.networks.shipped import weights_file
    from schedopt.policies.regal.network import load_network, multigraph_batch, taken_actions
    from schedopt.policies.regal.rewards import Setting, make_case

    torch.set_num_threads(1)
    network = load_network(weights_file(options.weights))
    shape = network.parameters_
    setting = Setting(shape.task, shape.devices, shape.actions, options.features)
    for path in find_graphs(options.graphs):
        case = make_case(lambda path=path: read_graph(path), setting, options.seed, None, "")
        with torch.inference_mode():
            policy = network(multigraph_batch([case.searched], ratios=shape.ratios))
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
