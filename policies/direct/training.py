"""Training of `direct`: imitation of the order in which a teacher's plans start ops, REINFORCE, and evolution."""

import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.base.arrays import FloatArray
from ...core.base.errors import UsageError
from ...core.base.parallel import chunks, map_in_order
from ...core.bounds.bounds import lower_bound
from ...core.files.costgraph import graph_hash
from ...core.graph.graph import CostGraph
from ...core.problem.machine import Device, Machine
from ...core.problem.problem import Problem, Task
from ...core.search.method_spec import parse_method
from ...core.search.parameters import Parameters, parameter
from ...datasets.synthetic import SyntheticParameters
from ..training.phases import PhasedTrainer, Validation, centred_ranks, directions, estimated_gradient, given_batches
from ..training.run_folder import OrderSearch, check_ready
from ..training.settings import TrainingSettings
from ..training.trainable import Screen, Work
from .keys import Seen, seen, values_of
from .network import DirectNetwork, DirectNetworkParameters, DirectPolicy, batch_of

MOST_DEVICES = 8
PLANS = "plans.jsonl"


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

    command: ClassVar[str] = "direct"
    network: DirectNetworkParameters = dataclasses.field(default_factory=DirectNetworkParameters)
    phases: tuple[Phase, ...] = (Phase(), Phase(imitation=0.0, evolution=1.0))
    synthetic: SyntheticParameters = dataclasses.field(default_factory=SyntheticParameters)
    devices: tuple[int, ...] = parameter((2, 2, 3, 4, 8), "numbers of devices, of which each graph draws one")
    paid: float = parameter(
        0.5, "share of the graphs whose transfers take time, if the makespan is minimised", low=0.0, high=1.0
    )
    bandwidth: float = parameter(
        0.0, "bytes per second where transfers take time; 0: each graph draws what a transfer takes", low=0.0
    )
    types: tuple[int, ...] = parameter((), "devices of each type, if an op runs on one type, and data costs nothing")
    latency: float = parameter(0.0, "microseconds that each transfer adds to what bandwidth says", low=0.0)
    training_graphs: int = parameter(256, "synthetic graphs to train on, again and again", low=1)
    validation_graphs: int = parameter(32, "synthetic graphs that no phase trains on", low=1)
    teacher: str = parameter("auto", "the method whose plans are imitated")
    teacher_evaluations: int = parameter(1000, "of each of its plans", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.noise != "gumbel" and any(phase.reinforce for phase in self.phases):
            raise UsageError("reinforce needs network.noise=gumbel: the probability of an order is known for it alone")
        if min(self.types, default=1) < 1 or (self.types and self.network.task != "runtime"):
            raise UsageError("types are for the makespan, with at least one device of each")
        if not self.devices or not all(2 <= devices <= MOST_DEVICES for devices in self.devices):
            raise UsageError(f"devices must be numbers from 2 to {MOST_DEVICES}, not {list(self.devices)}")
        if self.latency and not self.bandwidth:
            raise UsageError("latency goes with bandwidth; without it each graph draws both")
        parse_method(self.teacher)


HELD_OUT = 2**31
_STREAM = 31  # keeps the graphs apart from those of `schedopt gen`, whatever the seed


@dataclass(frozen=True, eq=False)
class Case:
    """A problem to train or to validate on."""

    problem: Problem  # the problem
    seen: Seen  # what the network sees of it
    bound: float  # what no schedule can beat, at least 1
    order: Any = None  # the teacher's order, shape `(ops,)`; None where none was asked for

    @functools.cached_property
    def place(self) -> Any:
        """The place of each op in the teacher's order, shape `(ops,)`."""
        return np.argsort(self.order)


def make_case(parameters: TrainingParameters, first: int, graphs: Sequence[CostGraph], number: int) -> Case:
    """Return the case of a number: the same one for the same numbers, in any process."""
    # Where transfers take time and the settings do not say how much, sending the mean tensor takes between a thousandth
    # and all of an op's mean runtime, and in half of these cases as much again is latency.
    rng = np.random.default_rng([parameters.seed, _STREAM, first + number])
    graph = graphs[number] if graphs else parameters.synthetic.draw(number, rng)
    task, devices = parameters.network.task, int(rng.choice(parameters.devices))
    if parameters.types:
        problem = Problem(graph, "runtime", machine=_types(parameters.types, graph, rng))
        return Case(problem, seen(problem), max(lower_bound(problem), 1.0))
    bandwidth, latency = None, 0.0
    if task == "runtime" and rng.random() < parameters.paid and graph.num_data_tensors:
        bandwidth, latency = _links(parameters, graph, rng)
    problem = Problem(graph, task, devices=devices, bandwidth=bandwidth, latency=latency)
    return Case(problem, seen(problem), max(lower_bound(problem), 1.0))


def _types(counts: tuple[int, ...], graph: CostGraph, rng: np.random.Generator) -> Machine:
    """Return a machine on which each op runs on one type of device (Jeon et al., ICLR 2023)."""
    drawn = rng.choice(len(counts), graph.num_ops, p=np.array(counts) / sum(counts)).tolist()
    devices = [Device(f"{kind}-{at}", str(kind)) for kind, count in enumerate(counts) for at in range(count)]
    times: Any = {
        name: {str(kind): graph.runtime[op] if kind == drawn[op] else None for kind in range(len(counts))}
        for op, name in enumerate(graph.op_names)
    }
    return Machine(tuple(devices), transfers="beside", contention=False, op_times=times)


def _links(parameters: TrainingParameters, graph: CostGraph, rng: np.random.Generator) -> tuple[float | None, float]:
    if parameters.bandwidth:
        return parameters.bandwidth, parameters.latency
    sending = float(graph.runtime.mean()) * 10 ** rng.uniform(-3, 0)  # microseconds
    size = float(graph.tensor_size.sum()) / graph.num_data_tensors
    if sending <= 0 or size <= 0:
        return None, 0.0
    return size / sending * 1e6, sending if rng.random() < 0.5 else 0.0


def make_cases(p: TrainingParameters, first: int, count: int, graphs: Sequence[CostGraph], jobs: int) -> list[Case]:
    """Return the cases of given graphs, or of `count` synthetic ones."""
    return list(map_in_order(partial(make_case, p, first, tuple(graphs)), range(len(graphs) or count), jobs))


def plan_search(path: Path, parameters: TrainingParameters) -> OrderSearch:
    """Return the search for the plans of the teacher, in whose orders ops start."""
    p = parameters

    def key(problem: Problem) -> str:
        links = f"{problem.devices}-{problem.bandwidth}-{problem.latency}"
        return f"{graph_hash(problem.graph)}-{problem.task}-{links}-{p.teacher}-{p.teacher_evaluations}"

    return OrderSearch(path, "plan", p.teacher, p.teacher_evaluations, p.seed, key)


PENALTY = 0.001  # of the norm of logits beside the log-probability, both over the ops (Jeon et al., ICLR 2023)
SAMPLES = 16  # of a validation, and what `schedopt solve` draws
PAIRS_PER_OP, NEAR = 8, 0.25  # pairs that imitation compares, and how far apart in the plan, as a share of it
STEEPNESS = 20.0  # A key is to be larger than the next by about a twentieth: the steps of a path of twenty ops
_SAMPLES, _PAIRS, _VALIDATION, _DIRECTIONS = 0, 1, 2, 3


class Trainer(PhasedTrainer[Phase, list[Case]]):
    """A run of the training of `direct`."""

    settings, kind, same = TrainingParameters, DirectNetwork, ("task",)
    measures: ClassVar[dict[str, str]] = {
        "ranking_loss": "ranking loss {:.4f}",
        "sampled_gap_percent": "sampled gap {:.2f}%",
    }
    columns: ClassVar[dict[str, str]] = {
        "greedy_improvement_percent": "greedy",
        "sample_improvement_percent": "best of 16 samples",
    }
    validated = tuple(columns)
    word, kinds = "improvement", "greedy/sample"
    title = "improvement over the rule that the network corrects, in percent"
    use = "--task {0.task}"
    parameters: TrainingParameters
    network: DirectNetwork

    def __init__(self, folder: str | Path, parameters: TrainingParameters, cases: Sequence[Case], **given: Any) -> None:
        if wants_orders(parameters) and any(case.order is None for case in cases):
            raise UsageError("imitation needs the orders of a teacher; see policies.direct.training.plan_search")
        self.cases = tuple(cases)
        super().__init__(folder, parameters, **given)

    @staticmethod
    def recipe(method: str, task: Task | None, devices: int | None) -> TrainingParameters:
        """Return the settings that made the shipped weights for a task; the defaults until there are any."""
        network = DirectNetworkParameters(task=task or "runtime")
        return TrainingParameters.shipped(f"{method}-{network.task}") or TrainingParameters(network=network)

    @classmethod
    def prepared(cls, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        """See `PhasedTrainer`; the plans to imitate are searched."""
        check_ready(work)
        p = work.settings
        cases = make_cases(p, 0, p.training_graphs, work.graphs, work.jobs)
        taught = [case.problem for case in cases] if wants_orders(p) else []
        search = plan_search(Path(work.folder) / PLANS, p)
        orders = search.shown(screen, taught, "to imitate", work.jobs, must_stop)
        if orders is None:
            return None
        cases = [replace(case, order=order) for case, order in zip(cases, orders, strict=True)] if orders else cases
        return cls.of(work, cases=cases)

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
        weights: Any = (network.of_op[-1].weight, network.of_graph[-1].weight)  # the means' rows come first
        for weight, part in zip(weights, (gradient[:width], gradient[width:]), strict=True):
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
            norms = [(logits - logits.mean()).norm() / len(logits) for logits in policy.logits()]
            loss = loss + PENALTY * torch.stack(norms).mean()
            self._measure("sampled_gap_percent", 100 * (float(costs.mean()) - 1))
        self._measure("loss", float(loss.detach()))
        return loss

    def _validated(self, network: DirectNetwork) -> Validation:
        """Find how much better than the rule the network's keys are, on average, in percent."""
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        ratios = []
        for case in (cases := self._validation_cases):
            with torch.inference_mode():
                (rows,) = self._policy(network, [case]).to_decode(SAMPLES, rng)
            values = np.maximum(values_of(case.problem, np.vstack((case.seen.rule[None], rows))), case.bound)
            ratios.append((values[1] / values[0], values[1:].min() / values[0]))
            yield "done", len(ratios), len(cases)
        return dict(zip(self.validated, (100 * (1 - np.mean(ratios, axis=0))).tolist(), strict=True))

    @functools.cached_property
    def _validation_cases(self) -> list[Case]:
        p = self.parameters
        return make_cases(p, HELD_OUT, p.validation_graphs, self.validation, self.jobs)

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
