"""Training of `direct`: imitation of the order in which a teacher's plans start ops, REINFORCE, and evolution."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.base.arrays import FloatArray
from ...core.base.errors import UsageError
from ...core.base.parallel import chunks
from ...core.graph.graph import CostGraph
from ..training.evolution import centred_ranks, directions, estimated_gradient
from ..training.phases import OnGraph, PhasedTrainer, evaluating, given_batches, ignored, seeded
from ..training.run_folder import Place, RunKind
from .cases import HELD_OUT, Case, make_case, make_cases
from .decoding import values_of
from .network import DirectNetwork, DirectPolicy, batch_of, load_network
from .training_settings import Phase, TrainingParameters

KIND = RunKind("direct", TrainingParameters, Place)
SAMPLES = 16  # of a validation, and what `schedopt solve` draws
PAIRS_PER_OP, NEAR = 8, 0.25  # pairs that imitation compares, and how far apart in the plan, as a share of it
STEEPNESS = 20.0  # A key is to be larger than the next by about a twentieth: the steps of a path of twenty ops
_SAMPLES, _PAIRS, _VALIDATION, _DIRECTIONS = 0, 1, 2, 3


class Trainer(PhasedTrainer[Phase, list[Case]]):
    """A run of the training of `direct`."""

    kind: ClassVar[RunKind[TrainingParameters, Place]] = KIND
    same = ("task",)
    validated = ("greedy_improvement_percent", "sample_improvement_percent")
    parameters: TrainingParameters
    network: DirectNetwork
    place: Place

    def __init__(
        self,
        folder: str | Path,
        parameters: TrainingParameters,
        cases: Sequence[Case],
        *,
        graphs: Sequence[CostGraph] = (),
        validation: Sequence[CostGraph] = (),
        jobs: int = 1,
    ) -> None:
        super().__init__(folder, parameters, graphs, validation, jobs)
        if wants_orders(parameters) and any(case.order is None for case in cases):
            raise UsageError("imitation needs the orders of a teacher; see policies.direct.cases.taught")
        self.cases = tuple(cases)
        with seeded(parameters.seed):
            self.network = self._first_network(load_network, DirectNetwork)
        self._held_out: list[Case] = []
        self._set_up(self.network.parameters(), network=self.network)

    def compile(self) -> None:
        """Run every kernel once, on a small problem."""
        case = make_case(self.parameters, HELD_OUT, self.validation[:1], 0)
        values_of(case.problem, case.seen.rule[None])

    def _batches(self, phase: Phase) -> Generator[list[Case], None, None]:
        ranges = chunks(phase.steps * phase.graphs, phase.graphs)[self.place.batch :]
        return given_batches(self.cases, self.parameters.seed + self.place.phase, self.place.epoch, ranges)

    def _policy(self, network: DirectNetwork, cases: Sequence[Case]) -> DirectPolicy:
        policy: DirectPolicy = network(batch_of([case.seen for case in cases]))
        if not torch.isfinite(policy.mean).all():
            raise self._broken("network's output")
        return policy

    def _add_gradients(self, phase: Phase, batch: list[Case]) -> None:
        if phase.imitation or phase.reinforce:
            super()._add_gradients(phase, batch)
        if phase.evolution:
            self._add_evolution(phase, batch)

    def _add_evolution(self, phase: Phase, cases: list[Case]) -> None:
        """Add the gradient of the expected cost under perturbations of the last layers, by evolution strategies."""
        network, seen = self.network, batch_of([case.seen for case in cases])
        width = network.parameters_.width
        with torch.no_grad():
            hidden = network.hidden(seen)
            drawn = directions(phase.pairs, 2 * width, self._rng(_DIRECTIONS)).to(network.device)
            keys = network.policy(seen, *hidden).moved(hidden, phase.sigma * torch.cat((drawn, -drawn)))
        costs = np.stack([values_of(c.problem, rows) / c.bound for c, rows in zip(cases, keys, strict=True)])
        self._measure("sampled_gap_percent", 100 * (float(costs.mean()) - 1))
        fitness = -(costs / costs.mean(1, keepdims=True)).mean(0).reshape(2, phase.pairs)
        gradient = phase.evolution * estimated_gradient(centred_ranks(fitness), drawn, phase.sigma)
        for weight, part in zip(network.last_weights, (gradient[:width], gradient[width:]), strict=True):
            towards = torch.zeros_like(weight)
            towards[0] = -part
            weight.grad = towards if weight.grad is None else weight.grad + towards

    def _loss(self, phase: Phase, cases: list[Case]) -> Tensor:
        """Return the weighted sum of the losses of imitation and of REINFORCE, for a batch."""
        policy = self._policy(self.network, cases)
        loss = torch.zeros((), device=self.network.device)
        if phase.imitation:
            imitated = ranking_loss(policy, [case.place for case in cases], self._rng(_PAIRS))
            loss = loss + phase.imitation * imitated
            self._measure("ranking_loss", float(imitated.detach()))
        if phase.reinforce:
            keys = policy.sample(phase.samples, self._rng(_SAMPLES))
            costs = np.stack([values_of(c.problem, k) / c.bound for c, k in zip(cases, keys, strict=True)])
            weights = torch.from_numpy(advantages(costs)).float().to(loss.device)
            loss = loss + phase.reinforce * (weights * policy.log_probability(keys)).mean()
            self._measure("sampled_gap_percent", 100 * (float(costs.mean()) - 1))
        self._measure("loss", float(loss.detach()))
        return loss

    def validate(
        self, network: DirectNetwork, must_stop: Callable[[], bool] = lambda: False, on_graph: OnGraph = ignored
    ) -> dict[str, float] | None:
        """Return how much better than the rule the network's keys are, on average, in percent; None if stopped."""
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        ratios = []
        with evaluating(network):
            cases = self._validation_cases()
            for case in cases:
                with torch.inference_mode():
                    (rows,) = self._policy(network, [case]).to_decode(SAMPLES, rng)
                keys = np.vstack((case.seen.rule[None], rows))
                values = np.maximum(values_of(case.problem, keys), case.bound)
                ratios.append((values[1] / values[0], values[1:].min() / values[0]))
                on_graph("done", len(ratios), len(cases))
                if must_stop():
                    return None
        means = 100 * (1 - np.mean(ratios, axis=0))
        return dict(zip(self.validated, means.tolist(), strict=True))

    def _validation_cases(self) -> list[Case]:
        if not self._held_out:
            p = self.parameters
            self._held_out = make_cases(p, HELD_OUT, p.validation_graphs, self.validation, self.jobs)
        return self._held_out

    def score(self, validation: dict[str, float]) -> float:
        """Return the mean loss to the rule of the most likely keys and of 16."""
        return -sum(validation[name] for name in self.validated) / 2


def wants_orders(parameters: TrainingParameters) -> bool:
    """Whether a phase imitates a teacher."""
    return any(phase.imitation > 0 for phase in parameters.phases)


def ranking_loss(policy: DirectPolicy, places: Sequence[Any], rng: np.random.Generator) -> Tensor:
    """Return how little the keys fall along given orders: the logistic loss of random pairs near each other there."""
    earlier, later, first = [], [], 0
    for place in places:
        ops = len(place)
        order = np.argsort(place)
        at = rng.integers(0, ops, PAIRS_PER_OP * ops)
        other = at + 1 + rng.integers(0, max(1, int(NEAR * ops)), len(at))
        kept = other < ops
        earlier.append(order[at[kept]] + first)
        later.append(order[other[kept]] + first)
        first += ops
    one, two = (torch.from_numpy(np.concatenate(ends)).to(policy.mean.device) for ends in (earlier, later))
    return F.softplus(-STEEPNESS * (policy.mean[one] - policy.mean[two])).mean()


def advantages(costs: FloatArray) -> FloatArray:
    """Return how much dearer each sample is than the mean of its graph's, over their spread."""
    # So a graph on which keys change much counts no more than one on which they change little.
    centred = costs - costs.mean(1, keepdims=True)
    spread = np.sqrt(np.mean(centred**2, axis=1, keepdims=True))
    scaled: FloatArray = centred / np.maximum(spread, 1e-9 * np.abs(costs).max())
    return scaled
