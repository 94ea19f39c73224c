"""Biased random-key genetic algorithm with beta mutants (REGAL 3.2 and A.5; Gonçalves and Resende 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import UsageError
from ...kernels.several_devices.random_keys import cross, look_up
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search
from ..machines.chromosomes import LazyMachineChromosomes, MachineChromosomes
from .beta_quantiles import quantile_tables
from .lazy_keys import LazyChromosomes, start_keys
from .random_keys import Chromosomes, Population, ranked

Decoder = Literal["queue", "lazy"]
DECODERS: dict[Decoder, type[Chromosomes]] = {"queue": Chromosomes, "lazy": LazyChromosomes}
ON_MACHINES: dict[Decoder, type[Chromosomes]] = {"queue": MachineChromosomes, "lazy": LazyMachineChromosomes}


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Symbols of REGAL 3.2 in brackets; the defaults give the paper's improvement from 1K to 10K evaluations."""

    chromosomes: int = parameter(100, "chromosomes per population [pi]", low=2, high=10**6)
    elites: int = parameter(20, "best chromosomes, copied unchanged [pi_e]", low=1)
    mutants: int = parameter(10, "new random chromosomes per generation [pi - pi_e - pi_c]", low=0)
    bias: float = parameter(0.7, "probability to take a gene from the elite parent [rho]", low=0.5, high=1.0)
    populations: int = parameter(1, "populations evolved side by side", low=1)
    exchange: int = parameter(15, "generations between exchanges of the populations' best", low=1)
    alpha: float = parameter(1.0, "first parameter of the mutants' beta distribution", low=1e-3)
    beta: float = parameter(1.0, "second parameter of the mutants' beta distribution", low=1e-3)
    decoder: Decoder = parameter("queue", "queue: the paper's; lazy: one key per op, placed while decoding")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites + self.mutants >= self.chromosomes:
            raise UsageError(
                f"elites and mutants ({self.elites} + {self.mutants}) must be fewer than "
                f"chromosomes ({self.chromosomes})"
            )


@dataclass(frozen=True)
class GeneDistribution:
    """What each gene of a mutant is drawn from, and how it is inherited: the part REGAL predicts.

    Parameters
    ----------
    alpha, beta
        Of the gene's beta distribution; for all genes, or shape `(genes,)`.
    bias
        Probability that a child takes the gene from its elite parent; for all genes, or shape `(genes,)`.
    """

    alpha: float | FloatArray = 1.0
    beta: float | FloatArray = 1.0
    bias: float | FloatArray = 0.7

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        alpha, beta = np.broadcast_arrays(np.float64(self.alpha), np.float64(self.beta))
        return quantile_tables(alpha, beta)

    def sample(self, rng: np.random.Generator, count: int, genes: int) -> Population:
        """Draw mutants, shape `(count, genes)`: uniform draws, passed through the quantiles of each gene's beta."""
        mutants = rng.random((count, genes), dtype=np.float32)
        tables, rows = self._tables
        if len(tables):
            look_up(tables, np.ascontiguousarray(np.broadcast_to(rows, genes)), mutants)
        return mutants


class _Population:
    """Chromosomes with their fitness, best first."""

    def __init__(self, size: int, genes: int) -> None:
        self.keys: Population = np.empty((size, genes), np.float32)
        self.fitness = np.full((size, 2), np.inf)

    def sort(self) -> None:
        order = ranked(self.fitness)
        self.keys, self.fitness = self.keys[order], self.fitness[order]

    def priced(self) -> Population:
        """Return the keys that the budget was enough for."""
        keys: Population = self.keys[np.isfinite(self.fitness).all(1)]
        return keys


def solve(search: Search, parameters: Parameters) -> None:
    """Evolve uniform or beta mutants until the budget ends; lazy keys start from bottom levels."""
    known = start_keys(search.problem) if parameters.decoder == "lazy" else None
    evolve(search, parameters, GeneDistribution(parameters.alpha, parameters.beta, parameters.bias), known)


def evolve(
    search: Search,
    parameters: Parameters,
    distribution: GeneDistribution,
    warm_start: Population | None = None,
) -> NDArray[np.float32]:
    """Run the genetic algorithm and return what was priced of the final populations, each best first.

    The shape is `(rows, genes)`. Elites are not priced again, and the last generation is cut to the budget.

    Parameters
    ----------
    search
        Budget, random numbers, incumbent; `search.initial` joins the first population.
    parameters
        Sizes.
    distribution
        Per gene: the mutants' beta distribution and the crossover bias.
    warm_start
        Chromosomes that join the first population, shape `(rows, genes)`.
    """
    p = parameters
    decoders = DECODERS if search.problem.is_plain else ON_MACHINES
    with decoders[p.decoder](search) as chromosomes:
        bias = np.ascontiguousarray(np.broadcast_to(distribution.bias, chromosomes.genes), dtype=np.float64)
        known = [] if warm_start is None else list(warm_start)
        if search.initial is not None:
            known.append(chromosomes.encode(search.initial))
        populations = [_Population(p.chromosomes, chromosomes.genes) for _ in range(p.populations)]
        for population in populations:
            population.keys[:] = distribution.sample(search.rng, p.chromosomes, chromosomes.genes)
            for row, chromosome in enumerate(known[: p.chromosomes]):
                population.keys[row] = chromosome
            _price_new(search, chromosomes, population, 0)
        generation = 0
        while not search.must_stop():
            for population in populations:
                if not search.must_stop():
                    _next_generation(search, chromosomes, population, p, distribution, bias)
            generation += 1
            if generation % p.exchange == 0 and len(populations) > 1:
                _exchange(populations)
        return np.concatenate([population.priced() for population in populations])


def _next_generation(
    search: Search,
    chromosomes: Chromosomes,
    population: _Population,
    p: Parameters,
    distribution: GeneDistribution,
    bias: FloatArray,
) -> None:
    """Keep the elites, fill the rest with children of an elite and a non-elite, then with mutants."""
    children = p.chromosomes - p.elites - p.mutants
    offspring = np.empty((children + p.mutants, chromosomes.genes), np.float32)
    elites = search.rng.integers(0, p.elites, children)
    others = search.rng.integers(p.elites, p.chromosomes, children)
    search.rng.random(dtype=np.float32, out=offspring[:children])
    cross(population.keys, elites, others, bias, offspring[:children])
    offspring[children:] = distribution.sample(search.rng, p.mutants, chromosomes.genes)
    population.keys[p.elites :] = offspring
    _price_new(search, chromosomes, population, p.elites)


def _price_new(search: Search, chromosomes: Chromosomes, population: _Population, first: int) -> None:
    """Price the rows from `first` as far as the budget goes, and sort; unpriced rows rank last."""
    population.fitness[first:] = np.inf
    last = int(min(len(population.keys), first + search.evaluations_left))
    if last > first:
        population.fitness[first:last] = chromosomes.price(population.keys[first:last])
    population.sort()


def _exchange(populations: list[_Population]) -> None:
    """Replace the worst of each population by the best of each other one."""
    best = [(population.keys[0].copy(), population.fitness[0].copy()) for population in populations]
    for at, population in enumerate(populations):
        guests = [guest for other, guest in enumerate(best) if other != at]
        for row, (keys, fitness) in enumerate(guests[: len(population.keys) - 1], start=1):
            population.keys[-row], population.fitness[-row] = keys, fitness
        population.sort()
