"""From the shared options of `solve`, `compare` and `train` to graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.problem_options import problem_settings as problem_settings

if TYPE_CHECKING:
    from ..core.graph import CostGraph
    from .console import Talk


def read_graphs(arguments: list[str], talk: Talk) -> list[CostGraph]:
    """Read every graph once; see `graphs_of`."""
    from ..core.front_door.graphs import graphs_of

    return graphs_of(arguments, talk.note)
