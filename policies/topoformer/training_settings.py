"""Settings of Topoformer's training: its phases, what else decides the weights, the shipped recipe (C.1, 5.1)."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from ...core.base.errors import UsageError
from ...core.search.parameters import Parameters, parameter
from ..networks.shipped import WEIGHTS as SHIPPED
from ..training.settings import TrainingSettings, recipe_of
from .network import NetworkParameters
from .training_graphs import MOST_OPS

RECIPE = SHIPPED / "topoformer-layered.yaml"


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training, by default the paper's (C.1, 5.1): the loss is eq. 9's and imitation's weighted sum."""

    epochs: int = parameter(325, "each ends with a validation and a checkpoint; paper 325", low=1)
    graphs: int = parameter(1000, "of an epoch, new ones, or the given ones again and again; paper 1000", low=1)
    nodes: tuple[int, int] = parameter((500, 500), "least and most ops of a layered graph; paper 500")
    batch: int = parameter(8, "graphs of a step; paper 8", low=1)
    learning_rate: float = parameter(1e-4, "of Adam; paper 1e-4", low=0.0, high=1.0)
    decay: float = parameter(0.996, "factor of the learning rate per epoch; paper 0.996", low=0.01, high=1.0)
    reinforce: float = parameter(1.0, "weight of REINFORCE", low=0.0)
    samples: int = parameter(1, "orders drawn of a graph; paper 1", low=1)
    baseline: Literal["greedy-rollout", "leave-one-out"] = parameter(
        "greedy-rollout", "greedy-rollout (eq. 10) or leave-one-out, the mean of a graph's other samples"
    )
    imitation: float = parameter(0.0, "weight of imitating the orders of a search", low=0.0)
    teacher: Literal["search", "policy"] = parameter(
        "search", "whose orders: a backward beam over sets of ops, or the policy's own beam, where it beats its samples"
    )
    teacher_width: int = parameter(200, "width of the teacher's beam", low=1)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return math.ceil(self.graphs / self.batch)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.nodes[0] <= self.nodes[1] <= MOST_OPS:
            raise UsageError(f"nodes must be two sizes from 1 to {MOST_OPS}, the smaller first, not {list(self.nodes)}")
        if self.reinforce == 0 == self.imitation:
            raise UsageError("reinforce and imitation must not both be 0")
        if self.reinforce and self.baseline == "leave-one-out" and self.samples < 2:
            raise UsageError("the leave-one-out baseline needs at least 2 samples")


@dataclasses.dataclass(frozen=True)
class TrainingParameters(TrainingSettings):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    network: NetworkParameters = dataclasses.field(default_factory=NetworkParameters)
    phases: tuple[Phase, ...] = (Phase(),)
    validation_graphs: int = parameter(32, "layered graphs that no phase trains on", low=1)
    validation_nodes: int = parameter(500, "their ops", low=1, high=MOST_OPS)
    search_evaluations: int = parameter(
        2000, "of order-search per given graph, for the orders to imitate and to validate against", low=2
    )
    precision: Literal["float32", "bfloat16"] = parameter("float32", "of matrix products; weights stay float32")


def shipped_recipe() -> TrainingParameters:
    """Return the settings that made the shipped weights, but on a CPU; the paper's until there are any."""
    return recipe_of(RECIPE, TrainingParameters) if RECIPE.exists() else TrainingParameters()


def wants_orders(phase: Phase) -> bool:
    """Whether a phase imitates orders of a search."""
    return phase.imitation > 0 and phase.teacher == "search"
