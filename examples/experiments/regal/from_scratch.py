"""What REINFORCE from random weights needs, on REGAL's makespan: one setting changed at a time, at equal evaluations.

    python examples/experiments/regal/from_scratch.py TRAINING VALIDATION TESTS FOLDER [--runs ours ...] [--steps 300]

"ours" draws 8 samples of each of 4 graphs per step, with the leave-one-out baseline, a learning rate of 1e-3, rewards
of 1,000 evaluations, and a network that normalises its embeddings. Each other run differs as its name says; "paper" is
A.16 but for its number of steps. Steps are adjusted so that all runs have as many evaluations. Prints the improvement
over BRKGA with 5,000 evaluations on the test graphs by drawn and by expected actions, mean with 95% interval, and the
entropy of an op's choices in nats. The same command goes on where it stopped. Ten minutes a run.
"""

import argparse
from pathlib import Path

import numpy as np
from figures_of_runs import with_error

OURS = {"samples": 8, "graphs": 4, "baseline": "leave-one-out", "learning_rate": 1e-3, "evaluations": 1000}
SHAPE = {"update": "residual", "normalise": True, "rounds": 4}
ONE = {"samples": 1, "baseline": "network"}
PAPERS_NETWORK = {"update": "gru", "normalise": False, "rounds": 2}
TWO_LEVELS = {"placement": 2, "scheduling": 16}
RUNS = {
    "ours": ({}, {}, {}),
    "learning rate 1e-4": ({"learning_rate": 1e-4}, {}, {}),
    "learning rate 3e-4": ({"learning_rate": 3e-4}, {}, {}),
    "one sample of 32 graphs, baseline network": ({**ONE, "graphs": 32}, {}, {}),
    "one sample of 4 graphs, baseline network": (ONE, {}, {}),
    "not normalised": ({}, {"normalise": False}, {}),
    "network of A.16": ({}, PAPERS_NETWORK, {}),
    "two levels of placement": ({}, {}, TWO_LEVELS),
    "rewards of 4600 evaluations": ({"evaluations": 4600}, {}, {}),
    "alpha and beta": ({}, {}, {"levels": "alpha-beta"}),
    "paper": ({**ONE, "learning_rate": 1e-4}, PAPERS_NETWORK, TWO_LEVELS),
}


def settings_of(name, steps):
    """Return the settings of a run, as many evaluations as "ours" has in these steps, in three epochs."""
    from schedopt.policies.regal.actions import ActionParameters
    from schedopt.policies.regal.network import RegalNetworkParameters
    from schedopt.policies.regal.training import Phase, TrainingParameters

    phase, shape, actions = RUNS[name]
    phase = {**OURS, **phase}
    of_step = phase["samples"] * phase["graphs"] * phase["evaluations"]
    actions = ActionParameters(**{"placement": 4, "scheduling": 16, **actions})
    network = RegalNetworkParameters(actions=actions, **{**SHAPE, **shape})
    phases = (Phase(epochs=3, steps=round(steps * 8 * 4 * 1000 / of_step / 3), **phase),)
    return TrainingParameters(network=network, phases=phases, clip=1.0)


def tested(network, graphs):
    """Return the improvements in percent by drawn and by expected actions, and entropies, graph by graph."""
    import torch
    from schedopt.policies.regal.features import EVALUATIONS
    from schedopt.policies.regal.network import multigraph_batch
    from schedopt.policies.regal.rewards import Setting, found_value, given_graphs, make_case

    shape = network.parameters_
    setting, maker = Setting(shape.task, shape.devices, shape.actions, EVALUATIONS), given_graphs(graphs).maker
    rows = []
    for number in range(len(graphs)):
        case = make_case(maker(number), setting, 1000, 5000, "")
        with torch.inference_mode():
            policy = network(multigraph_batch([case.searched]))
        seed, after = case.start.drawn()
        drawn = policy.sample(1, torch.Generator().manual_seed(seed))[0].numpy()
        found = [
            found_value(start, chosen, shape.actions, 5000 - EVALUATIONS)
            for start, chosen in ((after, drawn), (case.start, policy.expected().numpy()))
        ]
        gains = [100 * (1 - case.ratio(min(case.searched.value, value))) for value in found]
        rows.append((*gains, float(policy.entropy(None))))
    return np.array(rows).T


def main():
    """Train and print, run by run."""
    import torch
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.policies.regal.network import load_network
    from schedopt.policies.regal.training import Trainer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for folder in ("training", "validation", "tests", "folder"):
        parser.add_argument(folder, type=Path)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    training, validation, tests = (
        [read_graph(file) for file in find_graphs([folder])]
        for folder in (options.training, options.validation, options.tests)
    )
    for name in options.runs:
        folder = options.folder / name.replace(" ", "-")
        trainer = Trainer(folder, settings_of(name, options.steps), graphs=training, validation=validation)
        trainer.run()
        drawn, expected, entropy = tested(load_network(folder / "weights.safetensors"), tests)
        gains = f"drawn {with_error([*drawn])}, expected {with_error([*expected])}"
        print(f"{name}: {trainer.place.step} steps; {gains}; entropy {entropy.mean():.2f}", flush=True)


if __name__ == "__main__":
    main()
