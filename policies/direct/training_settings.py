"""Settings of the training of `direct`: its phases, what else decides the weights, the recipe of the shipped ones."""

from __future__ import annotations

import dataclasses

from ...core.base.errors import UsageError
from ...core.problem.problem import Task
from ...core.search.method_spec import parse_method
from ...core.search.parameters import Parameters, parameter
from ...datasets.synthetic import SyntheticParameters
from ..networks.shipped import WEIGHTS as SHIPPED
from ..training.settings import TrainingSettings, recipe_of
from .network import DirectNetworkParameters

MOST_DEVICES = 8


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training: the loss is the weighted sum of its parts, plus the gradient of evolution."""

    epochs: int = parameter(10, "each ends with a validation and a checkpoint", low=1)
    steps: int = parameter(50, "of an epoch", low=1)
    graphs: int = parameter(16, "of a step", low=1)
    learning_rate: float = parameter(1e-3, "of Adam", low=0.0, high=1.0)
    decay: float = parameter(1.0, "factor of the learning rate per epoch", low=0.01, high=1.0)
    imitation: float = parameter(1.0, "weight of imitating the order in which the teacher's plan starts ops", low=0.0)
    reinforce: float = parameter(0.0, "weight of REINFORCE", low=0.0)
    evolution: float = parameter(0.0, "weight of evolution, which changes the last layers alone", low=0.0)
    pairs: int = parameter(12, "pairs of perturbed weights of evolution", low=1)
    sigma: float = parameter(0.02, "length of their perturbations", low=1e-6)
    samples: int = parameter(8, "keys drawn of a graph for REINFORCE, each other's baseline", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reinforce == 0 == self.imitation and self.evolution == 0:
            raise UsageError("imitation, reinforce and evolution must not all be 0")


@dataclasses.dataclass(frozen=True)
class TrainingParameters(TrainingSettings):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    network: DirectNetworkParameters = dataclasses.field(default_factory=DirectNetworkParameters)
    phases: tuple[Phase, ...] = (Phase(), Phase(imitation=0.0, reinforce=1.0))
    synthetic: SyntheticParameters = dataclasses.field(default_factory=SyntheticParameters)
    devices: tuple[int, ...] = parameter((2, 2, 3, 4, 8), "numbers of devices, of which each graph draws one")
    paid: float = parameter(
        0.5, "share of the graphs whose transfers take time, if the makespan is minimised", low=0.0, high=1.0
    )
    bandwidth: float = parameter(
        0.0, "bytes per second where transfers take time; 0: each graph draws what a transfer takes", low=0.0
    )
    latency: float = parameter(0.0, "microseconds that each transfer adds to what bandwidth says", low=0.0)
    training_graphs: int = parameter(256, "synthetic graphs to train on, again and again", low=1)
    validation_graphs: int = parameter(32, "synthetic graphs that no phase trains on", low=1)
    teacher: str = parameter("auto", "the method whose plans are imitated")
    teacher_evaluations: int = parameter(1000, "of each of its plans", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.devices or not all(2 <= devices <= MOST_DEVICES for devices in self.devices):
            raise UsageError(f"devices must be numbers from 2 to {MOST_DEVICES}, not {list(self.devices)}")
        if self.latency and not self.bandwidth:
            raise UsageError("latency goes with bandwidth; without it each graph draws both")
        parse_method(self.teacher)


def recipe(task: Task) -> TrainingParameters:
    """Return the settings that made the shipped weights for a task, but on a CPU; the defaults until there are any."""
    file = SHIPPED / f"direct-{task}.yaml"
    if file.exists():
        return recipe_of(file, TrainingParameters)
    return TrainingParameters(network=DirectNetworkParameters(task=task))
