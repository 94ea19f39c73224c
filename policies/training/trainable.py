"""What a command must know to train a method's network: its settings, its trainer, and the words for its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from ...core.graph.graph import CostGraph
    from .phases import PhasedTrainer
    from .run_folder import RunKind


class Screen(Protocol):
    """Where a run shows what it does before training."""

    def compiling(self) -> AbstractContextManager[None]:
        """Say, if it takes long, that kernels are compiled."""
        ...

    def counting(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show how far something is; gives what to call with the number done."""
        ...


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
    drawn: ClassVar[str]
    options: ClassVar[tuple[str, ...]]
    columns: ClassVar[dict[str, str]]

    def __init__(self, method: str) -> None:
        self.method = method

    @property
    @abstractmethod
    def kind(self) -> RunKind[Any, Any]:
        """What tells its runs from others."""

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
    def measured(self, measured: dict[str, float]) -> list[str]:
        """Write what was measured in the last steps, a text each."""

    @abstractmethod
    def validated(self, validation: dict[str, float]) -> str:
        """Write a validation, as progress has it."""

    @abstractmethod
    def line(self, line: dict[str, float]) -> str:
        """Write the validation in a line of the curve."""

    @abstractmethod
    def score(self, trainer: Any, line: dict[str, float]) -> float:
        """Return the score of a line of the curve; the smallest is the best."""

    @abstractmethod
    def title(self, settings: Any) -> str:
        """Say what the numbers of a report are."""

    @abstractmethod
    def use(self, trainer: Any) -> str:
        """Return the options of `schedopt solve` that the weights are for, but for `--method`."""
