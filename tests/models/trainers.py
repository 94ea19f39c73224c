"""Tiny runs of both trainers: settings of a few seconds, and what is known of the runs that they make."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.datasets.synthetic import SyntheticParameters
from schedopt.policies.regal import network as regal_network
from schedopt.policies.regal import training as regal_training
from schedopt.policies.regal.actions import ActionParameters
from schedopt.policies.regal.rewards import Setting, given_graphs, make_case
from schedopt.policies.topoformer import network as topoformer_network
from schedopt.policies.topoformer import training as topoformer_training


def layered(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [layered_graph(LayeredParameters(nodes=size), rng, f"graph-{size}") for size in sizes]


def synthetic(count, low=10, high=14, seed=0):
    parameters = SyntheticParameters(nodes_low=low, nodes_high=high)
    return [parameters.draw(index, np.random.default_rng([seed, index])) for index in range(count)]


SHORT = {"epochs": 2, "graphs": 6, "nodes": (8, 12), "batch": 4}
TOPOFORMER_IMITATE = topoformer_training.Phase(**SHORT, reinforce=0.0, imitation=1.0, teacher_width=5)
TOPOFORMER_REINFORCE = topoformer_training.Phase(**SHORT, learning_rate=0.01, samples=2)
TOPOFORMER = topoformer_training.TrainingParameters(
    network=topoformer_network.NetworkParameters(layers=1, width=8, head_width=4, heads=1, eigenvectors=2),
    phases=(TOPOFORMER_IMITATE, TOPOFORMER_REINFORCE),
    validation_graphs=2,
    validation_nodes=12,
    checkpoint_seconds=0.0,
)

REGAL_REINFORCE = regal_training.Phase(
    epochs=2, steps=2, graphs=2, evaluations=120, samples=2, baseline="leave-one-out", learning_rate=0.01
)
REGAL_BASELINE = dataclasses.replace(REGAL_REINFORCE, epochs=1, samples=1, baseline="network")
REGAL_IMITATE = dataclasses.replace(REGAL_REINFORCE, epochs=1, reward=0.0, imitation=1.0, teacher="uniform")
REGAL = regal_training.TrainingParameters(
    network=regal_network.RegalNetworkParameters(
        actions=ActionParameters(placement=2, scheduling=5), width=8, rounds=1
    ),
    phases=(REGAL_REINFORCE, REGAL_BASELINE, REGAL_IMITATE),
    synthetic=SyntheticParameters(nodes_low=10, nodes_high=14),
    improving=0.0,
    training_graphs=5,
    seeds=2,
    features=100,
    validation_graphs=2,
    validation_evaluations=300,
    checkpoint_seconds=0.0,
)


def regal_cases(graphs, parameters, **links):
    """Return the cases of graphs for a network with these parameters, with the uniform teacher's actions."""
    setting = Setting(parameters.task, parameters.devices, parameters.actions, 100, **links)
    return [make_case(given_graphs([graph]).maker(0), setting, 0, 200, "uniform") for graph in graphs]


class Method(NamedTuple):
    """A trainer, and a run of eight steps in four epochs of two."""

    training: Any  # the module of the trainer: its `Trainer` and `TrainingParameters`
    parameters: Any  # of the run
    reinforce: Any  # a phase that needs graphs alone
    load: Callable  # reads its weights
    graphs: list  # three given graphs
    epochs: list  # phase, epoch and step of each line of the curve
    measured: list  # what the lines of the curve say of their epochs: of each, in turn
    validated: set  # what all say of their validations
    work: list  # of each step, in the unit of `share_done`
    files: set  # of the run, beside those that all have

    def trainer(self, folder, parameters=None, **graphs):
        """Return a trainer of the tiny run, or of one with other settings."""
        return self.training.Trainer(folder, parameters or self.parameters, **graphs)

    def with_phase(self, phase=None, **settings):
        """Return the settings with one phase alone, by default that of REINFORCE."""
        phases = (dataclasses.replace(phase or self.reinforce, **settings),)
        return dataclasses.replace(self.parameters, phases=phases)


METHODS = {
    "topoformer": Method(
        topoformer_training,
        TOPOFORMER,
        TOPOFORMER_REINFORCE,
        topoformer_network.load_network,
        layered(10, 12, 11),
        [(1, 0, 0), (1, 1, 2), (1, 2, 4), (2, 1, 6), (2, 2, 8)],
        [set(), *[{"loss", "imitated_log_probability"}] * 2, *[{"loss", "sampled_mib"}] * 2],
        {"greedy_gap_percent", "sample_gap_percent", "beam_gap_percent"},
        [1] * 8,
        set(),
    ),
    "regal": Method(
        regal_training,
        REGAL,
        REGAL_REINFORCE,
        regal_network.load_network,
        synthetic(3),
        [(1, 0, 0), (1, 1, 2), (1, 2, 4), (2, 1, 6), (3, 1, 8)],
        [set(), *[{"loss", "reward"}] * 2, {"loss", "reward", "baseline_error"}, {"loss", "imitated_log_probability"}],
        {
            *(f"{actions}_improvement_percent" for actions in regal_training.VALIDATED),
            *(f"{actions}_matched_percent" for actions in regal_training.VALIDATED),
            "entropy",
            "placement_entropy",
        },
        [2 * 2 * 120] * 4 + [2 * 120] * 2 + [2 * 100] * 2,
        {regal_training.PLAIN, regal_training.DRAWN},
    ),
}
