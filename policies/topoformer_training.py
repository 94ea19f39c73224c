"""Train a Topoformer: REINFORCE with a greedy rollout or the other samples as baseline, and imitation (4.3, C.4)."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..core.atomic import write_atomically
from ..core.errors import FormatError, TrainingError, UsageError
from ..core.graph import CostGraph, FloatArray, IndexArray
from ..core.parameters import Parameters, parameter
from ..core.resume import graph_hash
from ..core.yaml_files import read_yaml
from ..datasets.parallel import chunks
from ..version import VERSION
from .config import differences, from_plain, plain, write_config
from .decoders import Decoded
from .graph_batch import GraphBatch, batch_of
from .network import Network, NetworkParameters, Policy, load_network, save_network
from .op_features import NODE_FEATURES
from .training_graphs import (
    MOST_OPS,
    Example,
    Source,
    encoded_examples,
    given_batches,
    layered_batches,
    validation_examples,
)
from .weights_files import WEIGHTS as SHIPPED
from .weights_files import weights_file

CHECKPOINT, WEIGHTS, CONFIG, CURVE = "checkpoint.safetensors", "weights.safetensors", "config.yaml", "curve.jsonl"
RECIPE = SHIPPED / "topoformer-layered.yaml"
VALIDATED = ("greedy", "sample", "beam")
_FLIPS, _SAMPLES, _VALIDATION = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Phase(Parameters):
    """A part of the training; several are a curriculum. The defaults are the paper's (C.1, 5.1).

    The loss is `reinforce` times the loss of eq. 9 plus `imitation` times the negative log-probability per op of the
    order to imitate.
    """

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.nodes[0] <= self.nodes[1] <= MOST_OPS:
            raise UsageError(f"nodes must be two sizes from 1 to {MOST_OPS}, the smaller first, not {list(self.nodes)}")
        if self.reinforce == 0 == self.imitation:
            raise UsageError("reinforce and imitation must not both be 0")
        if self.reinforce and self.baseline == "leave-one-out" and self.samples < 2:
            raise UsageError("the leave-one-out baseline needs at least 2 samples")


@dataclasses.dataclass(frozen=True)
class TrainingParameters(Parameters):
    """Everything that decides the weights that a run gives, but for its graphs if they are given."""

    seed: int = parameter(0, "of every random choice", low=0)
    start: str = parameter("", "weights to start from, which decide the network: a file, or shipped ones by name")
    network: NetworkParameters = dataclasses.field(default_factory=NetworkParameters)
    phases: tuple[Phase, ...] = (Phase(),)
    validation_graphs: int = parameter(32, "layered graphs that no phase trains on", low=1)
    validation_nodes: int = parameter(500, "their ops", low=1, high=MOST_OPS)
    search_evaluations: int = parameter(
        2000, "of order-search per given graph, for the orders to imitate and to validate against", low=2
    )
    clip: float = parameter(1.0, "largest norm of a gradient", low=1e-9)
    threads: int = parameter(1, "of the network on a CPU; with several, the last bits depend on how busy it is", low=1)
    precision: Literal["float32", "bfloat16"] = parameter("float32", "of matrix products; weights stay float32")
    device: Literal["cpu", "cuda"] = parameter("cpu", "cpu or cuda")
    checkpoint_seconds: float = parameter(60.0, "time between checkpoints", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.phases:
            raise UsageError("phases must not be empty")


@dataclasses.dataclass
class Place:
    """How far a run is: the next step to do, the time that the steps before took, and the best gaps so far."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float = math.inf
    rollout_best: float = math.inf


class Progress(NamedTuple):
    """What a run says after each step.

    Parameters
    ----------
    place
        Where it is.
    phase
        What it does there.
    batches
        Steps of this epoch.
    share_done
        Ops trained on, as a share of those of the whole run.
    measured
        Means of the last steps: `loss`, `sampled_mib`, `imitated_log_probability`.
    validation
        The last one, see `Trainer.validate`.
    """

    place: Place
    phase: Phase
    batches: int
    share_done: float
    measured: dict[str, float]
    validation: dict[str, float]


class Trainer:
    """A run: its folder holds the config, the last checkpoint, the best weights and the curve.

    A folder with a checkpoint is gone on with: killed at any moment and started again, a run gives the same weights,
    bit for bit on one thread of a CPU.

    Parameters
    ----------
    folder
        Of the run; made if there is none.
    parameters
        Everything that decides the weights.
    graphs, orders
        Given graphs to train on instead of layered ones, and an order of each to imitate.
    validation, validation_orders
        Given graphs to validate on, and the orders that the policy's are compared with; without those, the graphs'
        input orders.
    jobs
        Processes that prepare graphs; the weights do not depend on it.

    Raises
    ------
    UsageError
        If the checkpoint in the folder is of a run with other settings or graphs, a graph has too many ops, there is no
        order to imitate, or no such device.
    FormatError
        If the checkpoint or the weights to start from cannot be read.
    """

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
        self.folder, self.parameters, self.jobs = Path(folder), parameters, jobs
        self.graphs, self.orders = tuple(graphs), tuple(orders)
        self.validation = tuple(validation)
        self.validation_orders = tuple(validation_orders) or tuple(graph.input_order for graph in validation)
        check_possible(parameters, (*self.graphs, *self.validation))
        if self.graphs and not self.orders and any(wants_orders(phase) for phase in parameters.phases):
            raise UsageError("given graphs need orders to imitate; see searched_orders")
        checkpoint = _Checkpoint.read(self.folder) if has_checkpoint(self.folder) else None
        self.network = self._new_network(None if checkpoint is None else checkpoint.network)
        self.network.train().to(parameters.device)
        self.rollout = copy.deepcopy(self.network).requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=1.0)
        self.place = Place()
        self._given: list[Example] = []
        self._validated: list[Example] = []
        self._measured: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}
        self._clock = self._checkpointed = 0.0
        if checkpoint is not None:
            self._restore(checkpoint)

    def _new_network(self, known: NetworkParameters | None) -> Network:
        if known is None and self.parameters.start:
            return load_network(weights_file(self.parameters.start))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.parameters.seed)
            return Network(known or self.parameters.network)

    @property
    def is_finished(self) -> bool:
        """Whether there is no step left to do."""
        return self.place.phase == len(self.parameters.phases)

    def compile(self) -> None:
        """Run every kernel once, on a tiny graph."""
        source = Source(0, (4, 4), self.network.parameters_.eigenvectors, teacher_width=2)
        with torch.inference_mode():
            policy = self.network([source.example(0, 0).encoded])
            policy.greedy(), policy.beam(2)
            policy.log_probability([policy.sample(1, np.random.default_rng(0))[0].orders])

    @property
    def _is_validated(self) -> bool:
        return self.place.best < math.inf

    def run(
        self,
        on_step: Callable[[Progress], None] = lambda progress: None,
        must_stop: Callable[[], bool] = lambda: False,
        on_epoch: Callable[[dict[str, float]], None] = lambda line: None,
    ) -> bool:
        """Train from where the run is to the end; whether it got there.

        Parameters
        ----------
        on_step
            Called after each step.
        must_stop
            Asked after each step and each graph of a validation; then a checkpoint is written.
        on_epoch
            Called with each new line of the curve: after each epoch, and before the first.

        Raises
        ------
        TrainingError
            If a step's loss or gradient is not a number; the last checkpoint stays.
        FormatError
            If the folder cannot be written to.
        """
        from torch.utils.tensorboard import SummaryWriter

        if self.is_finished:
            return True
        self._open_folder()
        self._clock = self._checkpointed = time.monotonic()
        first_event = self.place.step + (self.place.batch == 0) if self._is_validated else 0
        with SummaryWriter(str(self.folder), purge_step=first_event) as board, _repeatable(self.parameters):
            if not self.place.step and not self._is_validated:
                self._write_checkpoint()
                if not self._end_epoch(board, on_epoch, must_stop):
                    return False
            while not self.is_finished:
                if not self._train_epoch(on_step, must_stop) or not self._end_epoch(board, on_epoch, must_stop):
                    return False
        return True

    def _open_folder(self) -> None:
        """Make the folder, and drop what a run that was killed wrote after its last checkpoint."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for unfinished in self.folder.glob(".*.safetensors.*"):
                unfinished.unlink()
        except OSError as error:
            raise FormatError(f"{self.folder}: cannot be written to: {error.strerror or error}") from error
        write_config(self.folder / CONFIG, self.parameters)
        done = (self.place.phase + 1, self.place.epoch) if self._is_validated else (0, 0)
        kept = [line for line in curve_of(self.folder) if (line["phase"], line["epoch"]) <= done]
        write_atomically(self.folder / CURVE, "".join(f"{json.dumps(line)}\n" for line in kept))

    def _train_epoch(self, on_step: Callable[[Progress], None], must_stop: Callable[[], bool]) -> bool:
        """Do the steps of this epoch that are left; False if told to stop."""
        phase = self.parameters.phases[self.place.phase]
        with closing(self._batches(phase)) as batches:
            for examples in batches:
                self._step(phase, examples)
                self.place.batch += 1
                self.place.step += 1
                self._count_time()
                on_step(self._progress(phase))
                is_stopped = must_stop()
                if is_stopped or time.monotonic() - self._checkpointed >= self.parameters.checkpoint_seconds:
                    self._write_checkpoint()
                if is_stopped:
                    return False
        return True

    def _count_time(self) -> float:
        """Add the time since the last call to that of the run, and return it."""
        before, self._clock = self._clock, time.monotonic()
        self.place.seconds += self._clock - before
        return self._clock - before

    def _progress(self, phase: Phase) -> Progress:
        batches = math.ceil(phase.graphs / phase.batch)
        sizes = [p.epochs * self._ops_of_epoch(p) for p in self.parameters.phases]
        done = sum(sizes[: self.place.phase])
        done += self._ops_of_epoch(phase) * (self.place.epoch + self.place.batch / batches)
        share = done / sum(sizes)
        measured = {name: float(np.mean(values[-20:])) for name, values in self._measured.items()}
        return Progress(dataclasses.replace(self.place), phase, batches, share, measured, self._last)

    def _ops_of_epoch(self, phase: Phase) -> float:
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

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.parameters.seed, purpose, self.place.step])

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

    def _broken(self, what: str) -> TrainingError:
        return TrainingError(
            f"step {self.place.step + 1}: the {what} is not a number any more; the last checkpoint stays in "
            f"{self.folder}, but would end here again: start a run with a lower learning_rate or clip"
        )

    def _step(self, phase: Phase, examples: Sequence[Example]) -> None:
        """One step of Adam on the phase's loss."""
        loss = self._loss(phase, examples)
        for group in self.optimiser.param_groups:
            group["lr"] = phase.learning_rate * phase.decay**self.place.epoch
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.parameters.clip)
        if not torch.isfinite(norm):
            raise self._broken("loss or its gradient")
        self.optimiser.step()

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

    def _measure(self, name: str, value: float) -> None:
        self._measured.setdefault(name, []).append(value)

    def validate(self, network: Network, must_stop: Callable[[], bool] = lambda: False) -> dict[str, float] | None:
        """Return the mean gap of greedy, sample-16 and beam-16 to the reference orders, in percent; None if stopped.

        Those of layered graphs are orders of a backward beam of width 200. Each call has the same random choices.
        """
        gaps: dict[str, list[float]] = {name: [] for name in VALIDATED}
        rng = np.random.default_rng([self.parameters.seed, _VALIDATION])
        network.eval()
        try:
            for example in self._validation_examples():
                with torch.inference_mode():
                    batch = flipped(batch_of([example.encoded]), rng)
                    policy = network([example.encoded], batch)
                    if not policy.is_finite():
                        raise self._broken("network's output")
                    found = (policy.greedy(), policy.sample(16, rng), policy.beam(16))
                for name, decoded in zip(VALIDATED, found, strict=True):
                    gaps[name].append(gap_percent(int(decoded[0].peaks.min()), example.peak or 0))
                if must_stop():
                    return None
        finally:
            network.train()
        return {name: float(np.mean(values)) for name, values in gaps.items()}

    def _validation_examples(self) -> list[Example]:
        if not self._validated:
            eigenvectors = self.network.parameters_.eigenvectors
            if self.validation:
                self._validated = encoded_examples(self.validation, self.validation_orders, eigenvectors, self.jobs)
            else:
                nodes = (self.parameters.validation_nodes,) * 2
                source = Source(self.parameters.seed, nodes, eigenvectors, teacher_width=200)
                self._validated = validation_examples(source, self.parameters.validation_graphs, self.jobs)
        return self._validated

    def _end_epoch(
        self, board: Any, on_epoch: Callable[[dict[str, float]], None], must_stop: Callable[[], bool]
    ) -> bool:
        """Validate, keep the weights if they are the best so far, and go on to the next epoch; False if told to stop.

        So a run begins, too. The rollout's weights are refreshed if greedy got better than theirs (C.4).
        """
        validation = self.validate(self.network, must_stop)
        seconds = self._count_time()
        if validation is None:
            self._write_checkpoint()
            return False
        self._last = validation
        if validation["greedy"] < self.place.rollout_best:
            self.place.rollout_best = validation["greedy"]
            self.rollout.load_state_dict(self.network.state_dict())
        score = score_of(validation)
        if score < self.place.best:
            self.place.best = score
            save_network(self.folder / WEIGHTS, self.network)
        self._record(board, seconds, on_epoch)
        self._measured = {}
        if self.place.step:
            self.place.epoch += 1
            self.place.batch = 0
        if self.place.epoch == self.parameters.phases[self.place.phase].epochs:
            self.place.phase += 1
            self.place.epoch = 0
        self._write_checkpoint()
        return True

    def _record(self, board: Any, seconds: float, on_epoch: Callable[[dict[str, float]], None]) -> None:
        """Add a line to the curve; before the first epoch it has the number 0."""
        place, is_start = self.place, self.place.step == 0
        phase = self.parameters.phases[place.phase]
        curves = {
            **{name: round(float(np.mean(values)), 5) for name, values in self._measured.items()},
            **({} if is_start else {"learning_rate": phase.learning_rate * phase.decay**place.epoch}),
            **{f"{name}_gap_percent": round(value, 3) for name, value in self._last.items()},
            "seconds": round(place.seconds, 1),
            "validation_seconds": round(seconds, 1),
        }
        line = {"phase": place.phase + 1, "epoch": 0 if is_start else place.epoch + 1, "step": place.step, **curves}
        try:
            with (self.folder / CURVE).open("a", encoding="utf-8") as curve:
                curve.write(json.dumps(line) + "\n")
        except OSError as error:
            raise FormatError(f"{self.folder / CURVE}: cannot be written: {error.strerror or error}") from error
        for name, value in curves.items():
            board.add_scalar(name, value, place.step)
        board.flush()
        on_epoch(line)

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
            "shape": json.dumps(plain(self.network.parameters_)),
            "graphs": _hash_of(self.graphs, self.validation),
            "measured": json.dumps(self._measured),
            "validation": json.dumps(self._last),
        }
        write_atomically(self.folder / CHECKPOINT, save(kept, about))
        self._checkpointed = time.monotonic()

    def _restore(self, checkpoint: _Checkpoint) -> None:
        checkpoint.check_same(self.parameters, self.graphs, self.validation)
        path, tensors = checkpoint.path, checkpoint.tensors
        try:
            for prefix, network in (("network", self.network), ("rollout", self.rollout)):
                network.load_state_dict({name: tensors[f"{prefix}.{name}"] for name in network.state_dict()})
            moments: dict[int, dict[str, Tensor]] = {}
            for name, value in tensors.items():
                if name.startswith("adam."):
                    _, number, moment = name.split(".")
                    moments.setdefault(int(number), {})[moment] = value
            groups = self.optimiser.state_dict()["param_groups"]
            self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        except (KeyError, ValueError, RuntimeError) as error:
            raise FormatError(f"{path}: is damaged ({error})") from error
        self.place = dataclasses.replace(checkpoint.place)
        self._measured, self._last = checkpoint.measured, checkpoint.validation


class _Checkpoint(NamedTuple):
    """What a checkpoint holds; `graphs` is the hash of given graphs."""

    path: Path
    tensors: dict[str, Tensor]
    parameters: TrainingParameters
    network: NetworkParameters
    place: Place
    graphs: str
    measured: dict[str, list[float]]
    validation: dict[str, float]

    @staticmethod
    def read(folder: Path) -> _Checkpoint:
        """Read the one of a run.

        Raises
        ------
        FormatError
            If there is none, or the file is something else.
        """
        path = folder / CHECKPOINT
        try:
            with safe_open(str(path), "pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            parameters = from_plain(TrainingParameters, json.loads(about["config"]), str(path))
            shape = json.loads(about["shape"]) if "shape" in about else plain(parameters.network)
            return _Checkpoint(
                path,
                tensors,
                parameters,
                from_plain(NetworkParameters, shape, str(path)),
                Place(**json.loads(about["place"])),
                about.get("graphs", ""),
                json.loads(about["measured"]),
                json.loads(about["validation"]),
            )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, UsageError) as error:
            raise FormatError(f"{path}: is not a checkpoint of schedopt train topoformer ({error})") from error

    def check_same(
        self, parameters: TrainingParameters, graphs: Sequence[CostGraph], validation: Sequence[CostGraph]
    ) -> None:
        """Raise UsageError if the checkpoint is of a run with other settings or graphs."""
        now = dataclasses.replace(parameters, checkpoint_seconds=self.parameters.checkpoint_seconds)
        if others := differences(plain(self.parameters), plain(now)):
            raise UsageError(
                f"{self.path}: is of a run with another {', '.join(others)}; "
                "go on with the same settings, or name another folder"
            )
        if self.graphs != _hash_of(graphs, validation):
            raise UsageError(
                f"{self.path}: is of a run on other graphs; go on with the same ones, or name another folder"
            )


def check_possible(parameters: TrainingParameters, graphs: Sequence[CostGraph]) -> None:
    """Raise UsageError if there is no such device, or a given graph is too large."""
    if parameters.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda is not available here; use cpu")
    for graph in graphs:
        if graph.num_ops > MOST_OPS:
            raise UsageError(
                f"graph {graph.name} has {graph.num_ops:,} ops, and training takes up to {MOST_OPS:,}; leave it out"
            )


def check_same(
    folder: str | Path,
    parameters: TrainingParameters,
    graphs: Sequence[CostGraph] = (),
    validation: Sequence[CostGraph] = (),
) -> None:
    """Check that the run in a folder can be gone on with like this, before any work is done for it.

    Raises
    ------
    UsageError
        If it was begun with other settings, but for `checkpoint_seconds`, or graphs.
    FormatError
        If there is none.
    """
    _Checkpoint.read(Path(folder)).check_same(parameters, graphs, validation)


def _hash_of(graphs: Sequence[CostGraph], validation: Sequence[CostGraph]) -> str:
    """Return a hash of given graphs, empty without any."""
    if not (graphs or validation):
        return ""
    hashes = [[graph_hash(graph) for graph in given] for given in (graphs, validation)]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def has_checkpoint(folder: str | Path) -> bool:
    """Whether a run in this folder can be gone on with."""
    return (Path(folder) / CHECKPOINT).exists()


def settings_of(folder: str | Path) -> TrainingParameters:
    """Return the settings of the run in a folder, from its checkpoint.

    Raises
    ------
    FormatError
        If there is none.
    """
    return _Checkpoint.read(Path(folder)).parameters


def shipped_recipe() -> TrainingParameters:
    """Return the settings that made the shipped weights, but on a CPU; the paper's until there are any."""
    if not RECIPE.exists():
        return TrainingParameters()
    settings = from_plain(TrainingParameters, read_yaml(RECIPE)["recipe"], str(RECIPE))
    return dataclasses.replace(settings, device="cpu")


def curve_of(folder: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a run's curve, one per epoch and one before the first; a torn last line is left out."""
    path = Path(folder) / CURVE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def score_of(validation: dict[str, float]) -> float:
    """Return what decides which weights are the best: the mean gap of samples and beam."""
    return (validation["sample"] + validation["beam"]) / 2


def wants_orders(phase: Phase) -> bool:
    """Whether a phase imitates orders of a search."""
    return phase.imitation > 0 and phase.teacher == "search"


def gap_percent(peak: int, reference: int) -> float:
    """Return by how much a peak is above a reference; a reference without any memory counts as a byte."""
    return 100 * (peak - reference) / max(reference, 1)


@contextmanager
def _repeatable(parameters: TrainingParameters) -> Iterator[None]:
    """Make sums on a CPU come out the same each time, which gradients of indexing otherwise do not on two threads.

    Products of matrices do so on one thread alone: on several, their shares differ with how many cores are free.
    """
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(before or parameters.device == "cpu")
    torch.set_num_threads(parameters.threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)


def _peaks(decoded: Sequence[Decoded]) -> FloatArray:
    return np.array([of_graph.peaks for of_graph in decoded], np.float64)


def flipped(batch: GraphBatch, rng: np.random.Generator) -> GraphBatch:
    """Give each graph's eigenvectors random signs, since they have none of their own (Dwivedi and Bresson 2020)."""
    graphs, _, inputs = batch.features.shape
    signs = np.ones((graphs, 1, inputs), np.float32)
    signs[:, :, NODE_FEATURES:] = rng.choice([-1.0, 1.0], (graphs, 1, inputs - NODE_FEATURES))
    return batch._replace(features=batch.features * torch.from_numpy(signs))


def advantages(costs: FloatArray, rollout: FloatArray | None) -> FloatArray:
    """Return costs above the baseline, as a share of it (eq. 9 without the gradient; the share suits all sizes).

    Parameters
    ----------
    costs
        Peaks of the samples, shape `(graphs, samples)`.
    rollout
        Peaks of the baseline's greedy orders, shape `(graphs, 1)` (eq. 10); None for leave-one-out.
    """
    baseline = rollout
    if baseline is None:
        baseline = (costs.sum(1, keepdims=True) - costs) / (costs.shape[1] - 1)
    shares: FloatArray = (costs - baseline) / np.maximum(baseline, 1.0)
    return shares
