"""Random schedules, of which the best is kept (Topoformer 5 and C: 100 random topological orders)."""

from __future__ import annotations

from ...search.parameters import Parameters
from ...search.search import Search
from .random_keys import Chromosomes, has_time_for_one

_BATCH, _MOST_GENES = 64, 10**7
"""Schedules drawn at once, and the random numbers that they may take together."""


def solve(search: Search, parameters: Parameters) -> None:
    """Offer random schedules until the budget ends.

    One random priority per op, drawn once per order, then Kahn: this, not a uniform choice among the ready
    ops, gives the paper's numbers (`docs/methods/one-device.md`). On several devices placement and transfers are
    random too.
    """
    if not has_time_for_one(search):
        return
    with Chromosomes(search) as chromosomes:
        while not search.exhausted():
            rows = max(1, min(_BATCH, _MOST_GENES // chromosomes.genes))
            count = int(min(rows, search.evaluations_left))
            chromosomes.price(search.rng.random((count, chromosomes.genes), dtype="float32"))
