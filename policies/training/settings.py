"""Settings of a training run: what those of every method have, and those that made shipped weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from ...core.base.errors import UsageError
from ...core.files.yaml_files import read_yaml
from ...core.search.settings import from_plain


class PhaseSettings(Protocol):
    """What every part of a training has."""

    @property
    def epochs(self) -> int:
        """Each ends with a validation and a checkpoint."""
        ...

    @property
    def steps(self) -> int:
        """Of an epoch."""
        ...

    @property
    def learning_rate(self) -> float:
        """Of Adam, in the first epoch."""
        ...

    @property
    def decay(self) -> float:
        """Factor of the learning rate per epoch."""
        ...


class TrainingSettings(Protocol):
    """What the settings of every training have: everything that decides its weights, but given graphs."""

    @property
    def seed(self) -> int:
        """Of every random choice."""
        ...

    @property
    def start(self) -> str:
        """Weights to start from, which decide the network: a file, or shipped ones by name."""
        ...

    @property
    def network(self) -> Any:
        """What a new network is made from."""
        ...

    @property
    def phases(self) -> Sequence[PhaseSettings]:
        """Done one after the other."""
        ...

    @property
    def clip(self) -> float:
        """Largest norm of a gradient."""
        ...

    @property
    def threads(self) -> int:
        """Of the network on a CPU."""
        ...

    @property
    def device(self) -> str:
        """Where the network is, `cpu` or `cuda`."""
        ...

    @property
    def checkpoint_seconds(self) -> float:
        """Time between checkpoints, in which alone a run may differ from the one that it goes on with."""
        ...


Settings = TypeVar("Settings", bound=TrainingSettings)


def check_device(parameters: TrainingSettings) -> None:
    """Raise UsageError if there is no such device."""
    if parameters.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda is not available here; use cpu")


def recipe_of(card: Path, kind: type[Settings]) -> Settings:
    """Return the settings that made shipped weights, but on a CPU."""
    return from_plain(kind, read_yaml(card)["recipe"] | {"device": "cpu"}, str(card))
