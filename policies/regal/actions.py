"""Actions of REGAL: its choices for each op, and the distributions of genes that these stand for (REGAL A.6)."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.base.errors import UsageError
from ...core.graph.graph import CostGraph
from ...core.search.parameters import Parameters, parameter
from ...core.solvers.placements.brkga import GeneDistribution

Kind = Literal["placement", "scheduling", "crossover", "transfers"]
# Which of a policy's actions: mean levels, rounded; the most probable; or drawn, as the paper's
Taken = Literal["expected", "most-likely", "sample"]
What = Literal["mean", "variance", "alpha", "beta", "bias"]
Levels = TypeVar("Levels", bound=Any)


class Head(NamedTuple):
    """One categorical choice per op."""

    kind: Kind  # part of the chromosome that the choice is for
    # the op's gene there: device j for an affinity, `devices` for the scheduling priority, and 0 for transfers
    entry: int
    what: What  # what is chosen: one of two numbers of the gene's beta distribution, or the `bias` of its crossover
    choices: int  # number of levels to choose from, k


@dataclass(frozen=True)
class ActionParameters(Parameters):
    """Which genes the policy chooses distributions for, and in how many levels k; 0 leaves them uniform."""

    # The defaults are those of the paper's agent for the runtime task (A.15). Transfers are ours: the paper leaves them
    # uniform. Uniform is among the choices for a gene only if 6 divides k + 1 (k = 5, 11, 17, ...), or, with levels of
    # alpha and beta, if 3 divides k - 1.
    placement: int = parameter(2, "levels of mean and variance of the op's affinity to each device", low=0, high=64)
    scheduling: int = parameter(16, "levels of mean and variance of the op's priority", low=0, high=64)
    crossover: int = parameter(
        0, "levels of the bias by which a child takes each of the op's genes from its elite parent", low=0, high=64
    )
    transfers: int = parameter(
        0, "levels of mean and variance of the priorities of all transfers of the op's outputs", low=0, high=64
    )
    levels: Literal["mean-variance", "alpha-beta"] = parameter(
        "mean-variance", "what levels are of: mean-variance (A.6), or alpha-beta, from 1/4 to 16 (workshop paper)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in ("placement", "scheduling", "crossover", "transfers"):
            if getattr(self, kind) == 1:
                raise UsageError(f"{kind} must be 0, for no choice, or from 2 to 64, not 1")
        if not (self.placement or self.scheduling or self.crossover or self.transfers):
            raise UsageError("placement, scheduling, crossover and transfers must not all be 0: no choice is left")

    def heads(self, devices: int) -> tuple[Head, ...]:
        """Return the choices of each op: affinities, priority and crossover (A.6), then transfers (ours)."""
        genes: list[tuple[Kind, int, int]] = []
        if self.placement:
            genes += [("placement", device, self.placement) for device in range(devices)]
        if self.scheduling:
            genes.append(("scheduling", devices, self.scheduling))
        pair: tuple[What, What] = ("mean", "variance") if self.levels == "mean-variance" else ("alpha", "beta")
        heads = [Head(kind, entry, what, k) for kind, entry, k in genes for what in pair]
        if self.crossover:
            heads += [Head("crossover", entry, "bias", self.crossover) for entry in range(devices + 1)]
        if self.transfers:
            heads += [Head("transfers", 0, what, self.transfers) for what in pair]
        return tuple(heads)


def beta_parameters(mean: Levels, variance: Levels, k: int) -> tuple[Levels, Levels]:
    """Return alpha and beta of the beta distribution that two levels stand for (A.6)."""
    # With mu = (m + 1) / (k + 1) and sigma^2 = mu (1 - mu) (v + 1) / (k + 1), the paper's formulas are those of a mean
    # mu and alpha + beta = mu (1 - mu) / sigma^2 - 1 = (k - v) / (v + 1). Computed like this, Beta(1, 1) is exact.
    mu, concentration = (mean + 1) / (k + 1), (k - variance) / (variance + 1)
    return mu * concentration, (1 - mu) * concentration


_LOWEST, _OCTAVES = -2, 6  # exponents of 2 of alpha and beta: the lowest, and how many; the paper names no values


def power(level: Levels, k: int) -> Levels:
    """Return the alpha or beta that one of k levels stands for: a power of 2 from 1/4 to 16."""
    value: Levels = 2.0 ** (_LOWEST + _OCTAVES * level / (k - 1))
    return value


def level_of(value: Levels, k: int) -> Levels:
    """Return the level, not rounded, that stands for an alpha or beta above 0."""
    level: Levels = (np.log2(value) - _LOWEST) / _OCTAVES * (k - 1)
    return level


def crossover_bias(level: Levels, k: int) -> Levels:
    """Return the probability that a level of the crossover stands for: `(1 + (c + 1) / k) / 2` (A.6)."""
    bias: Levels = 0.5 * (1 + (level + 1) / k)
    return bias


def dequantise(
    actions: NDArray[Any], graph: CostGraph, devices: int, parameters: ActionParameters, bias: float = 0.7
) -> GeneDistribution:
    """Turn the choices for every op into the distribution of every gene (A.6)."""
    # Genes as in `chromosomes`. A level for transfers counts for all output tensors, control included, to every device.
    ops = graph.num_ops
    genes = ops * (devices + 1) + graph.num_tensors * devices
    alpha, beta, biases = np.ones(genes), np.ones(genes), np.full(genes, float(bias))
    sender = np.repeat(graph.tensor_producer, devices)
    for at, head in enumerate(parameters.heads(devices)):
        if head.kind == "transfers":
            chosen, level = slice(ops * (devices + 1), genes), actions[sender]
        elif head.entry == devices:
            chosen, level = slice(ops * devices, ops * (devices + 1)), actions
        else:
            chosen, level = slice(head.entry, ops * devices, devices), actions
        if head.what == "bias":
            biases[chosen] = crossover_bias(level[:, at], head.choices)
        elif head.what == "mean":  # its variance is the next head
            alpha[chosen], beta[chosen] = beta_parameters(level[:, at], level[:, at + 1], head.choices)
        elif head.what != "variance":
            (alpha if head.what == "alpha" else beta)[chosen] = power(level[:, at], head.choices)
    return GeneDistribution(alpha, beta, biases)
