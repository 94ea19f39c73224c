"""Settings of a training run: what those of every method have, and those that made shipped weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from ...core.base.errors import UsageError
from ...core.files.yaml_files import read_yaml
from ...core.search.parameters import Parameters, parameter
from ...core.search.settings import from_plain


@dataclass(frozen=True)
class TrainingSettings(Parameters):
    """What the settings of every training have: everything that decides its weights, but given graphs."""

    seed: int = parameter(0, "of every random choice", low=0)
    start: str = parameter("", "weights to start from, which decide the network: a file, or shipped ones by name")
    network: Any = None  # what a new network is made from
    phases: tuple[Any, ...] = ()  # done one after the other
    clip: float = parameter(1.0, "largest norm of a gradient", low=1e-9)
    threads: int = parameter(1, "of the network on a CPU; with several, the last bits depend on how busy it is", low=1)
    device: Literal["cpu", "cuda"] = parameter("cpu", "where the network is: cpu or cuda")
    checkpoint_seconds: float = parameter(60.0, "time between checkpoints", low=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.phases:
            raise UsageError("phases must not be empty")


Settings = TypeVar("Settings", bound=TrainingSettings)


def check_device(parameters: TrainingSettings) -> None:
    """Raise UsageError if there is no such device."""
    if parameters.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda is not available here; use cpu")


def recipe_of(card: Path, kind: type[Settings]) -> Settings:
    """Return the settings that made shipped weights, but on a CPU."""
    return from_plain(kind, read_yaml(card)["recipe"] | {"device": "cpu"}, str(card))
