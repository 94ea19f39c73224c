"""BRKGA with the parameters that a grid search chose for the task ("Tuned BRKGA", REGAL A.10)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search
from ...search.tuned import Tuned, read_tuned, shipped
from . import brkga


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Where the settings are from; a file that cannot be used is refused before any run."""

    settings: str = parameter("", "a file that schedopt train brkga wrote (default: the one that is shipped)")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.tuned

    @cached_property
    def tuned(self) -> Tuned[brkga.Parameters]:
        """The settings, by task."""
        if self.settings:
            return read_tuned(self.settings, "brkga", brkga.Parameters)
        return shipped("brkga", brkga.Parameters)

    def identity(self) -> dict[str, Any]:
        """Return the settings themselves, since a file may change."""
        return {task: asdict(parameters) for task, parameters in self.tuned.tasks.items()}


def solve(search: Search, parameters: Parameters) -> None:
    """Run `brkga` with the settings for the problem's task, on any number of devices."""
    brkga.solve(search, parameters.tuned.parameters(search.problem.task))
