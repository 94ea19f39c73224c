"""Settings of REGAL's training: its phases, what else decides the weights, and recipes (REGAL A.14 to A.16)."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ...core.base.errors import UsageError
from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ...datasets.synthetic import SyntheticParameters
from ..networks.shipped import WEIGHTS as SHIPPED
from ..training.settings import TrainingSettings, recipe_of
from .actions import ActionParameters, Taken
from .features import EVALUATIONS
from .network import RegalNetworkParameters
from .teachers import TEACHERS

_TEACHERS = f"one of {', '.join(TEACHERS)}"


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training, by default the paper's (A.14): the weighted sum of reward and imitation."""

    epochs: int = parameter(100, "each ends with a validation and a checkpoint; paper 100,000 steps in all", low=1)
    steps: int = parameter(1000, "of an epoch", low=1)
    graphs: int = parameter(4, "of a step; paper 4", low=1)
    samples: int = parameter(1, "actions drawn of a graph, all for the same random numbers of BRKGA; paper 1", low=1)
    evaluations: int = parameter(1000, "of BRKGA with the actions drawn, and without any; paper 1000", low=2)
    learning_rate: float = parameter(1e-4, "of Adam; paper 1e-4", low=0.0, high=1.0)
    decay: float = parameter(1.0, "factor of the learning rate per epoch; paper 1", low=0.01, high=1.0)
    reward: float = parameter(1.0, "weight of the reward", low=0.0)
    estimator: Literal["reinforce", "evolution"] = parameter(
        "reinforce", "of the reward's gradient: reinforce (4.1), or evolution, from the rewards of perturbed weights"
    )
    baseline: Literal["network", "leave-one-out"] = parameter(
        "network", "of reinforce: the baseline network (4.2), or leave-one-out, the mean of a graph's other samples"
    )
    population: int = parameter(16, "pairs of perturbed weights of evolution", low=1)
    sigma: float = parameter(0.02, "length of their perturbations", low=1e-6)
    perturbed: Literal["heads", "all"] = parameter("heads", "which weights evolution changes: the last layers, or all")
    ranks: bool = parameter(True, "whether evolution goes by the ranks of rewards rather than by rewards")
    imitation: float = parameter(0.0, "weight of imitating a teacher", low=0.0)
    teacher: str = parameter("", f"whose actions to imitate: {_TEACHERS}")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward == 0 == self.imitation:
            raise UsageError("reward and imitation must not both be 0")
        if self.teacher not in ("", *TEACHERS):
            raise UsageError(f"teacher must be {_TEACHERS}, not '{self.teacher}'")
        if self.imitation and not self.teacher:
            raise UsageError(f"imitation needs a teacher: {_TEACHERS}")
        if self.by_reinforce and self.baseline == "leave-one-out" and self.samples < 2:
            raise UsageError("the leave-one-out baseline needs at least 2 samples")

    @property
    def by_reinforce(self) -> bool:
        """Whether samples are rewarded."""
        return self.reward > 0 and self.estimator == "reinforce"

    @property
    def by_evolution(self) -> bool:
        """Whether perturbed weights are rewarded."""
        return self.reward > 0 and self.estimator == "evolution"


@dataclasses.dataclass(frozen=True)
class TrainingParameters(TrainingSettings):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    network: RegalNetworkParameters = dataclasses.field(default_factory=RegalNetworkParameters)
    phases: tuple[Phase, ...] = (Phase(),)
    synthetic: SyntheticParameters = dataclasses.field(default_factory=SyntheticParameters)
    improving: float = parameter(
        0.18,
        "least share by which BRKGA with 10,000 evaluations is faster than with 1,000 on a synthetic graph, 0 for any; "
        "paper 0.18",
        low=0.0,
        high=1.0,
    )
    bandwidth: float = parameter(0.0, "bytes per second between devices, 0 for infinite", low=0.0)
    latency: float = parameter(0.0, "microseconds that each transfer adds", low=0.0)
    training_graphs: int = parameter(10_000, "synthetic graphs to train on, again and again; paper 10,000", low=1)
    seeds: int = parameter(1, "of BRKGA per graph to train on; features are kept for each", low=1)
    features: int = parameter(EVALUATIONS, "evaluations that features come from; paper 400", low=1)
    validation_graphs: int = parameter(64, "synthetic graphs that no phase trains on; paper 1000", low=1)
    validation_evaluations: int = parameter(
        5000, "of a validation's searches, with the features' and without actions; paper 5000", low=2
    )
    keep: Literal["", Taken] = parameter(
        "", "actions whose improvement decides which weights are the best (default: the network's)"
    )
    clip: float = parameter(10.0, "largest norm of a gradient; paper 10", low=1e-9)
    baseline_weight: float = parameter(1e-4, "of the baseline network's squared error; paper 1e-4", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validation_evaluations < 2 * self.features:
            raise UsageError(f"validation_evaluations must be at least twice the {self.features} of the features")


def recipe(method: str, task: Task, devices: int) -> TrainingParameters:
    """Return the settings that made the shipped weights of a method, but on a CPU; the paper's until there are any."""
    file = SHIPPED / f"{method}-{task}.yaml"
    if file.exists():
        settings = recipe_of(file, TrainingParameters)
        return dataclasses.replace(settings, network=dataclasses.replace(settings.network, devices=devices))
    encoder: Literal["gnn", "lstm"] = "gnn" if method == "regal" else "lstm"
    if task == "memory":
        actions = ActionParameters(placement=2, scheduling=2)
        network = RegalNetworkParameters(task, devices, actions, encoder, rounds=16, update="mlp", aggregation="mean")
    else:
        network = RegalNetworkParameters(task, devices, ActionParameters(2, 16), encoder)
    return TrainingParameters(network=network)
