"""IDRS, instance-dependent random search: REGAL's distributions without the genetic algorithm (REGAL 5.2)."""

from __future__ import annotations

from ...core.search.search import Search
from ...core.solvers.placements.machine_chromosomes import MachineChromosomes
from ...core.solvers.placements.random_keys import Chromosomes
from .solve import Parameters, propose

__all__ = ["Parameters", "solve"]
ROWS = 100


def solve(search: Search, parameters: Parameters) -> None:
    """Run plain BRKGA for the features, then draw all that the budget is enough for from the network's distributions.

    The paper runs "BRKGA for only one generation"; that generation is what is left of the budget.

    Parameters
    ----------
    search
        The problem, its budget and its random numbers.
    parameters
        Parameters of `regal`, whose weights are taken.
    """
    distribution = propose(search, parameters)
    if distribution is None:
        return
    kind = Chromosomes if search.problem.is_plain else MachineChromosomes
    with kind(search) as chromosomes:
        while not search.must_stop():
            rows = int(min(ROWS, search.evaluations_left))
            chromosomes.price(distribution.sample(search.rng, rows, chromosomes.genes))
