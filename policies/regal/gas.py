"""GAS: REGAL with a recurrent network over the graph as a sequence (REGAL 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core.search.search import Search
from . import solve as regal


@dataclass(frozen=True)
class Parameters(regal.Parameters):
    """Those of `regal`; the weights are of networks with an LSTM."""

    method: ClassVar[str] = "gas"
    encoder: ClassVar[str] = "lstm"


def solve(search: Search, parameters: Parameters) -> None:
    """Run `regal` with this network."""
    regal.solve(search, parameters)
