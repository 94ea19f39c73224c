"""Training in phases of epochs: steps of Adam, a validation after each epoch, checkpoints that lose nothing."""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import torch._dynamo  # which Adam loads: here Ctrl-C need not wait for it
from torch import Tensor, nn

from ...core.base.arrays import IntArray
from ...core.base.errors import ClusterError, TrainingError, UsageError
from ...core.graph.graph import CostGraph
from ...core.search.search import Cancelled
from ..networks.message_passing import using_threads
from ..networks.network import PolicyNetwork, write_network
from ..networks.shipped import weights_file
from . import run_folder
from .settings import TrainingSettings
from .trainable import Screen, Work

Batch = TypeVar("Batch")
Given = TypeVar("Given")
Phase = TypeVar("Phase", bound=Any)  # has epochs, the steps of one, and its learning_rate with its decay per epoch
# Told in a validation what is done with its graphs, with how many of them, and of how many
OnGraph = Callable[[str, int, int], None]
Validation = Generator[tuple[str, int, int], None, dict[str, float]]  # the same, then what was found


@dataclasses.dataclass(frozen=True)
class Progress(Generic[Phase]):
    """A run's report after each step."""

    place: run_folder.Place  # where the run is
    phase: Phase  # settings of the phase that it is in
    share_done: float  # share of the whole run's work that is done, from 0 to 1
    measured: dict[str, float]  # means of the last 20 steps, by name
    validation: dict[str, float]  # result of the last validation, see `validate` of the trainer
    seconds_left: float  # about how long the rest of the run takes, its validations too


class PhasedTrainer(ABC, Generic[Phase, Batch]):
    """A run; gone on with in the same folder it gives the same weights, bit for bit on one thread of a CPU."""

    settings: ClassVar[type[TrainingSettings]]
    measures: ClassVar[dict[str, str]]  # how what is measured in steps is written, by its name
    columns: ClassVar[dict[str, str]]  # headings of what a validation finds, by its name
    validated: ClassVar[tuple[str, ...]]  # names of what validations compare, of the columns
    word: ClassVar[str]  # what they compare, as gaps
    kinds: ClassVar[str]  # of what it is, in a line of the curve
    number: ClassVar[str] = "{:+.2f}"
    title: ClassVar[str]  # what the numbers of a report are; may name settings
    same: ClassVar[tuple[str, ...]] = ()  # parameters of a network to start from that must be as the settings say
    added: ClassVar[tuple[str, ...]] = ()  # those that it may be given
    kind: ClassVar[type[PolicyNetwork]]  # of the network

    def __init__(
        self,
        folder: str | Path,
        parameters: TrainingSettings,
        graphs: Sequence[CostGraph] = (),
        validation: Sequence[CostGraph] = (),
        jobs: int = 1,
    ) -> None:
        run_folder.check_device(parameters)
        self.folder, self.parameters, self.jobs = Path(folder), parameters, jobs
        self.graphs, self.validation = tuple(graphs), tuple(validation)
        self._hash = run_folder.hash_of(self.graphs, self.validation)
        self.place = run_folder.Place()
        self._measured: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}
        self._clock = self._checkpointed = 0.0
        self._must_stop: Callable[[], bool] = lambda: False
        is_there = run_folder.has_checkpoint(self.folder)
        checkpoint: Any = run_folder.read_checkpoint(self.folder, self.settings) if is_there else None
        with torch.random.fork_rng(devices=[]):  # which leaves torch's generator as it was
            torch.manual_seed(parameters.seed)
            self.network: Any = self._first_network(checkpoint)
            self._networks: dict[str, nn.Module] = {"network": self.network, **self._other_networks()}
        for network in self._networks.values():
            network.train().to(parameters.device)
        trained = [w for network in self._networks.values() for w in network.parameters() if w.requires_grad]
        self.optimiser = torch.optim.Adam(trained, lr=1.0)  # each step sets its own learning rate
        if checkpoint is not None:
            checkpoint.check_same(parameters, self._hash)
            checkpoint.restore(self._networks, self.optimiser)
            self.place, self._measured, self._last = checkpoint.place, checkpoint.measured, checkpoint.validation

    def _first_network(self, checkpoint: Any) -> PolicyNetwork:
        """Return the network to train: loaded if there are weights to start from, or made from its parameters."""
        if checkpoint is not None or not self.parameters.start:
            return self.kind(checkpoint.network if checkpoint else self.parameters.network)
        network = self._load(weights_file(self.parameters.start))
        for name in self.same:
            found, wanted = (getattr(p, name) for p in (network.parameters_, self.parameters.network))
            if found != wanted:
                raise UsageError(f"{self.parameters.start}: is a network of {name} {found}, not {wanted}")
        return network

    def _load(self, file: Path) -> PolicyNetwork:
        """Return the network to start from."""
        return self.kind.load(file)

    def _other_networks(self) -> dict[str, nn.Module]:
        """Make what is trained, or kept, beside the network, by its name in checkpoints."""
        return {}

    @staticmethod
    @abstractmethod
    def recipe(method: str, task: Any, devices: int | None) -> Any:
        """Return the settings to begin with where no file of them is given; for a task and devices, or None."""

    @classmethod
    def prepared(cls, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Phase, Batch] | None:
        """Return the trainer of a run, or None if told to stop before it is ready; the folder keeps finished work."""
        return cls.of(work)

    @classmethod
    def of(cls, work: Work, **more: Any) -> PhasedTrainer[Phase, Batch]:
        """Return the trainer of a run, given its other needs."""
        make: Any = cls
        given = {"graphs": work.graphs, "validation": work.validation, "jobs": work.jobs, **more}
        trainer: PhasedTrainer[Phase, Batch] = make(work.folder, work.settings, **given)
        return trainer

    def words(self, measured: dict[str, float]) -> list[str]:
        """Write the measurements of the last steps, a text each."""
        return [text.format(measured[name]) for name, text in self.measures.items() if name in measured]

    def said(self, validation: dict[str, float]) -> str:
        """Write the numbers of a validation."""
        return f"{'/'.join(self.number.format(validation[name]) for name in self.validated)}%"

    def line(self, line: dict[str, float]) -> str:
        """Write the validation in a line of the curve."""
        return f"{self.word} {self.kinds} {self.said(line)}"

    @property
    @abstractmethod
    def use(self) -> str:
        """What follows the method in the command of `schedopt solve` that the weights are for."""

    @abstractmethod
    def _batches(self, phase: Phase) -> Generator[Batch, None, None]:
        """Yield the rest of the current epoch, from `place.batch` on."""

    @abstractmethod
    def _loss(self, phase: Phase, batch: Batch) -> Tensor:
        """Return the loss of a step."""

    def validate(
        self, network: Any, must_stop: Callable[[], bool] = lambda: False, on_graph: OnGraph = lambda *told: None
    ) -> dict[str, float] | None:
        """Return how good the network is, or None if told to stop; tells `on_graph` of each graph."""
        with closing(self._validated(network.eval())) as graphs:
            try:
                while True:
                    on_graph(*next(graphs))
                    if must_stop():
                        return None
            except StopIteration as end:
                found: dict[str, float] = end.value
                return found
            finally:
                network.train()

    @abstractmethod
    def _validated(self, network: Any) -> Validation:
        """Find how good the network is; between graphs this may be stopped."""

    @abstractmethod
    def score(self, validation: dict[str, float]) -> float:
        """Return the score that decides which weights are the best: the smallest."""

    def compile(self) -> None:
        """Run every kernel once, so that none is compiled while it is waited for."""

    def _at_work(self) -> AbstractContextManager[None]:
        """Hold the resources of a run from its first step to its last."""
        return nullcontext()

    def _size_of_epoch(self, phase: Phase) -> float:
        """Return how much work an epoch is, in any unit."""
        return float(phase.steps)

    def _on_validation(self, validation: dict[str, float]) -> None:
        """Take note of a validation."""

    def _add_gradients(self, phase: Phase, batch: Batch) -> None:
        """Add a step's gradients to those of the parameters."""
        self._loss(phase, batch).backward()  # type: ignore[no-untyped-call]

    @property
    def is_finished(self) -> bool:
        """Whether there is no step left to do."""
        return bool(self.place.phase == len(self.parameters.phases))

    def _phase(self) -> Any:
        return self.parameters.phases[self.place.phase]

    def run(
        self,
        on_step: Callable[[Progress[Phase]], None] = lambda progress: None,
        must_stop: Callable[[], bool] = lambda: False,
        on_epoch: Callable[[dict[str, float]], None] = lambda line: None,
        on_graph: OnGraph = lambda *told: None,
    ) -> bool:
        """Train from where the run is to the end; whether it got there."""
        if self.is_finished:
            return True
        run_folder.open_folder(self.folder, self.parameters, self.place)
        self._clock = self._checkpointed = time.monotonic()
        self._must_stop = must_stop
        with run_folder.board_of(self.folder, self.place) as board, _repeatable(self.parameters), self._at_work():
            try:
                end_epoch = partial(self._end_epoch, board, on_epoch, must_stop, on_graph)
                if not self.place.step and not self.place.is_validated:
                    self._write_checkpoint()
                    if not end_epoch():
                        return False
                while not self.is_finished:
                    if not (self._train_epoch(on_step, must_stop) and end_epoch()):
                        return False
                return True
            except ClusterError:
                self._write_checkpoint()
                raise

    def _train_epoch(self, on_step: Callable[[Progress[Phase]], None], must_stop: Callable[[], bool]) -> bool:
        """Do the steps of this epoch that are left; False if told to stop."""
        phase = self._phase()
        with closing(self._batches(phase)) as batches:
            for batch in batches:
                measured = {name: values[:] for name, values in self._measured.items()}
                try:
                    self._step(phase, batch)
                except (ClusterError, Cancelled) as error:
                    self._measured = measured  # this step is done again
                    if isinstance(error, ClusterError):
                        raise
                    self._write_checkpoint()
                    return False
                self.place.batch += 1
                self.place.step += 1
                self._count_time()
                means = {name: float(np.mean(values[-20:])) for name, values in self._measured.items()}
                place, share = dataclasses.replace(self.place), self._share_done(phase)
                on_step(Progress(place, phase, share, means, self._last, self.seconds_left))
                is_stopped = must_stop()
                if is_stopped or time.monotonic() - self._checkpointed >= self.parameters.checkpoint_seconds:
                    self._write_checkpoint()
                if is_stopped:
                    return False
        return True

    def _look(self) -> None:
        """Raise `Cancelled` if told to stop: for long steps."""
        if self._must_stop():
            raise Cancelled

    def _step(self, phase: Phase, batch: Batch) -> None:
        """One step of Adam on the phase's loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = phase.learning_rate * phase.decay**self.place.epoch
        self.optimiser.zero_grad()
        self._add_gradients(phase, batch)
        trained = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(trained, self.parameters.clip)
        if not torch.isfinite(norm):
            raise self._broken("loss or its gradient")
        self.optimiser.step()

    def _broken(self, what: str) -> TrainingError:
        return TrainingError(
            f"step {self.place.step + 1}: the {what} is not a number any more; the last checkpoint stays in "
            f"{self.folder}, but would end here again: start a run with a lower learning_rate or clip"
        )

    def _rng(self, purpose: int) -> np.random.Generator:
        """Return the random numbers of this step for a purpose."""
        return np.random.default_rng([self.parameters.seed, purpose, self.place.step])

    def _measure(self, name: str, value: float) -> None:
        self._measured.setdefault(name, []).append(value)

    def _count_time(self) -> float:
        """Add the time since the last call to that of the run, and return it."""
        before, self._clock = self._clock, time.monotonic()
        self.place.seconds += self._clock - before
        return self._clock - before

    def _share_done(self, phase: Phase) -> float:
        """Return the share of all steps' work that is done."""
        sizes = [p.epochs * self._size_of_epoch(p) for p in self.parameters.phases]
        here = self._size_of_epoch(phase) * (self.place.epoch + self.place.batch / phase.steps)
        return float((sum(sizes[: self.place.phase]) + here) / sum(sizes))

    @property
    def seconds_left(self) -> float:
        """About how long the rest of the run takes, by the time that its steps and validations took; inf at first."""
        if self.is_finished:
            return 0.0
        place, epochs = self.place, [phase.epochs for phase in self.parameters.phases]
        share = self._share_done(self._phase())
        if not (share and place.validations):
            return math.inf
        steps = (place.seconds - place.validation_seconds) * (1 - share) / share
        return float(steps + place.validation_seconds * (1 + sum(epochs) - place.validations) / place.validations)

    def _end_epoch(
        self, board: Any, on_epoch: Callable[[dict[str, float]], None], must_stop: Callable[[], bool], on_graph: OnGraph
    ) -> bool:
        """Validate, keep the weights if they are the best so far, go on to the next epoch; False if told to stop."""
        validation = self.validate(self.network, must_stop, on_graph)
        seconds = self._count_time()
        self.place.validation_seconds += seconds
        if validation is None:
            self._write_checkpoint()
            return False
        self.place.validations += 1
        self._last = validation
        self._on_validation(validation)
        if (score := self.score(validation)) < self.place.best:
            self.place.best = score
            write_network(self.folder / run_folder.WEIGHTS, self.network)
        run_folder.add_to_curve(self.folder, board, self._line(seconds), on_epoch)
        self._measured = {}
        if self.place.step:
            self.place.epoch, self.place.batch = self.place.epoch + 1, 0
        if self.place.epoch == self._phase().epochs:
            self.place.phase, self.place.epoch = self.place.phase + 1, 0
        self._write_checkpoint()
        return True

    def _line(self, seconds: float) -> dict[str, float]:
        """Return a line of the curve; before the first epoch it has the number 0."""
        place, is_start = self.place, self.place.step == 0
        phase = self._phase()
        return {
            "phase": place.phase + 1,
            "epoch": 0 if is_start else place.epoch + 1,
            "step": place.step,
            **{name: round(float(np.mean(values)), 5) for name, values in self._measured.items()},
            **({} if is_start else {"learning_rate": phase.learning_rate * phase.decay**place.epoch}),
            **{name: round(value, 3) for name, value in self._last.items()},
            "seconds": round(place.seconds, 1),
            "validation_seconds": round(seconds, 1),
        }

    def _write_checkpoint(self) -> None:
        run_folder.Checkpoint(
            self.folder / run_folder.CHECKPOINT,
            run_folder.tensors_of(self._networks, self.optimiser),
            self.parameters,
            self.network.parameters_,
            self.place,
            self._hash,
            self._measured,
            self._last,
        ).write()
        self._checkpointed = time.monotonic()


def given_batches(
    examples: Sequence[Given], seed: int, epoch: int, ranges: Sequence[range]
) -> Generator[list[Given], None, None]:
    """Yield batches of given things: all in a random order, then again in another one."""
    for indices in ranges:
        places = (divmod(index, len(examples)) for index in indices)
        yield [examples[_shuffled(len(examples), seed, epoch, turn)[place]] for turn, place in places]


@lru_cache(maxsize=1)
def _shuffled(count: int, seed: int, epoch: int, turn: int) -> IntArray:
    return np.random.default_rng([seed, epoch, turn]).permutation(count)


@contextmanager
def _repeatable(parameters: TrainingSettings) -> Iterator[None]:
    """Make sums on a CPU come out the same each time, which gradients of indexing otherwise do not on two threads."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(before or parameters.device == "cpu")
    try:
        with using_threads(parameters.threads):
            yield
    finally:
        torch.use_deterministic_algorithms(before)
