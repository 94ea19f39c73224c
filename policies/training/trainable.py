"""What a command must know to train a method's network: its settings, its trainer, and the words for its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ...core.graph.graph import CostGraph
    from .phases import PhasedTrainer
    from .run_folder import RunKind


class Screen(NamedTuple):
    """Where a run shows what it does before training."""

    # says, if it takes long, that kernels are compiled
    compiling: Callable[[], AbstractContextManager[None]]
    # shows how far something is, of a total; gives what to call with the number `done`
    counting: Callable[[str, int], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Work:
    """A run that is asked for."""

    folder: str  # of the run
    settings: Any  # of the run's kind
    # given graphs to train and to validate on; none for those that the settings draw
    graphs: list[CostGraph]
    validation: list[CostGraph]
    jobs: int  # worker processes
    resume: bool  # whether there is a run in the folder to go on with


class Trainable(ABC):
    """The network of a method, as a command trains it; light until one of its methods is called."""

    help: ClassVar[str]
    drawn: ClassVar[str]  # graphs to train on where none are given
    options: ClassVar[tuple[str, ...]]
    measures: ClassVar[dict[str, str]]  # how what is measured in steps is written, by its name
    columns: ClassVar[dict[str, str]]  # headings of what a validation finds, by its name
    word: ClassVar[str]  # what validations compare; the names of these numbers end in it and `_percent`
    kinds: ClassVar[str]  # of what it is, in a line of the curve
    number: ClassVar[str] = "{:+.2f}"

    def __init__(self, method: str) -> None:
        self.method = method

    @property
    def kind(self) -> RunKind[Any, Any]:
        """What tells its runs from others: `KIND` of the module `training` beside it."""
        kind: RunKind[Any, Any] = import_module(type(self).__module__.replace("trainable", "training")).KIND
        return kind

    @abstractmethod
    def recipe(self, options: dict[str, Any]) -> Any:
        """Return the settings to begin with where no file of them is given."""

    @abstractmethod
    def changes(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the settings that the options stand for, by name as `network.task`; None if not given."""

    @abstractmethod
    def trainer(self, work: Work, screen: Screen, must_stop: Callable[[], bool]) -> PhasedTrainer[Any, Any] | None:
        """Return the trainer of a run, or None if told to stop before it is ready; the folder keeps what is done."""

    @abstractmethod
    def title(self, settings: Any) -> str:
        """Say what the numbers of a report are."""

    @abstractmethod
    def use(self, network: Any) -> str:
        """Return the options of `schedopt solve` that the weights of a network are for, but for `--method`."""

    def measured(self, measured: dict[str, float]) -> list[str]:
        """Write what was measured in the last steps, a text each."""
        return [text.format(measured[name]) for name, text in self.measures.items() if name in measured]

    def validated(self, validation: dict[str, float], kinds: str = "") -> str:
        """Write a validation, as progress has it."""
        names = [name for name in self.columns if name.endswith(f"{self.word}_percent")]
        return f"{self.word}{kinds} {'/'.join(self.number.format(validation[name]) for name in names)}%"

    def line(self, line: dict[str, float]) -> str:
        """Write the validation in a line of the curve."""
        return self.validated(line, f" {self.kinds}")
