"""Training of a Topoformer: REINFORCE with a greedy rollout or other samples as baseline, and imitation (4.3, C.4)."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import FloatArray, IndexArray
from ...core.base.errors import UsageError
from ...core.base.parallel import chunks
from ...core.graph.graph import CostGraph
from ..training.phases import OnGraph, PhasedTrainer, evaluating, given_batches, ignored, seeded
from ..training.run_folder import Place, RunKind
from .batch import GraphBatch, batch_of
from .features import NODE_FEATURES
from .network import Network, Policy, load_network
from .priorities import Decoded
from .training_graphs import MOST_OPS, Example, Source, encoded_examples, layered_batches, validation_examples
from .training_settings import Phase, TrainingParameters, wants_orders

_FLIPS, _SAMPLES, _VALIDATION = 0, 1, 2


@dataclasses.dataclass
class RolloutPlace(Place):
    """How far a run is; the rollout has the weights of the best greedy gap."""

    rollout_best: float = math.inf


KIND = RunKind("topoformer", TrainingParameters, RolloutPlace)


class Trainer(PhasedTrainer[Phase, list[Example]]):
    """A run of Topoformer's training."""

    kind: ClassVar[RunKind[TrainingParameters, RolloutPlace]] = KIND
    validated = tuple(f"{decoder}_gap_percent" for decoder in ("greedy", "sample", "beam"))
    parameters: TrainingParameters
    network: Network
    place: RolloutPlace

    def __init__(
        self,
        folder: str | Path,
        parameters: TrainingParameters,
        *,
        graphs: Sequence[CostGraph] = (),
        orders: Sequence[IndexArray] = (),
        validation: Sequence[CostGraph] = (),
        validation_orders: Sequence[IndexArray] = (),
        jobs: int = 1,
    ) -> None:
        check_possible((*graphs, *validation))
        if graphs and not orders and any(wants_orders(phase) for phase in parameters.phases):
            raise UsageError("given graphs need orders to imitate; see searched_orders")
        super().__init__(folder, parameters, graphs, validation, jobs)
        self.orders = tuple(orders)
        self.validation_orders = tuple(validation_orders) or tuple(graph.input_order for graph in validation)
        with seeded(parameters.seed):
            self.network = self._first_network(load_network, Network)
        self.rollout = copy.deepcopy(self.network).requires_grad_(False)
        self._given: list[Example] = []
        self._validated: list[Example] = []
        self._set_up(self.network.parameters(), network=self.network, rollout=self.rollout)

    def compile(self) -> None:
        """Run every kernel once, on a tiny graph."""
        source = Source(0, (4, 4), self.network.parameters_.eigenvectors, teacher_width=2)
        with torch.inference_mode():
            policy = self.network([source.example(0, 0).encoded])
            policy.greedy(), policy.beam(2)
            policy.log_probability([policy.sample(1, np.random.default_rng(0))[0].orders])

    def _size_of_epoch(self, phase: Phase) -> float:
        """Return an epoch's ops, or with given graphs the number of those."""
        return phase.graphs if self.graphs else phase.graphs * sum(phase.nodes) / 2

    def _batches(self, phase: Phase) -> Generator[list[Example], None, None]:
        seed = self.parameters.seed + self.place.phase
        ranges = chunks(phase.graphs, phase.batch)[self.place.batch :]
        eigenvectors = self.network.parameters_.eigenvectors
        if self.graphs:
            if not self._given:
                self._given = encoded_examples(self.graphs, self.orders, eigenvectors, self.jobs)
            return given_batches(self._given, seed, self.place.epoch, ranges)
        source = Source(seed, phase.nodes, eigenvectors, phase.teacher_width if wants_orders(phase) else 0)
        return layered_batches(source, self.place.epoch, ranges, self.jobs)

    def _policies(self, examples: Sequence[Example], networks: Sequence[Network]) -> list[Policy]:
        """Return the policy of each network for the same batch, with random signs of the eigenvectors."""
        encoded = [example.encoded for example in examples]
        batch = flipped(batch_of(encoded), self._rng(_FLIPS))
        device = self.parameters.device
        with torch.autocast(device, torch.bfloat16, enabled=self.parameters.precision == "bfloat16"):
            policies = [network(encoded, batch) for network in networks]
        if not all(policy.is_finite() for policy in policies):
            raise self._broken("network's output")
        return policies

    def _loss(self, phase: Phase, examples: Sequence[Example]) -> Tensor:
        """Return the weighted sum of the loss of eq. 9 and that of imitation, for a batch."""
        uses_rollout = phase.reinforce > 0 and phase.baseline == "greedy-rollout"
        policy, *rollout = self._policies(examples, [self.network, *[self.rollout] * uses_rollout])
        loss = torch.zeros((), device=self.network.device)
        drawn = policy.sample(phase.samples, self._rng(_SAMPLES)) if phase.reinforce else []
        if drawn:
            baseline = _peaks(rollout[0].greedy()) if rollout else None
            advantage = torch.from_numpy(advantages(_peaks(drawn), baseline)).float().to(loss.device)
            log_probability = policy.log_probability([decoded.orders for decoded in drawn])
            loss = loss + phase.reinforce * (advantage * log_probability).mean()  # eq. 9
            self._measure("sampled_mib", _peaks(drawn).mean() / 2**20)
        if phase.imitation:
            orders, weights = self._orders_to_imitate(phase, policy, examples, drawn)
            per_op = policy.log_probability([order[None] for order in orders])[:, 0]
            ops = torch.tensor([len(order) for order in orders], device=loss.device)
            likelihood = (per_op / ops * torch.tensor(weights, device=loss.device)).mean()
            loss = loss - phase.imitation * likelihood
            self._measure("imitated_log_probability", float(likelihood.detach()))
        self._measure("loss", float(loss.detach()))
        return loss

    def _orders_to_imitate(
        self, phase: Phase, policy: Policy, examples: Sequence[Example], drawn: Sequence[Decoded]
    ) -> tuple[list[IndexArray], list[float]]:
        """Return an order per graph, and 1; or 0 where the policy's own beam is no better than its samples."""
        if phase.teacher == "search":
            return [example.order for example in examples if example.order is not None], [1.0] * len(examples)
        found = policy.beam(phase.teacher_width)
        orders = [decoded.orders[0] for decoded in found]
        if not drawn:
            return orders, [1.0] * len(orders)
        return orders, [float(f.peaks[0] < d.peaks.min()) for f, d in zip(found, drawn, strict=True)]

    def validate(
        self, network: Network, must_stop: Callable[[], bool] = lambda: False, on_graph: OnGraph = ignored
    ) -> dict[str, float] | None:
        """Return the mean gap of greedy, sample-16 and beam-16 to the reference orders, in percent; None if stopped."""
        # Those of layered graphs are orders of a backward beam of width 200. Each call has the same random choices.
        gaps: dict[str, list[float]] = {name: [] for name in self.validated}
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        with evaluating(network):
            examples = self._validation_examples(on_graph)
            for number, example in enumerate(examples, start=1):
                with torch.inference_mode():
                    batch = flipped(batch_of([example.encoded]), rng)
                    policy = network([example.encoded], batch)
                    if not policy.is_finite():
                        raise self._broken("network's output")
                    found = (policy.greedy(), policy.sample(16, rng), policy.beam(16))
                for name, decoded in zip(self.validated, found, strict=True):
                    gaps[name].append(gap_percent(int(decoded[0].peaks.min()), example.peak or 0))
                on_graph("done", number, len(examples))
                if must_stop():
                    return None
        return {name: float(np.mean(values)) for name, values in gaps.items()}

    def _validation_examples(self, on_graph: OnGraph) -> list[Example]:
        if not self._validated:
            eigenvectors = self.network.parameters_.eigenvectors
            if self.validation:
                self._validated = encoded_examples(self.validation, self.validation_orders, eigenvectors, self.jobs)
            else:
                nodes = (self.parameters.validation_nodes,) * 2
                source = Source(self.parameters.seed, nodes, eigenvectors, teacher_width=200)
                count = self.parameters.validation_graphs
                for example in validation_examples(source, count, self.jobs):
                    self._validated.append(example)
                    on_graph("prepared", len(self._validated), count)
        return self._validated

    def score(self, validation: dict[str, float]) -> float:
        """Return the mean gap of samples and beam."""
        return (validation["sample_gap_percent"] + validation["beam_gap_percent"]) / 2

    def _on_validation(self, validation: dict[str, float]) -> None:
        """Refresh the rollout's weights if greedy got better than theirs (C.4)."""
        if validation["greedy_gap_percent"] < self.place.rollout_best:
            self.place.rollout_best = validation["greedy_gap_percent"]
            self.rollout.load_state_dict(self.network.state_dict())


def check_possible(graphs: Sequence[CostGraph]) -> None:
    """Raise UsageError if a given graph is too large."""
    for graph in graphs:
        if graph.num_ops > MOST_OPS:
            raise UsageError(
                f"graph {graph.name} has {graph.num_ops:,} ops, and training takes up to {MOST_OPS:,}; leave it out"
            )


def gap_percent(peak: int, reference: int) -> float:
    """Return by how much a peak is above a reference; a reference without any memory counts as a byte."""
    return 100 * (peak - reference) / max(reference, 1)


def _peaks(decoded: Sequence[Decoded]) -> FloatArray:
    return np.array([of_graph.peaks for of_graph in decoded], np.float64)


def flipped(batch: GraphBatch, rng: np.random.Generator) -> GraphBatch:
    """Give each graph's eigenvectors random signs, since they have none of their own (Dwivedi and Bresson 2020)."""
    graphs, _, inputs = batch.features.shape
    signs = np.ones((graphs, 1, inputs), np.float32)
    signs[:, :, NODE_FEATURES:] = rng.choice([-1.0, 1.0], (graphs, 1, inputs - NODE_FEATURES))
    return batch._replace(features=batch.features * torch.from_numpy(signs))


def advantages(costs: FloatArray, rollout: FloatArray | None) -> FloatArray:
    """Return costs above the baseline, as a share of it (eq. 9 without the gradient; the share suits all sizes)."""
    baseline = rollout
    if baseline is None:
        baseline = (costs.sum(1, keepdims=True) - costs) / (costs.shape[1] - 1)
    shares: FloatArray = (costs - baseline) / np.maximum(baseline, 1.0)
    return shares
