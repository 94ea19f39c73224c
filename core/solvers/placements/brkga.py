"""Biased random-key genetic algorithm with beta mutants (REGAL 3.2 and A.5; Gonçalves and Resende 2011)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from ...base.arrays import FloatArray
from ...base.errors import UsageError
from ...kernels.placements.random_keys import cross, look_up
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search
from ...search.settings import Tuned, read_tuned, shipped
from .chromosomes import (
    MOST_DECODED,
    Chromosomes,
    LazyChromosomes,
    Population,
    decoding_work,
    has_time_for_one,
    ranked,
    start_keys,
)

Decoder = Literal["queue", "lazy"]
DECODERS: dict[Decoder, type[Chromosomes]] = {"queue": Chromosomes, "lazy": LazyChromosomes}
MOST_KEYS, LEAST_CHROMOSOMES = 2**27, 3  # genes of all populations: half a gibibyte, and as much for offspring
MOST_DRAWN = 2**24  # genes that are drawn between two looks at the clock


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Symbols of REGAL 3.2 in brackets; the defaults give the paper's improvement from 1K to 10K evaluations."""

    chromosomes: int = parameter(100, "chromosomes per population [pi]", low=2, high=10**6)
    elites: int = parameter(20, "best chromosomes, copied unchanged [pi_e]", low=1)
    mutants: int = parameter(10, "new random chromosomes per generation [pi - pi_e - pi_c]", low=0)
    bias: float = parameter(0.7, "probability to take a gene from the elite parent [rho]", low=0.5, high=1.0)
    populations: int = parameter(1, "populations evolved side by side", low=1)
    exchange: int = parameter(15, "generations between exchanges of the populations' best", low=1)
    alpha: float = parameter(1.0, "first parameter of the beta distribution of the mutants' genes of ops", low=1e-3)
    beta: float = parameter(1.0, "second parameter of the beta distribution of the mutants' genes of ops", low=1e-3)
    decoder: Decoder = parameter("queue", "queue: the paper's; lazy: one key per op, placed while decoding")
    settings: str = parameter(
        "", "a file that schedopt train brkga wrote, for all others (default of brkga-tuned: the one that is shipped)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites + self.mutants >= self.chromosomes:
            raise UsageError(
                f"elites and mutants ({self.elites} + {self.mutants}) must be fewer than "
                f"chromosomes ({self.chromosomes})"
            )
        _ = self.tuned  # a file that cannot be used is refused before any run

    @cached_property
    def tuned(self) -> Tuned[Parameters] | None:
        """The file's parameters by task, if there is one (REGAL A.10)."""
        if self.settings == "shipped":
            return shipped("brkga", Parameters)
        return read_tuned(self.settings, "brkga", Parameters) if self.settings else None

    def identity(self) -> dict[str, Any]:
        """Return the parameters, or those of the file, since a file may change."""
        if self.tuned is None:
            return asdict(self)
        return {task: asdict(parameters) for task, parameters in self.tuned.tasks.items()}


@dataclass(frozen=True)
class GeneDistribution:
    """Per gene or for all, its mutants' beta distribution and the elite's part, `(genes,)`: REGAL's prediction."""

    alpha: float | FloatArray = 1.0
    beta: float | FloatArray = 1.0
    bias: float | FloatArray = 0.7
    first: int | None = None  # so many genes alone are of that beta distribution, the others uniform; None: all

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """One table per distinct distribution but the uniform, and for each gene which is its own, -1 for none."""
        alpha, beta = np.broadcast_arrays(np.float64(self.alpha), np.float64(self.beta))
        pairs, rows = np.unique(np.stack((alpha.ravel(), beta.ravel())), axis=1, return_inverse=True)
        uniform = (pairs == 1.0).all(0)
        places = np.where(uniform, -1, np.cumsum(~uniform) - 1).astype(np.int32)
        tables = [quantiles(*pair) for pair in pairs[:, ~uniform].T.tolist()]
        return np.array(tables, np.float32).reshape(len(tables), CELLS + 1), places[rows].reshape(alpha.shape)

    def sample(self, rng: np.random.Generator, count: int, genes: int) -> Population:
        """Draw mutants, shape `(count, genes)`."""
        mutants = np.empty((count, genes), np.float32)
        self.fill(rng, mutants)
        return mutants

    def fill(self, rng: np.random.Generator, mutants: Population) -> None:
        """Draw mutants into their rows: uniform draws, passed through the quantiles of each gene's beta."""
        rng.random(dtype=np.float32, out=mutants)
        tables, rows = self._tables
        if len(tables):
            places = np.full(mutants.shape[1], -1, np.int32)
            places[: self.first] = rows
            look_up(tables, places, mutants)


class Evolved:
    """Chromosomes with their fitness, best first."""

    def __init__(self, size: int, genes: int) -> None:
        self.keys: Population = np.empty((size, genes), np.float32)
        self.fitness = np.full((size, 2), np.inf)

    def sort(self) -> None:
        """Put the best first."""
        order = ranked(self.fitness)
        self.keys, self.fitness = self.keys[order], self.fitness[order]

    def priced(self) -> Population:
        """Return the keys that the budget was enough for, best first."""
        rows = ranked(self.fitness)
        keys: Population = self.keys[rows[np.isfinite(self.fitness[rows]).all(1)]]
        return keys


def solve(search: Search, parameters: Parameters) -> None:
    """Evolve mutants until the budget ends; lazy keys start from bottom levels, if decoding is not too long."""
    problem = search.problem
    if parameters.tuned is not None:
        parameters = parameters.tuned.parameters(problem.task)
    known = start_keys(problem) if parameters.decoder == "lazy" else None
    if known is not None and decoding_work(problem) > MOST_DECODED:
        search.note(f"{problem.graph.name}: decoder=lazy would take too long; decoder=queue was used")
        parameters, known = replace(parameters, decoder="queue"), None
    if search.exhausted() or (known is None and not has_time_for_one(search)):
        return
    # Scalars are for the genes of ops (A.6): for all, they would keep the order of uniform keys.
    of_ops = problem.graph.num_ops * (1 if parameters.decoder == "lazy" else problem.devices + 1)
    evolve(search, parameters, GeneDistribution(parameters.alpha, parameters.beta, parameters.bias, of_ops), known)


def evolve(
    search: Search, parameters: Parameters, distribution: GeneDistribution, warm_start: Population | None = None
) -> list[Evolved]:
    """Return the final populations; elites are not priced again, and the last generation is cut to the budget."""
    with DECODERS[parameters.decoder](search) as chromosomes:
        p = _fitting(search, parameters, chromosomes.genes)
        known = [] if warm_start is None else list(warm_start)
        if search.initial is not None:
            known.append(chromosomes.encode(search.initial))
        breeding = _Breeding(chromosomes, p, distribution)
        populations = [Evolved(p.chromosomes, chromosomes.genes) for _ in range(p.populations)]
        for population in populations:
            breeding.begin(population, known)
        generation = 0
        while not search.exhausted():
            for population in populations:
                if not search.exhausted():
                    breeding.next_generation(population)
            generation += 1
            if generation % p.exchange == 0 and len(populations) > 1:
                _exchange(populations)
        return populations


class _Breeding:
    """How generations follow one another, within the budget."""

    def __init__(self, chromosomes: Chromosomes, p: Parameters, distribution: GeneDistribution) -> None:
        self.chromosomes, self.search, self.p, self.distribution = chromosomes, chromosomes.search, p, distribution
        self.bias = np.ascontiguousarray(distribution.bias, np.float64)

    def begin(self, population: Evolved, known: Sequence[NDArray[np.float32]]) -> None:
        """Draw and price the first generation, the chromosomes that are known among it."""

        def draw(first: int, last: int) -> None:
            self.distribution.fill(self.search.rng, population.keys[first:last])
            for row, chromosome in enumerate(known[first:last], start=first):
                population.keys[row] = chromosome

        if self._draw_and_price(population.keys, population.fitness, draw) == len(population.keys):
            population.sort()

    def next_generation(self, population: Evolved) -> None:
        """Keep the elites, fill the rest with children of an elite and a non-elite, then with mutants."""
        p, rng = self.p, self.search.rng
        children = p.chromosomes - p.elites - p.mutants
        offspring = np.empty((children + p.mutants, self.chromosomes.genes), np.float32)
        elites = rng.integers(0, p.elites, children)
        others = rng.integers(p.elites, p.chromosomes, children)

        def draw(first: int, last: int) -> None:
            if first < children:
                rows = slice(first, min(last, children))
                rng.random(dtype=np.float32, out=offspring[rows])
                cross(population.keys, elites[rows], others[rows], self.bias, offspring[rows])
            if last > children:
                self.distribution.fill(rng, offspring[max(first, children) : last])

        drawn = self._draw_and_price(offspring, population.fitness[p.elites :], draw)
        population.keys[p.elites : p.elites + drawn] = offspring[:drawn]
        if drawn == len(offspring):
            population.sort()

    def _draw_and_price(self, keys: Population, fitness: FloatArray, draw: Callable[[int, int], None]) -> int:
        """Draw rows of keys, some at a time, and price them as far as the budget goes; unpriced rows rank last."""
        fitness[:] = np.inf
        priced = int(min(len(keys), self.search.evaluations_left))
        rows = max(1, min(self.chromosomes.batch_rows, MOST_DRAWN // self.chromosomes.genes))
        for first in range(0, len(keys), rows):
            if 0 < first < priced and self.search.exhausted():
                return first
            draw(first, min(first + rows, len(keys)))
            last = min(first + rows, priced)
            if last > first:
                fitness[first:last] = self.chromosomes.price(keys[first:last])
        return len(keys)


def _fitting(search: Search, p: Parameters, genes: int) -> Parameters:
    """Return parameters with as many chromosomes as have room, in the same proportions; fewer are noted."""
    most = max(LEAST_CHROMOSOMES, MOST_KEYS // (genes * p.populations))
    if p.chromosomes <= most:
        return p
    search.note(
        f"{search.problem.graph.name}: brkga goes on with {most} chromosomes, not {p.chromosomes}, because each has "
        f"{genes:,} genes"
    )
    elites = max(1, p.elites * most // p.chromosomes)
    mutants = min(p.mutants * most // p.chromosomes, most - elites - 1)
    return replace(p, chromosomes=most, elites=elites, mutants=mutants)


def _exchange(populations: list[Evolved]) -> None:
    """Replace the worst of each population by the best of each other one."""
    best = [(population.keys[0].copy(), population.fitness[0].copy()) for population in populations]
    for at, population in enumerate(populations):
        guests = [guest for other, guest in enumerate(best) if other != at]
        for row, (keys, fitness) in enumerate(guests[: len(population.keys) - 1], start=1):
            population.keys[-row], population.fitness[-row] = keys, fitness
        population.sort()


CELLS = 512  # a power of two, so that a draw below 1 never reaches past the last cell


@lru_cache(maxsize=4096)
def quantiles(alpha: float, beta: float) -> NDArray[np.float32]:
    """Return the quantiles of a beta distribution at `0, 1 / CELLS, ..., 1`, between which draws are interpolated."""
    table: NDArray[np.float32] = betaincinv(alpha, beta, np.linspace(0, 1, CELLS + 1)).astype(np.float32)
    table.setflags(write=False)
    return table
