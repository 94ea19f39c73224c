"""Training of REGAL's network, or of the one of GAS, as a contextual bandit (REGAL 4.1, 4.2, A.14 to A.16)."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...core.base.arrays import FloatArray
from ...core.base.errors import UsageError
from ...core.base.parallel import AHEAD, Workers, chunks
from ...core.files.json_lines import JsonLines
from ...core.problem.problem import Task
from ...core.search.parameters import Parameters, parameter
from ...datasets.filters import KeepImproving
from ...datasets.recipe import Recipe
from ...datasets.synthetic import SyntheticParameters, synthetic_graph
from ..networks.network import PolicyNetwork
from ..training.phases import PhasedTrainer, Validation, given_batches
from ..training.run_folder import check_timed
from ..training.settings import TrainingSettings
from ..training.trainable import Screen, Work
from .actions import ActionParameters, Kind, Taken
from .features import EVALUATIONS
from .network import BaselineNetwork, RegalNetwork, RegalNetworkParameters, multigraph_batch
from .rewards import Case, Cases, Graphs, Setting, Start, drawn_graphs, found_value, given_graphs, make_case
from .teachers import TEACHERS

_TEACHERS = f"one of {', '.join(TEACHERS)}"


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training, by default the paper's (A.14): the weighted sum of reward and imitation."""

    epochs: int = parameter(100, "each ends with a validation and a checkpoint; paper 100,000 steps in all", low=1)
    steps: int = parameter(1000, "of an epoch", low=1)
    graphs: int = parameter(4, "of a step; paper 4", low=1)
    samples: int = parameter(1, "actions drawn of a graph, all for the same random numbers of BRKGA; paper 1", low=1)
    evaluations: int = parameter(1000, "of BRKGA with the actions drawn, and without any; paper 1000 (A.14)", low=2)
    learning_rate: float = parameter(1e-4, "of Adam; paper 1e-4", low=0.0, high=1.0)
    decay: float = parameter(1.0, "factor of the learning rate per epoch; paper 1", low=0.01, high=1.0)
    reward: float = parameter(1.0, "weight of the reward", low=0.0)
    baseline: Literal["network", "leave-one-out"] = parameter(
        "network", "of reinforce: the baseline network (4.2), or leave-one-out, the mean of a graph's other samples"
    )
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
        if self.reward and self.baseline == "leave-one-out" and self.samples < 2:
            raise UsageError("the leave-one-out baseline needs at least 2 samples")


@dataclasses.dataclass(frozen=True)
class TrainingParameters(TrainingSettings):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    command: ClassVar[str] = "regal"
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


def recipe(method: str, task: Task | None, devices: int | None) -> TrainingParameters:
    """Return the settings that made the shipped weights of a method, but on a CPU; the paper's until there are any."""
    task, devices = task or "memory", devices or 2
    if settings := TrainingParameters.shipped(f"{method}-{task}"):
        return dataclasses.replace(settings, network=dataclasses.replace(settings.network, devices=devices))
    encoder: Literal["gnn", "lstm"] = "gnn" if method == "regal" else "lstm"
    if task == "memory":
        actions = ActionParameters(placement=2, scheduling=2)
        network = RegalNetworkParameters(task, devices, actions, encoder, rounds=16, update="mlp", aggregation="mean")
    else:
        network = RegalNetworkParameters(task, devices, ActionParameters(2, 16), encoder)
    return TrainingParameters(network=network)


PLAIN, DRAWN = "plain.jsonl", "graphs"
VALIDATED = ("sample", "most_likely", "expected")
_SAMPLES, _SEEDS = 0, 2
_MOST_FOUND = 2**16  # results that are kept, more than one for each of the paper's 10,000 graphs
TRAINED, _HELD_OUT = 2**30, 2**31  # first numbers of the graphs drawn: `schedopt gen` has none of these


class Trainer(PhasedTrainer[Phase, list[Case]]):
    """A run of REGAL's training: BRKGA is run with drawn actions, for a reward of -o_a / o_s."""

    # BRKGA runs in the workers, with the same random numbers for all samples of a graph.

    settings, kind = TrainingParameters, RegalNetwork
    same, added = ("task", "devices", "encoder"), ("ratios",)
    validated = tuple(f"{actions}_improvement_percent" for actions in VALIDATED)
    measures: ClassVar[dict[str, str]] = {
        "reward": "reward {:.4f}",
        "imitated_log_probability": "imitated log-probability {:.3f}",
    }
    columns: ClassVar[dict[str, str]] = {
        "sample_improvement_percent": "drawn",
        "sample_matched_percent": "no worse",
        "most_likely_improvement_percent": "likely",
        "most_likely_matched_percent": "no worse",
        "expected_improvement_percent": "expected",
        "expected_matched_percent": "no worse",
    }
    word, kinds = "improvement", "by drawn/likely/expected actions"
    title = (
        "improvement over brkga with {0.validation_evaluations:,} evaluations by three kinds of actions, "
        "and graphs no worse, in percent"
    )
    parameters: TrainingParameters
    network: RegalNetwork

    def _other_networks(self) -> dict[str, nn.Module]:
        """See `PhasedTrainer`."""
        self.baseline = BaselineNetwork(self.network.parameters_)
        return {"baseline": self.baseline}

    @property
    def use(self) -> str:
        """See `PhasedTrainer`."""
        return f" --task {self.network.parameters_.task} --devices {self.network.parameters_.devices}"

    recipe = staticmethod(recipe)

    @classmethod
    def prepared(cls, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        """See `PhasedTrainer`."""
        if work.settings.network.task == "runtime":
            check_timed(work)
        return super().prepared(work, screen, must_stop)

    def line(self, line: dict[str, float]) -> str:
        """See `PhasedTrainer`."""
        return f"{super().line(line)}, entropy {line['entropy']:.2f}"

    def _load(self, file: Path) -> PolicyNetwork:
        """See `PhasedTrainer`; with ratios, where these are asked for."""
        network = super()._load(file)
        if self.parameters.network.ratios and not network.parameters_.ratios:
            seeing = RegalNetwork(dataclasses.replace(network.parameters_, ratios=True))
            seeing.load_state_dict(network.state_dict(), strict=False)
            return seeing
        return network

    @property
    def _setting(self) -> Setting:
        shape, p = self.network.parameters_, self.parameters
        return Setting(shape.task, shape.devices, shape.actions, p.features, p.bandwidth or None, p.latency)

    def compile(self) -> None:
        """Run every kernel once, on a tiny graph."""
        tiny = synthetic_graph(SyntheticParameters(nodes_low=4, nodes_high=4), "erdos-renyi", np.random.default_rng(0))
        case = make_case(partial(copy.copy, tiny), self._setting, 0, 200, "")
        nothing = np.zeros((tiny.num_ops, len(self.network.parameters_.heads)), np.int64)
        found_value(case.start, nothing, self.network.parameters_.actions, 200)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Have workers, the graphs, and the file of plain BRKGA's results."""
        file = JsonLines(self.folder / PLAIN, "what plain BRKGA finds", "delete it to search again")
        with closing(file), Workers(self.jobs) as workers:
            self._workers = workers
            self._found: dict[Hashable, float] = {}
            self._training = Cases(self._graphs(), self._setting, workers, file)
            self._held_out = Cases(self._graphs(is_held_out=True), self._setting, workers, file)
            yield

    def _graphs(self, is_held_out: bool = False) -> Graphs:
        """Return the graphs to train on, or those to validate on."""
        p = self.parameters
        if given := self.validation if is_held_out else self.graphs:
            return given_graphs(given)
        keep = (KeepImproving(p.improving),) if p.improving else ()
        first, count = (_HELD_OUT, p.validation_graphs) if is_held_out else (TRAINED, p.training_graphs)
        return drawn_graphs(Recipe(p.synthetic, p.seed, keep), first, count, self.folder / DRAWN)

    def _size_of_epoch(self, phase: Phase) -> float:
        """Return an epoch's evaluations; a phase that only imitates counts those of its features."""
        runs = phase.samples if phase.reward else 0
        return phase.steps * phase.graphs * max(runs * phase.evaluations, self.parameters.features)

    def _batches(self, phase: Phase) -> Generator[list[Case], None, None]:
        p, place = self.parameters, self.place
        ranges = chunks(phase.steps * phase.graphs, phase.graphs)
        numbers = given_batches(range(self._training.graphs.count), p.seed + place.phase, place.epoch, ranges)
        rng = np.random.default_rng([p.seed, _SEEDS, place.phase, place.epoch])
        seeds = rng.integers(p.seeds, size=(phase.steps, phase.graphs))
        visits = [list(zip(*pair, strict=True)) for pair in zip(numbers, seeds.tolist(), strict=True)][place.batch :]
        wanted = phase.evaluations if phase.reward else None, phase.teacher if phase.imitation else ""
        for at, batch in enumerate(visits):
            for visit in itertools.chain(*visits[at : at + 1 + AHEAD]):
                self._training.begin(visit, *wanted)
            yield [self._training.get(visit, *wanted) for visit in batch]

    def _loss(self, phase: Phase, batch: list[Case]) -> Tensor:
        """Return the weighted sum of the losses of REINFORCE with its baseline, and of imitation."""
        graphs = multigraph_batch([case.searched for case in batch], ratios=self.network.parameters_.ratios)
        policy = self.network(graphs)
        loss = torch.zeros((), device=self.network.device)
        if phase.reward:
            seed = int(self._rng(_SAMPLES).integers(2**62))
            actions = policy.sample(phase.samples, torch.Generator(self.network.device).manual_seed(seed))
            rewards = self._rewards(phase, batch, actions)
            expected = self.baseline(graphs.to(self.network.device)) if phase.baseline == "network" else None
            loss = loss + phase.reward * bandit_loss(policy.log_probability(actions), rewards, expected)
            if expected is not None:
                error = (torch.from_numpy(rewards).to(expected) - expected).square().mean()
                loss = loss + self.parameters.baseline_weight * error
                self._measure("baseline_error", float(error.detach()))
        if phase.imitation:
            target = torch.from_numpy(np.concatenate([case.target for case in batch if case.target is not None]))
            choices = graphs.graph.sizes * target.shape[1]
            log_probability = policy.log_probability(target[None].to(self.network.device))[0]
            likelihood = (log_probability / choices.to(log_probability)).mean()
            loss = loss - phase.imitation * likelihood
            self._measure("imitated_log_probability", float(likelihood.detach()))
        self._measure("loss", float(loss.detach()))
        return loss

    def _rewards(self, phase: Phase, cases: Sequence[Case], actions: Tensor) -> FloatArray:
        """Return -o_a / o_s for actions, shape `(count, nodes, heads)`; shape `(count, graphs)`."""
        ends = np.cumsum([len(case.searched.nodes) for case in cases])[:-1]
        of_graphs = np.split(actions.cpu().numpy().astype(np.uint8), ends, axis=1)
        rows = [zip(cases, chosen, strict=True) for chosen in zip(*of_graphs, strict=True)]
        begun = [[self._search(c.start, chosen, phase.evaluations) for c, chosen in row] for row in rows]
        rewards = -np.array([[case.ratio(get()) for case, get in zip(cases, row, strict=True)] for row in begun])
        self._measure("reward", float(rewards.mean()))
        return rewards

    def _search(self, start: Start, actions: NDArray[Any], evaluations: int) -> Callable[[], float]:
        """Let a worker run BRKGA with the actions for a graph, once: a settled policy asks again and again."""
        asked = id(start.problem), start.generator["state"]["state"], evaluations, actions.astype(np.uint8).tobytes()
        if (known := self._found.get(asked)) is not None:
            return lambda: known
        begun = self._workers.start(found_value, start, actions, self.network.parameters_.actions, evaluations)

        def found() -> float:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[asked] = value = begun()
            return value

        return found

    def _validated(self, network: RegalNetwork) -> Validation:
        """Find how much better than plain BRKGA the policy's actions are, in percent."""
        # Of actions drawn, most likely and expected: mean improvement, and share of graphs on which they are as good;
        # and the entropy of an op's choices, in nats, and of its joint placement action (figure 4a), if there is one.
        p, cases = self.parameters, self._held_out
        kinds: dict[str, Kind | None] = {"entropy": None}
        if network.parameters_.actions.placement:
            kinds["placement_entropy"] = "placement"
        visits = [(number, 0) for number in range(cases.graphs.count)]
        for visit in visits:
            cases.begin(visit, p.validation_evaluations)
        begun: list[tuple[Case, list[Callable[[], float]]]] = []
        entropies = []
        for visit in visits:
            case = cases.get(visit, p.validation_evaluations)
            with torch.inference_mode():
                policy = network(multigraph_batch([case.searched], ratios=network.parameters_.ratios))
                entropies.append([float(policy.entropy(kind)) for kind in kinds.values()])
                if not np.isfinite(entropies[-1]).all():
                    raise self._broken("network's output")
                seed, after = case.start.drawn()
                chosen = [(after, policy.sample(1, torch.Generator(network.device).manual_seed(seed))[0])]
                chosen += [(case.start, actions) for actions in (policy.most_likely(), policy.expected())]
            left = p.validation_evaluations - p.features
            begun.append((case, [self._search(start, actions.cpu().numpy(), left) for start, actions in chosen]))
            yield "prepared", len(begun), len(visits)
        ratios = []
        for case, results in begun:
            ratios.append([case.ratio(min(case.searched.value, result())) for result in results])
            yield "done", len(ratios), len(visits)
        improvements = dict(zip(VALIDATED, 1 - np.array(ratios).T, strict=True))
        return {
            **{f"{name}_improvement_percent": 100 * float(found.mean()) for name, found in improvements.items()},
            **{f"{name}_matched_percent": 100 * float((found > -1e-9).mean()) for name, found in improvements.items()},
            **dict(zip(kinds, np.mean(entropies, axis=0).tolist(), strict=True)),
        }

    def score(self, validation: dict[str, float]) -> float:
        """Return the loss to plain BRKGA of the actions that decide which weights are kept."""
        kept = self.parameters.keep or self.network.parameters_.taken
        return -validation[f"{kept.replace('-', '_')}_improvement_percent"]


def bandit_loss(log_probability: Tensor, rewards: FloatArray, expected: Tensor | None) -> Tensor:
    """Return a loss with minus the gradient of the expected reward, by REINFORCE (4.1; Williams 1992)."""
    others = (rewards.sum(0) - rewards) / max(len(rewards) - 1, 1)
    baseline = others if expected is None else expected.detach().cpu().numpy()
    return -(torch.from_numpy(rewards - baseline).to(log_probability) * log_probability).mean()
