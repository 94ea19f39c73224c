"""GAS: REGAL with a recurrent network over the graph as a sequence (REGAL 5.2)."""

from dataclasses import dataclass
from typing import ClassVar

from . import solve as regal


@dataclass(frozen=True)
class Parameters(regal.Parameters):
    """Those of `regal`; the weights are of networks with an LSTM."""

    method: ClassVar[str] = "gas"
    encoder: ClassVar[str] = "lstm"


solve = regal.solve
