"""Needs of REINFORCE from random weights, on REGAL's makespan: one setting changed at a time, at equal evaluations.

    python examples/experiments/regal/from_scratch.py TRAINING VALIDATION TESTS FOLDER [--runs ours ...] [--steps 300]

"ours" draws 8 samples of each of 4 graphs per step, with the leave-one-out baseline, a learning rate of 1e-3, rewards
of 1,000 evaluations, and a network that normalises its embeddings. Each other run differs as its name says; "paper" is
A.16 but for its number of steps. In all, gradients are clipped to a norm of 1 (A.16: 10), and steps are as many as give
equal evaluations. Prints the improvement over BRKGA with 5,000 evaluations on the test graphs by drawn and by expected
actions, mean with 95% interval, and the last entropy of an op's choices on the validation graphs, in nats. The same
command goes on where it stopped. Ten minutes a run.
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
KINDS = "sample", "expected"
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


def values_of(graphs, method):
    """Return the makespans that a method finds with 5,000 evaluations."""
    from schedopt import Problem
    from schedopt.core.solve.solve import solve

    problems = [Problem(graph, "runtime", devices=2) for graph in graphs]
    return np.array([solve(problem, method, evaluations=5000, seed=1000).value for problem in problems])


def main():
    """Train and print, run by run."""
    import torch
    from schedopt.core.files.costgraph import find_graphs, read_graph
    from schedopt.policies.regal.training import Trainer
    from schedopt.policies.training.run_folder import WEIGHTS, curve_of

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
    plain = values_of(tests, "brkga")
    for name in options.runs:
        folder = options.folder / name.replace(",", "").replace(" ", "-")
        trainer = Trainer(folder, settings_of(name, options.steps), graphs=training, validation=validation)
        trainer.run()
        found = {kind: values_of(tests, f"regal:weights={folder / WEIGHTS}:actions={kind}") for kind in KINDS}
        gains = ", ".join(f"{kind} {with_error([*100 * (1 - value / plain)])}" for kind, value in found.items())
        print(f"{name}: {trainer.place.step} steps; {gains}; entropy {curve_of(folder)[-1]['entropy']:.2f}", flush=True)


if __name__ == "__main__":
    main()
