"""Training of `direct` by REINFORCE, as One-Shot Priority Sampling trains (Jeon et al., ICLR 2023)."""

import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core.base.arrays import FloatArray
from ...core.base.errors import UsageError
from ...core.base.parallel import chunks, map_in_order
from ...core.base.units import MAX_DEVICES
from ...core.bounds.bounds import lower_bound
from ...core.graph.graph import CostGraph
from ...core.problem.machine import Device, Machine
from ...core.problem.problem import Problem
from ...core.search.parameters import Parameters, parameter
from ...core.solvers.placements.list_schedulers import starting_orders
from ...datasets.synthetic import SyntheticParameters
from ..training.phases import PhasedTrainer, Validation, given_batches
from ..training.run_folder import check_ready, check_timed
from ..training.settings import TrainingSettings
from ..training.trainable import Screen, Work
from .keys import GUMBEL, Seen, drawn, seen, to_decode
from .network import DirectNetwork, DirectNetworkParameters, DirectPolicy, batch_of


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training."""

    epochs: int = parameter(60, "each ends with a validation and a checkpoint", low=1)
    steps: int = parameter(60, "of an epoch", low=1)
    graphs: int = parameter(4, "of a step", low=1)
    learning_rate: float = parameter(5e-4, "of Adam", low=0.0, high=1.0)
    decay: float = parameter(0.97, "factor of the learning rate per epoch", low=0.01, high=1.0)
    samples: int = parameter(128, "keys drawn of a graph, each other's baseline", low=2)


@dataclasses.dataclass(frozen=True)
class TrainingParameters(TrainingSettings):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    command: ClassVar[str] = "direct"
    network: DirectNetworkParameters = dataclasses.field(default_factory=DirectNetworkParameters)
    phases: tuple[Phase, ...] = (Phase(),)
    synthetic: SyntheticParameters = dataclasses.field(default_factory=SyntheticParameters)
    types: tuple[int, ...] = parameter((1, 1, 4), "devices of each type; each op runs on one type")
    training_graphs: int = parameter(256, "synthetic graphs to train on, again and again", low=1)
    validation_graphs: int = parameter(32, "synthetic graphs that no phase trains on", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.types) < 2 or min(self.types) < 1 or sum(self.types) > MAX_DEVICES:
            numbers = f"two numbers of devices or more, from 1 on, {MAX_DEVICES} in all at most"
            raise UsageError(f"types must be {numbers}, not {list(self.types)}")


HELD_OUT = 2**31
_STREAM = 31  # keeps the graphs apart from those of `schedopt gen`, whatever the seed


@dataclass(frozen=True, eq=False)
class Case:
    """A problem to train or to validate on."""

    problem: Problem  # the problem
    seen: Seen  # what the network sees of it
    bound: float  # what no schedule can beat, at least 1


def make_case(parameters: TrainingParameters, first: int, graphs: Sequence[CostGraph], number: int) -> Case:
    """Return the case of a number: the same one for the same numbers, in any process."""
    rng = np.random.default_rng([parameters.seed, _STREAM, first + number])
    graph = graphs[number] if graphs else parameters.synthetic.draw(number, rng)
    problem = Problem(graph, "runtime", machine=_types(parameters.types, graph, rng))
    return Case(problem, seen(problem), max(lower_bound(problem), 1.0))


def _types(counts: tuple[int, ...], graph: CostGraph, rng: np.random.Generator) -> Machine:
    """Return a machine on which each op runs on one type of device (Jeon et al., ICLR 2023)."""
    of = rng.choice(len(counts), graph.num_ops, p=np.array(counts) / sum(counts)).tolist()
    devices = [Device(f"{kind}-{at}", str(kind)) for kind, count in enumerate(counts) for at in range(count)]
    times: Any = {
        name: {str(kind): graph.runtime[op] if kind == of[op] else None for kind in range(len(counts))}
        for op, name in enumerate(graph.op_names)
    }
    return Machine(tuple(devices), transfers="beside", contention=False, op_times=times)


def make_cases(
    p: TrainingParameters, first: int, count: int, graphs: Sequence[CostGraph], jobs: int = 1
) -> Iterator[Case]:
    """Yield the cases of given graphs, or of `count` synthetic ones."""
    return map_in_order(partial(make_case, p, first, tuple(graphs)), range(len(graphs) or count), jobs)


PENALTY = 0.001  # of the norm of logits beside the log-probability, both over the ops (Jeon et al., ICLR 2023)
SAMPLES = 16  # of a validation, and what `schedopt solve` draws
_SAMPLES, _VALIDATION = 0, 2


class Trainer(PhasedTrainer[Phase, list[Case]]):
    """A run of the training of `direct`."""

    settings, kind = TrainingParameters, DirectNetwork
    measures: ClassVar[dict[str, str]] = {"sampled_gap_percent": "sampled gap {:.2f}%"}
    columns: ClassVar[dict[str, str]] = {
        "greedy_improvement_percent": "greedy",
        "sample_improvement_percent": "best of 16 samples",
    }
    validated = tuple(columns)
    word, kinds = "improvement", "greedy/sample"
    use = " --task runtime --machine MACHINE"
    title = "improvement over the rule that the network corrects, in percent"
    parameters: TrainingParameters
    network: DirectNetwork

    def __init__(self, folder: str | Path, parameters: TrainingParameters, cases: Sequence[Case], **given: Any) -> None:
        self.cases, self._held_out = tuple(cases), list[Case]()
        super().__init__(folder, parameters, **given)

    @staticmethod
    def recipe(method: str, task: Any, devices: int | None) -> TrainingParameters:
        """See `PhasedTrainer`: those of the shipped weights."""
        return TrainingParameters()

    @classmethod
    def prepared(cls, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        """See `PhasedTrainer`; the graphs are drawn."""
        check_timed(work)
        check_ready(work)
        cases: list[Case] = []
        for case in make_cases(work.settings, 0, work.settings.training_graphs, work.graphs, work.jobs):
            cases.append(case)
            if must_stop():
                return None
        return cls.of(work, cases=cases)

    def compile(self) -> None:
        """Run every kernel once, on a small problem."""
        case = make_case(self.parameters, HELD_OUT, self.validation[:1], 0)
        starting_orders(case.problem, case.seen.rule[None])

    def _batches(self, phase: Phase) -> Generator[list[Case], None, None]:
        ranges = chunks(phase.steps * phase.graphs, phase.graphs)[self.place.batch :]
        return given_batches(self.cases, self.parameters.seed + self.place.phase, self.place.epoch, ranges)

    def _policy(self, network: DirectNetwork, cases: Sequence[Case]) -> DirectPolicy:
        policy: DirectPolicy = network(batch_of([case.seen for case in cases]))
        if not torch.isfinite(policy.mean).all():
            raise self._broken("network's output")
        return policy

    def _loss(self, phase: Phase, cases: list[Case]) -> Tensor:
        """Return the loss of REINFORCE and the penalty, for a batch."""
        policy, rng = self._policy(self.network, cases), self._rng(_SAMPLES)
        keys = [drawn(keys, phase.samples, rng) for keys in policy.most_likely()]
        costs = []
        for case, rows in zip(cases, keys, strict=True):
            self._look()
            costs.append(costs_of(case, rows))
        weights = torch.from_numpy(advantages(np.stack(costs))).float().to(self.network.device)
        norms = [(mean - mean.mean()).norm() / GUMBEL / len(mean) for mean in policy.means()]
        loss = (weights * policy.log_probability(keys)).mean() + PENALTY * torch.stack(norms).mean()
        self._measure("sampled_gap_percent", 100 * (float(np.mean(costs)) - 1))
        self._measure("loss", float(loss.detach()))
        return loss

    def _validated(self, network: DirectNetwork) -> Validation:
        """Find how much better than the rule the network's keys are, on average, in percent."""
        p, made, ratios = self.parameters, list[Case](), []
        rng = np.random.default_rng([p.seed, _VALIDATION])
        if not self._held_out:
            for case in make_cases(p, HELD_OUT, p.validation_graphs, self.validation, self.jobs):
                made.append(case)
                yield "drawn", len(made), len(self.validation) or p.validation_graphs
            self._held_out = made
        for case in self._held_out:
            with torch.inference_mode():
                rows = to_decode(self._policy(network, [case]).most_likely()[0], SAMPLES, rng)
            values = np.maximum(costs_of(case, np.vstack((case.seen.rule[None], rows))), 1.0)
            ratios.append((values[1] / values[0], values[1:].min() / values[0]))
            yield "done", len(ratios), len(self._held_out)
        return dict(zip(self.validated, (100 * (1 - np.mean(ratios, axis=0))).tolist(), strict=True))

    def score(self, validation: dict[str, float]) -> float:
        """Return the mean loss to the rule of the most likely keys and of 16."""
        return -sum(validation[name] for name in self.validated) / 2


def costs_of(case: Case, keys: Any) -> FloatArray:
    """Return the makespans of the list schedules of rows of keys, against the bound, shape `(rows,)`."""
    return starting_orders(case.problem, keys)[1] / case.bound


def advantages(costs: FloatArray) -> FloatArray:
    """Return how much dearer each sample is than the mean of its graph's, over their spread."""
    # So a graph on which keys change much counts no more than one on which they change little.
    centred = costs - costs.mean(1, keepdims=True)
    spread = np.sqrt(np.mean(centred**2, axis=1, keepdims=True))
    scaled: FloatArray = centred / np.maximum(spread, 1e-9 * np.abs(costs).max())
    return scaled
