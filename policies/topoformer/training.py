"""Training of a Topoformer: REINFORCE with a greedy rollout or other samples as baseline, and imitation (4.3, C.4)."""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...core.base.arrays import FloatArray, IndexArray
from ...core.base.errors import UsageError
from ...core.base.parallel import chunks, map_in_order
from ...core.files.costgraph import graph_hash
from ...core.graph.graph import CostGraph
from ...core.kernels.orders.priority_orders import price_orders
from ...core.problem.problem import Problem
from ...core.search.parameters import Parameters, parameter
from ...core.search.search import Search
from ...core.solvers.orders.approximate_dp import UNLIMITED, run_beam
from ...datasets.layered import LayeredParameters, layered_graph
from ..training.phases import PhasedTrainer, Validation, given_batches
from ..training.run_folder import OrderSearch, check_ready
from ..training.settings import TrainingSettings
from ..training.trainable import Screen, Work
from .decoding import Decoded
from .features import NODE_FEATURES, EncodedGraph, GraphBatch, batch_of, encode
from .network import Network, NetworkParameters, Policy

VALIDATION = 2**31
ORDERS = "orders.jsonl"
# Ops of the largest graph to train on: attention among all of them takes memory in their square, per layer
MOST_OPS = 10_000


@dataclass(frozen=True, eq=False)
class Example:
    """A graph to train on."""

    encoded: EncodedGraph  # what the network sees of the graph
    # an order to imitate, shape `(ops,)`, and its peak in bytes, persistent ones left out; None if not asked for
    order: IndexArray | None
    peak: int | None


@dataclass(frozen=True)
class Source:
    """Layered graphs, each drawn afresh."""

    seed: int  # seed of all random choices
    nodes: tuple[int, int]  # the least and the most ops, both included; each graph draws its own number
    eigenvectors: int = 20  # number of eigenvectors among the features, see `op_features`; 20 by default
    teacher_width: int = 0  # width of the beam that finds orders to imitate; by default 0, for none

    def example(self, epoch: int, index: int) -> Example:
        """Return a graph of an epoch: the same one for the same numbers, in any process."""
        rng = np.random.default_rng([self.seed, epoch, index])
        ops = int(rng.integers(self.nodes[0], self.nodes[1] + 1))
        graph = layered_graph(LayeredParameters(nodes=ops), rng, f"layered-{epoch}-{index}")
        order = good_order(graph, self.teacher_width, rng) if self.teacher_width else None
        return make_example(self.eigenvectors, (graph, order))

    def examples(self, epoch: int, graphs: range) -> list[Example]:
        """Return several graphs of an epoch."""
        return [self.example(epoch, index) for index in graphs]


def make_example(eigenvectors: int, pair: tuple[CostGraph, IndexArray | None]) -> Example:
    """Encode a graph, and price the order to imitate if there is one."""
    graph, order = pair
    peak = None if order is None else int(price_orders(graph.buffers, order[None])[0])
    return Example(encode(graph, eigenvectors), order, peak)


def encoded_examples(
    graphs: Sequence[CostGraph], orders: Sequence[IndexArray], eigenvectors: int, jobs: int = 1
) -> list[Example]:
    """Encode given graphs, with an order of each or none at all."""
    known: Sequence[IndexArray | None] = orders or [None] * len(graphs)
    pairs = zip(graphs, known, strict=True)
    return list(map_in_order(partial(make_example, eigenvectors), pairs, jobs))


def good_order(graph: CostGraph, width: int, rng: np.random.Generator) -> IndexArray:
    """Return an order of low peak: a backward beam over sets of last ops, with safe moves up to the largest op need."""
    b = graph.buffers
    search = Search(Problem(graph), seed=rng)
    beam = run_beam(search, b, width, UNLIMITED, is_backward=True, floor=int((b.own + b.workspace).max()))
    assert beam.chosen is not None
    return np.ascontiguousarray(beam.chosen[::-1])


def order_search(path: Path, evaluations: int, seed: int) -> OrderSearch:
    """Return the search for orders of low peak."""

    def key(problem: Problem) -> str:
        return f"{graph_hash(problem.graph)}-{evaluations}-{seed}"

    return OrderSearch(path, "order-search", evaluations, seed, key)


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training, by default the paper's (C.1, 5.1): the loss is eq. 9's and imitation's weighted sum."""

    epochs: int = parameter(325, "each ends with a validation and a checkpoint; paper 325 (5.1) or 326 (C.1)", low=1)
    graphs: int = parameter(1000, "of an epoch, new ones, or the given ones again and again; paper 1000", low=1)
    nodes: tuple[int, int] = parameter((500, 500), "least and most ops of a layered graph; paper 500")
    batch: int = parameter(8, "graphs of a step; paper 8", low=1)
    learning_rate: float = parameter(1e-4, "of Adam; paper 1e-4", low=0.0, high=1.0)
    decay: float = parameter(0.996, "factor of the learning rate per epoch; paper 0.996", low=0.01, high=1.0)
    reinforce: float = parameter(1.0, "weight of REINFORCE", low=0.0)
    samples: int = parameter(1, "orders drawn of a graph; the paper names none", low=1)
    baseline: Literal["greedy-rollout", "leave-one-out"] = parameter(
        "greedy-rollout", "greedy-rollout (eq. 10) or leave-one-out, the mean of a graph's other samples"
    )
    imitation: float = parameter(0.0, "weight of imitating the orders of a search", low=0.0)
    teacher_width: int = parameter(200, "width of that search, a backward beam over sets of ops", low=1)

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

    command: ClassVar[str] = "topoformer"
    network: NetworkParameters = dataclasses.field(default_factory=NetworkParameters)
    phases: tuple[Phase, ...] = (Phase(),)
    validation_graphs: int = parameter(32, "layered graphs that no phase trains on", low=1)
    validation_nodes: int = parameter(500, "their ops", low=1, high=MOST_OPS)
    search_evaluations: int = parameter(
        2000, "of order-search per given graph, for the orders to imitate and to validate against", low=2
    )
    precision: Literal["float32", "bfloat16"] = parameter("float32", "of matrix products; weights stay float32")


_FLIPS, _SAMPLES, _VALIDATION = 0, 1, 2


class Trainer(PhasedTrainer[Phase, list[Example]]):
    """A run of Topoformer's training."""

    settings, kind = TrainingParameters, Network
    measures: ClassVar[dict[str, str]] = {"loss": "loss {:.4f}", "sampled_mib": "sampled peak {:.1f} MiB"}
    columns: ClassVar[dict[str, str]] = {
        "greedy_gap_percent": "greedy",
        "sample_gap_percent": "best of 16 samples",
        "beam_gap_percent": "beam of 16",
    }
    validated = tuple(columns)
    word, kinds, number = "gap", "greedy/sample/beam", "{:.2f}"
    title = "gaps to the search, in percent"
    parameters: TrainingParameters
    network: Network

    def __init__(
        self,
        folder: str | Path,
        parameters: TrainingParameters,
        *,
        orders: Sequence[IndexArray] = (),
        validation_orders: Sequence[IndexArray] = (),
        **given: Any,
    ) -> None:
        graphs, validation = given.get("graphs", ()), given.get("validation", ())
        check_possible((*graphs, *validation))
        if graphs and not orders and any(phase.imitation for phase in parameters.phases):
            raise UsageError("given graphs need orders to imitate; see order_search")
        self.orders = tuple(orders)
        self._examples: list[Example] = []
        self.validation_orders = tuple(validation_orders) or tuple(graph.input_order for graph in validation)
        super().__init__(folder, parameters, **given)

    def _other_networks(self) -> dict[str, nn.Module]:
        """See `PhasedTrainer`; the rollout is not trained."""
        self.rollout = copy.deepcopy(self.network).requires_grad_(False)
        return {"rollout": self.rollout}

    @property
    def use(self) -> str:
        """See `PhasedTrainer`; without a priority per op there is no beam from both ends."""
        return "" if self.network.parameters_.decoder == "priorities" else ":decode=beam"

    @staticmethod
    def recipe(method: str, task: Any, devices: int | None) -> TrainingParameters:
        """Return the settings that made the shipped weights; the paper's until there are any."""
        return TrainingParameters.shipped(f"{method}-layered") or TrainingParameters()

    @classmethod
    def prepared(cls, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        """See `PhasedTrainer`; orders to imitate and to validate against are searched."""
        check_possible(work.graphs + work.validation)
        check_ready(work)
        p = work.settings
        search = order_search(Path(work.folder) / ORDERS, p.search_evaluations, p.seed)
        imitated = work.graphs if any(phase.imitation for phase in p.phases) else []
        orders = search.shown(screen, list(map(Problem, imitated)), "to imitate", work.jobs, must_stop)
        others = [] if orders is None else list(map(Problem, work.validation))
        found = search.shown(screen, others, "to validate against", work.jobs, must_stop)
        return None if orders is None or found is None else cls.of(work, orders=orders, validation_orders=found)

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

    @functools.cached_property
    def _given(self) -> list[Example]:
        return encoded_examples(self.graphs, self.orders, self.network.parameters_.eigenvectors, self.jobs)

    def _batches(self, phase: Phase) -> Generator[list[Example], None, None]:
        seed = self.parameters.seed + self.place.phase
        ranges = chunks(phase.graphs, phase.batch)[self.place.batch :]
        if self.graphs:
            yield from given_batches(self._given, seed, self.place.epoch, ranges)
            return
        width = phase.teacher_width if phase.imitation else 0
        source = Source(seed, phase.nodes, self.network.parameters_.eigenvectors, width)
        yield from map_in_order(partial(source.examples, self.place.epoch), ranges, self.jobs)

    def _policies(self, examples: Sequence[Example], networks: Sequence[Network]) -> list[Policy]:
        """Return the policy of each network for the same batch, with random signs of the eigenvectors."""
        encoded = [example.encoded for example in examples]
        batch = flipped(batch_of(encoded), self._rng(_FLIPS))
        p = self.parameters
        with torch.autocast(p.device, torch.bfloat16, enabled=p.precision == "bfloat16"):
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
            orders = [example.order for example in examples if example.order is not None]
            per_op = policy.log_probability([order[None] for order in orders])[:, 0]
            likelihood = (per_op / torch.tensor([len(order) for order in orders], device=loss.device)).mean()
            loss = loss - phase.imitation * likelihood
            self._measure("imitated_log_probability", float(likelihood.detach()))
        self._measure("loss", float(loss.detach()))
        return loss

    def _validated(self, network: Network) -> Validation:
        """Find the mean gap of greedy, sample-16 and beam-16 to the reference orders, in percent."""
        # Those of layered graphs are orders of a backward beam of width 200. Each call has the same random choices.
        gaps: dict[str, list[float]] = {name: [] for name in self.validated}
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        if not self._examples:
            yield from self._find_examples()
        for number, example in enumerate(self._examples, start=1):
            with torch.inference_mode():
                policy = network([example.encoded], flipped(batch_of([example.encoded]), rng))
                if not policy.is_finite():
                    raise self._broken("network's output")
                found = (policy.greedy(), policy.sample(16, rng), policy.beam(16))
            held = int(example.encoded.graph.persistent.sum())
            for name, decoded in zip(self.validated, found, strict=True):
                gaps[name].append(gap_percent(int(decoded[0].peaks.min()) + held, (example.peak or 0) + held))
            yield "done", number, len(self._examples)
        return {name: float(np.mean(values)) for name, values in gaps.items()}

    def _find_examples(self) -> Generator[tuple[str, int, int], None, None]:
        """Find the graphs to validate on."""
        p, eigenvectors = self.parameters, self.network.parameters_.eigenvectors
        if self.validation:
            self._examples = encoded_examples(self.validation, self.validation_orders, eigenvectors, self.jobs)
            return
        source = Source(p.seed, (p.validation_nodes,) * 2, eigenvectors, teacher_width=200)
        numbers, made = range(VALIDATION, VALIDATION + p.validation_graphs), []
        for example in map_in_order(partial(source.example, 0), numbers, self.jobs):
            made.append(example)
            yield "prepared", len(made), len(numbers)
        self._examples = made

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
            what = f"has {graph.num_ops:,} ops, and training takes up to {MOST_OPS:,}; leave it out"
            raise UsageError(f"graph {graph.name} {what}")


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
