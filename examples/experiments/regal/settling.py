"""Choices of a REGAL policy: whether they differ from op to op, and why REINFORCE settles where it does.

    python examples/experiments/regal/settling.py GRAPHS... [--weights regal-runtime] [--evaluations 1000 4600]
        [--draws 4]

Prints how many ops have the commonest of all likeliest actions, and for each number of evaluations the improvement over
BRKGA with as many, mean with 95% interval over graphs: by drawn and by likeliest actions, and by the commonest action
for all ops. Then, from levels drawn uniformly, as at the start of the training, what a growing share of the ops gains
that take the teacher's actions, or all the commonest one, and the difference, graph by graph: the slopes at the start
are what REINFORCE follows. The commonest action says little unless --weights are of a run of the paper's recipe.
Transfers are free. 60 graphs take ten minutes.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from figures_of_runs import with_error
from table1 import TEACHERS

SHARES = 0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1


def improvement(case, actions, levels, evaluations, start=None):
    """Return how much better than plain BRKGA a search with these actions is, in percent."""
    from schedopt.policies.regal.rewards import found_value

    return 100 * (1 - case.ratio(found_value(start or case.start, actions, levels, evaluations)))


def gains_of_shares(case, targets, heads, gain, draws, rng):
    """Return (kind, share) -> mean gain if a share of the ops takes actions of a kind, the others uniform levels."""
    gains, ops = {(kind, share): [] for share in SHARES for kind in targets}, len(case.searched.nodes)
    for _ in range(draws):
        uniform = np.stack([rng.integers(head.choices, size=ops) for head in heads], axis=1)
        rank = rng.random(ops)[:, None]
        for kind, share in gains:
            gains[kind, share].append(gain(case, np.where(rank < share, targets[kind], uniform)))
    return {key: np.mean(found) for key, found in gains.items()}


def main():
    """Print the tables of the command line."""
    import torch
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.policies.networks.shipped import weights_file
    from schedopt.policies.regal.features import EVALUATIONS
    from schedopt.policies.regal.network import RegalNetwork, multigraph_batch
    from schedopt.policies.regal.rewards import Setting, given_graphs, make_case

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--weights", default="regal-runtime", help="shipped ones by name, or a file")
    parser.add_argument("--evaluations", nargs="+", type=int, default=[1000, 4600])
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = RegalNetwork.load(weights_file(options.weights))
    shape = network.parameters_
    graphs = [read_graph(path) for path in find_graphs(options.graphs)]
    maker = given_graphs(graphs).maker
    setting = Setting(shape.task, shape.devices, shape.actions, EVALUATIONS)
    cases = [make_case(maker(number), setting, 0, None, TEACHERS[shape.task]) for number in range(len(graphs))]
    policies = []
    for case in cases:
        with torch.inference_mode():
            policies.append(network(multigraph_batch([case.searched], ratios=shape.ratios)))
    likeliest = [policy.most_likely().numpy() for policy in policies]
    actions, counts = np.unique(np.concatenate(likeliest), axis=0, return_counts=True)
    common = actions[counts.argmax()]
    chosen = ", ".join(
        f"{head.kind} {head.entry} {head.what} {level}" for head, level in zip(shape.heads, common, strict=True)
    )
    print(f"{len(graphs)} graphs, {counts.sum():,} ops, {len(actions):,} different likeliest actions")
    print(f"the commonest, of {counts.max() / counts.sum():.1%}: {chosen}")
    for evaluations in options.evaluations:
        gain = partial(improvement, levels=shape.actions, evaluations=evaluations)
        rows = {name: [] for name in ("drawn", "likeliest", "the commonest for all")}
        shares = []
        for number, (known, policy, likely) in enumerate(zip(cases, policies, likeliest, strict=True)):
            case = make_case(known, setting, 0, evaluations, "")
            seed, after = case.start.drawn()
            drawn = policy.sample(1, torch.Generator().manual_seed(seed))[0].numpy()
            rows["drawn"].append(gain(case, drawn, start=after))
            rows["likeliest"].append(gain(case, likely))
            rows["the commonest for all"].append(gain(case, np.tile(common, (len(likely), 1))))
            targets, rng = {"the teacher's": known.target, "the commonest": common}, np.random.default_rng(number)
            shares.append(gains_of_shares(case, targets, shape.heads, gain, options.draws, rng))
        print(f"{evaluations:,} evaluations")
        for name, found in rows.items():
            print(f"  {name}: {with_error(found)}")
        for share in SHARES:
            taught, same = ([of[kind, share] for of in shares] for kind in ("the teacher's", "the commonest"))
            of_share = {"the teacher's": taught, "the commonest": same, "the difference": np.subtract(same, taught)}
            print(f"  {share:.0%} of the ops: " + ", ".join(f"{k} {with_error([*v])}" for k, v in of_share.items()))


if __name__ == "__main__":
    main()
