"""Train a Topoformer: REINFORCE with a greedy rollout or the other samples as baseline, and imitation (4.3, C.4)."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..core.atomic import write_atomically
from ..core.errors import FormatError, UsageError
from ..core.graph import CostGraph, IndexArray
from ..core.parameters import Parameters, parameter
from ..version import VERSION
from .config import from_plain, plain, write_config
from .graph_batch import GraphBatch, batch_of
from .network import Network, NetworkParameters, Policy, load_network, save_network
from .op_features import NODE_FEATURES
from .training_graphs import Example, Source, batches, validation_examples

CHECKPOINT, WEIGHTS, CONFIG, CURVE = "checkpoint.safetensors", "weights.safetensors", "config.yaml", "curve.jsonl"
_FLIPS, _SAMPLES, _VALIDATION = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training; several are a curriculum. The defaults are the paper's (C.1, 5.1).

    The loss is `reinforce` times the loss of eq. 9 plus `imitation` times the negative log-probability per op of the
    order to imitate.
    """

    epochs: int = parameter(325, "each with new graphs, or with all given graphs; paper 325", low=1)
    graphs: int = parameter(1000, "graphs of an epoch; paper 1000", low=1)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.nodes[0] <= self.nodes[1]:
            raise UsageError(f"nodes must be two sizes from 1, the smaller first, not {list(self.nodes)}")
        if self.reinforce == 0 == self.imitation:
            raise UsageError("reinforce and imitation must not both be 0")
        if self.reinforce and self.baseline == "leave-one-out" and self.samples < 2:
            raise UsageError("the leave-one-out baseline needs at least 2 samples")


@dataclasses.dataclass(frozen=True)
class TrainingParameters(Parameters):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    seed: int = parameter(0, "of every random choice", low=0)
    start: str = parameter("", "weights to start from; they decide the network")
    network: NetworkParameters = NetworkParameters()
    phases: tuple[Phase, ...] = (Phase(),)
    validation_graphs: int = parameter(32, "layered graphs that no phase trains on", low=1)
    validation_nodes: int = parameter(500, "their ops", low=1)
    clip: float = parameter(1.0, "largest norm of a gradient", low=0.0)
    precision: Literal["float32", "bfloat16"] = parameter("float32", "of matrix products; weights stay float32")
    device: str = parameter("cpu", "cpu or cuda")
    checkpoint_seconds: float = parameter(60.0, "time between checkpoints", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.phases:
            raise UsageError("phases must not be empty")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("device cuda is not available here; use cpu")
        if self.device not in ("cpu", "cuda"):
            raise UsageError(f"device must be cpu or cuda, not {self.device}")


@dataclasses.dataclass
class Place:
    """How far a run is: the next step to do, and the time that the steps before took."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float = float("inf")
    rollout_best: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a run says after each step: where it is, the means of the last steps, the last validation."""

    place: Place
    phase: Phase
    batches: int
    measured: dict[str, float]
    validation: dict[str, float]


class Trainer:
    """A run: its folder holds the config, the last checkpoint, the best weights and the curve.

    Parameters
    ----------
    folder
        Of the run; made if there is none.
    parameters
        Everything that decides the weights.
    graphs, orders
        Given graphs to train on instead of layered ones, and orders of theirs to imitate.
    validation
        Given graphs to validate on.
    jobs
        Processes that prepare graphs; the weights do not depend on it.
    """

    def __init__(
        self,
        folder: str | Path,
        parameters: TrainingParameters,
        *,
        graphs: Sequence[CostGraph] = (),
        orders: Sequence[IndexArray] = (),
        validation: Sequence[CostGraph] = (),
        jobs: int = 1,
    ) -> None:
        self.folder, self.parameters, self.jobs = Path(folder), parameters, jobs
        self.graphs, self.orders, self.given_validation = tuple(graphs), tuple(orders), tuple(validation)
        torch.manual_seed(parameters.seed)
        self.network = load_network(parameters.start) if parameters.start else Network(parameters.network)
        self.network.train().to(parameters.device)
        self.rollout = copy.deepcopy(self.network).requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=1.0)
        self.place = Place()
        self._validation: Sequence[Example] | None = None
        self._measured: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}

    def run(
        self,
        on_step: Callable[[Progress], None] = lambda progress: None,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train from the checkpoint, or from the start, to the end; whether it got there.

        Parameters
        ----------
        on_step
            Called after each step.
        must_stop
            Asked after each step; then a checkpoint is written.
        """
        from torch.utils.tensorboard import SummaryWriter

        self.folder.mkdir(parents=True, exist_ok=True)
        write_config(self.folder / CONFIG, self.parameters)
        if (self.folder / CHECKPOINT).exists():
            self._read_checkpoint()
        self._truncate_curve()
        checkpointed = time.monotonic()
        with SummaryWriter(str(self.folder), purge_step=self.place.step) as board:
            while self.place.phase < len(self.parameters.phases):
                phase = self.parameters.phases[self.place.phase]
                for examples in self._batches(phase):
                    start = time.monotonic()
                    self._step(phase, examples)
                    self.place.batch += 1
                    self.place.step += 1
                    self.place.seconds += time.monotonic() - start
                    on_step(self._progress(phase))
                    if must_stop():
                        self._write_checkpoint()
                        return False
                    if time.monotonic() - checkpointed >= self.parameters.checkpoint_seconds:
                        self._write_checkpoint()
                        checkpointed = time.monotonic()
                self._end_epoch(phase, board)
                self._write_checkpoint()
                checkpointed = time.monotonic()
        return True

    def _progress(self, phase: Phase) -> Progress:
        measured = {name: float(np.mean(values[-20:])) for name, values in self._measured.items()}
        return Progress(self.place, phase, -(-phase.graphs // phase.batch), measured, self._last)

    def _source(self, phase: Phase, graphs: Sequence[CostGraph], orders: Sequence[IndexArray]) -> Source:
        wants_teacher = phase.imitation > 0 and phase.teacher == "search"
        return Source(
            seed=self.parameters.seed + self.place.phase,
            nodes=phase.nodes,
            graphs=tuple(graphs),
            orders=tuple(orders),
            eigenvectors=self.parameters.network.eigenvectors,
            teacher_width=phase.teacher_width if wants_teacher else 0,
        )

    def _batches(self, phase: Phase) -> Any:
        source = self._source(phase, self.graphs, self.orders)
        return batches(source, self.place.epoch, phase.graphs, phase.batch, self.place.batch, self.jobs)

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.parameters.seed, purpose, self.place.step])

    def _policies(self, examples: Sequence[Example], networks: Sequence[Network], purpose: int) -> list[Policy]:
        """Return the policy of each network for the same batch, with random signs of the eigenvectors."""
        encoded = [example.encoded for example in examples]
        batch = flipped(batch_of(encoded), self._rng(purpose))
        device = torch.device(self.parameters.device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.parameters.precision == "bfloat16"):
            return [network(encoded, batch) for network in networks]

    def _step(self, phase: Phase, examples: Sequence[Example]) -> None:
        """One step of Adam on the phase's loss."""
        uses_rollout = phase.reinforce > 0 and phase.baseline == "greedy-rollout"
        policy, *others = self._policies(examples, [self.network, *[self.rollout] * uses_rollout], _FLIPS)
        rng = self._rng(_SAMPLES)
        loss = torch.zeros((), device=self.network.device)
        drawn = policy.sample(phase.samples, rng) if phase.reinforce else None
        if drawn is not None:
            costs = np.stack([decoded.peaks for decoded in drawn]).astype(np.float64)
            rollout = np.stack([decoded.peaks for decoded in others[0].greedy()]) if others else None
            advantage = torch.from_numpy(advantages(costs, rollout)).float().to(loss.device)
            log_probability = policy.log_probability([decoded.orders for decoded in drawn])
            loss = loss + phase.reinforce * (advantage * log_probability).mean()  # eq. 9
            self._measure("sampled_mib", costs.mean() / 2**20)
        if phase.imitation:
            orders, weights = self._orders_to_imitate(phase, policy, examples, drawn)
            per_op = policy.log_probability([order[None] for order in orders])[:, 0]
            ops = torch.tensor([len(order) for order in orders], device=loss.device)
            likelihood = (per_op / ops * torch.tensor(weights, device=loss.device)).mean()
            loss = loss - phase.imitation * likelihood
            self._measure("imitated_log_probability", float(likelihood.detach()))
        self._measure("loss", float(loss.detach()))
        for group in self.optimiser.param_groups:
            group["lr"] = phase.learning_rate * phase.decay**self.place.epoch
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self.parameters.clip)
        self.optimiser.step()

    def _orders_to_imitate(
        self, phase: Phase, policy: Policy, examples: Sequence[Example], drawn: Any
    ) -> tuple[list[IndexArray], list[float]]:
        """Return an order per graph, and 1; or 0 where the policy's own beam is no better than its samples."""
        if phase.teacher == "search":
            return [example.order for example in examples if example.order is not None], [1.0] * len(examples)
        found = policy.beam(phase.teacher_width)
        best = [0 if drawn is None else int(decoded.peaks.min()) for decoded in drawn or found]
        better = [float(drawn is None or int(f.peaks[0]) < b) for f, b in zip(found, best, strict=True)]
        return [f.orders[0] for f in found], better

    def _measure(self, name: str, value: float) -> None:
        self._measured.setdefault(name, []).append(value)

    def validate(self, network: Network) -> dict[str, float]:
        """Return the mean gap of greedy, sample-16 and beam-16 to the teacher's orders, in percent."""
        if self._validation is None:
            source = dataclasses.replace(
                self._source(self.parameters.phases[0], self.given_validation, ()),
                seed=self.parameters.seed,
                nodes=(self.parameters.validation_nodes,) * 2,
                teacher_width=200,
            )
            self._validation = validation_examples(source, self.parameters.validation_graphs)
        gaps: dict[str, list[float]] = {"greedy": [], "sample": [], "beam": []}
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        network.eval()
        with torch.inference_mode():
            for example in self._validation:
                batch = flipped(batch_of([example.encoded]), rng)
                policy = network([example.encoded], batch)
                for name, decoded in (
                    ("greedy", policy.greedy()),
                    ("sample", policy.sample(16, rng)),
                    ("beam", policy.beam(16)),
                ):
                    gaps[name].append(100 * (int(decoded[0].peaks.min()) / self._reference(example) - 1))
        network.train()
        return {name: float(np.mean(values)) for name, values in gaps.items()}

    @staticmethod
    def _reference(example: Example) -> int:
        return example.peak or 1

    def _end_epoch(self, phase: Phase, board: Any) -> None:
        """Validate; keep the weights if they are the best so far; refresh the rollout's if greedy got better (C.4)."""
        start = time.monotonic()
        self._last = self.validate(self.network)
        if self._last["greedy"] < self.place.rollout_best:
            self.place.rollout_best = self._last["greedy"]
            self.rollout.load_state_dict(self.network.state_dict())
        score = min(self._last["sample"], self._last["beam"])
        if score < self.place.best:
            self.place.best = score
            save_network(self.folder / WEIGHTS, self.network)
        self.place.seconds += time.monotonic() - start
        measured = {name: float(np.mean(values)) for name, values in self._measured.items()}
        line = {
            "phase": self.place.phase + 1,
            "epoch": self.place.epoch + 1,
            "step": self.place.step,
            "seconds": round(self.place.seconds, 1),
            **{name: round(value, 5) for name, value in measured.items()},
            **{f"{name}_gap_percent": round(value, 3) for name, value in self._last.items()},
        }
        with (self.folder / CURVE).open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(line) + "\n")
        for name, value in line.items():
            board.add_scalar(name, value, self.place.step)
        board.flush()
        self._measured = {}
        self.place.epoch += 1
        self.place.batch = 0
        if self.place.epoch == phase.epochs:
            self.place.phase += 1
            self.place.epoch = 0

    def _truncate_curve(self) -> None:
        """Drop what was written after the checkpoint, by a run that was killed between the two."""
        path = self.folder / CURVE
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if json.loads(line)["step"] <= self.place.step]
            write_atomically(path, "".join(f"{line}\n" for line in kept))

    def _write_checkpoint(self) -> None:
        tensors: dict[str, Tensor] = {}
        for prefix, network in (("network", self.network), ("rollout", self.rollout)):
            tensors |= {f"{prefix}.{name}": value for name, value in network.state_dict().items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": value for name, value in state.items()}
        kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        about = {
            "schedopt": VERSION,
            "place": json.dumps(dataclasses.asdict(self.place)),
            "config": json.dumps(plain(self.parameters)),
            "measured": json.dumps(self._measured),
            "validation": json.dumps(self._last),
        }
        write_atomically(self.folder / CHECKPOINT, save(kept, about))

    def _read_checkpoint(self) -> None:
        path = self.folder / CHECKPOINT
        try:
            with safe_open(str(path), "pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError) as error:
            raise FormatError(f"{path}: is not a checkpoint ({error})") from error
        if json.loads(about["config"]) != plain(self.parameters):
            raise UsageError(f"{path}: belongs to a run with other settings; name another folder for this one")
        for prefix, network in (("network", self.network), ("rollout", self.rollout)):
            network.load_state_dict({name: tensors[f"{prefix}.{name}"] for name in network.state_dict()})
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("adam."):
                _, number, moment = name.split(".")
                moments.setdefault(int(number), {})[moment] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.place = Place(**json.loads(about["place"]))
        self._measured, self._last = json.loads(about["measured"]), json.loads(about["validation"])


def settings_of(folder: str | Path) -> TrainingParameters:
    """Return the settings of the run in a folder, from its checkpoint.

    Raises
    ------
    FormatError
        If there is none.
    """
    path = Path(folder) / CHECKPOINT
    try:
        with safe_open(str(path), "pt") as file:
            config = json.loads(file.metadata()["config"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: is not a checkpoint of schedopt train ({error})") from error
    return from_plain(TrainingParameters, config, str(path))


def flipped(batch: GraphBatch, rng: np.random.Generator) -> GraphBatch:
    """Give each graph's eigenvectors random signs, since they have none of their own (Dwivedi and Bresson 2020)."""
    graphs, _, inputs = batch.features.shape
    signs = np.ones((graphs, 1, inputs), np.float32)
    signs[:, :, NODE_FEATURES:] = rng.choice([-1.0, 1.0], (graphs, 1, inputs - NODE_FEATURES))
    return batch._replace(features=batch.features * torch.from_numpy(signs))


def advantages(costs: np.ndarray, rollout: np.ndarray | None) -> np.ndarray:
    """Return costs above the baseline, as a share of it (eq. 9 without the gradient; the share suits all sizes).

    Parameters
    ----------
    costs
        Peaks of the samples, shape `(graphs, samples)`.
    rollout
        Peaks of the baseline's greedy orders, shape `(graphs, 1)` (eq. 10); None for leave-one-out.
    """
    if rollout is not None:
        return costs / rollout - 1
    samples = costs.shape[1]
    others = (costs.sum(1, keepdims=True) - costs) / (samples - 1)
    return costs / others - 1
