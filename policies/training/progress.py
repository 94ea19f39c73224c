"""What a training run tells while it goes on: after each step, and for each graph of a validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

from .run_folder import Place
from .settings import PhaseSettings

Phase = TypeVar("Phase", bound=PhaseSettings)
OnGraph = Callable[[str, int, int], None]
"""Told in a validation what is done with its graphs, with how many of them, and of how many."""


def ignored(what: str, done: int, total: int) -> None:
    """Take no note of a validation's graphs."""


@dataclasses.dataclass(frozen=True)
class Progress(Generic[Phase]):
    """What a run says after each step."""

    place: Place  # where the run is
    phase: Phase  # settings of the phase that it is in
    share_done: float  # share of the whole run's work that is done, from 0 to 1
    measured: dict[str, float]  # means of the last 20 steps, by name
    validation: dict[str, float]  # result of the last validation, see `validate` of the trainer
    seconds_left: float  # about how long the rest of the run takes, its validations too

    @property
    def batches(self) -> int:
        """Steps of this epoch."""
        return self.phase.steps
