"""Recomputation alone: the search of `recompute` with the input order kept, to see what deciding both gives."""

from __future__ import annotations

from dataclasses import dataclass

from ...problem.problem import Problem
from ...search.search import Search
from . import recompute


@dataclass(frozen=True)
class Parameters(recompute.Parameters):
    """As those of `recompute`."""


def solve(search: Search, parameters: Parameters) -> None:
    """Anneal repeated runs between the ops of the input order."""
    search.offer_order(search.problem.graph.input_order)
    recompute.anneal(search, parameters, moves_first=False)


def warm_up(tiny: Problem) -> Problem:
    """Return a problem whose input order does not keep the limit."""
    return recompute.warm_up(tiny)
