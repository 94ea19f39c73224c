"""Chromosomes of random keys for one problem: encode, decode, and price them in parallel (REGAL A.5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray
from ...base.speed import seconds_for
from ...kernels.cost_model import machine_arrays, new_steps
from ...kernels.placements.random_keys import Prices, decode, new_prices, new_queue, price
from ...problem.schedule import Schedule
from ...search.parameters import Parameters
from ...search.plans import as_schedule
from ...search.search import Search

Population = NDArray[np.float32]
NO_OP = -1
_MOST_READS = 10**6
"""Reads of ops that are priced between two looks at the clock."""
_GENE, _READ = 0.25, 3.0
"""Work, in numbers sorted in the time: to draw a gene, and to price and offer what an op reads."""
_MOST_GENES = 2**25
"""Of one schedule: nothing interrupts its drawing and decoding."""


def ranked(fitness: FloatArray) -> NDArray[np.intp]:
    """Return the rows from best to worst, equals in their order."""
    return np.lexsort((fitness[:, 1], fitness[:, 0]))


def has_time_for_one(search: Search) -> bool:
    """Whether there is time to draw the random keys of one schedule, and to make and offer it, and not too many."""
    graph, devices = search.problem.graph, search.problem.devices
    genes = graph.num_ops * (devices + 1) + graph.num_tensors * devices
    if genes > _MOST_GENES:
        return False
    return search.has_time_for(seconds_for(_GENE * genes + _READ * (graph.num_ops + len(graph.inputs[1]))))


class Chromosomes:
    """The random keys of a problem: `ops * devices` affinities, `ops` priorities, `tensors * devices` transfers.

    It owns the worker threads; each chromosome is priced alone, so the result does not depend on their number.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.problem = search.problem
        graph, devices = self.problem.graph, self.problem.devices
        self.graph, self.devices = graph, devices
        self.genes = graph.num_ops * devices + graph.num_ops + graph.num_tensors * devices
        self.counts_memory = self.problem.task == "memory" or self.problem.is_limited
        self.arrays, self.machine = machine_arrays(self.problem)
        self.fixed_op = self.problem.fixed_op if self.problem.is_symmetric else NO_OP
        self._scratch = [self._new_scratch() for _ in range(search.jobs)]
        self._pool = ThreadPoolExecutor(search.jobs) if search.jobs > 1 else None

    def __enter__(self) -> Chromosomes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown()

    def _new_scratch(self) -> Any:
        rules = self.problem.rules
        return new_queue(self.arrays, self.machine, rules.allowed, rules.group, self.fixed_op, self.counts_memory)

    def _price_part(self, worker: int, part: Population, prices: Prices) -> None:
        price(self.arrays, self.machine, self._scratch[worker], part, self.counts_memory, prices)

    def price(self, population: Population) -> FloatArray:
        """Price each row, count the evaluations, offer the best, and return the fitness of each, shape `(rows, 2)`.

        Fitness is excess bytes over the memory limit, then the task's value (REGAL 3.2); infinite where something is
        sent without a link or, on large graphs, where there was no time.
        """
        fitness = np.full((len(population), 2), np.inf)
        rows = self.rows_per_look
        for start in range(0, len(population), rows):
            if start and self.search.cancelled():
                break
            fitness[start : start + rows] = self._price_rows(population[start : start + rows])
        return fitness

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn and priced before the search may end, however many threads price them."""
        return max(1, _MOST_READS // (self.graph.num_ops + len(self.arrays.inputs)))

    @property
    def rows_per_look(self) -> int:
        """How many of them are priced between two looks at the clock."""
        return self.rows_at_once

    def _price_rows(self, population: Population) -> FloatArray:
        count = len(population)
        prices = new_prices(count)
        if self._pool is None:
            self._price_part(0, population, prices)
        else:
            cuts = np.linspace(0, count, self.search.jobs + 1).astype(int)
            parts = [slice(a, b) for a, b in pairwise(cuts)]
            rows = [population[part] for part in parts]
            part_prices = [Prices(prices.excesses[part], prices.peaks[part], prices.runtimes[part]) for part in parts]
            list(self._pool.map(self._price_part, range(self.search.jobs), rows, part_prices))
        values = prices.peaks if self.problem.task == "memory" else prices.runtimes
        fitness = np.column_stack((prices.excesses, values)).astype(np.float64)
        fitness[np.isinf(prices.runtimes)] = np.inf
        self.search.spend(count)
        best = int(ranked(fitness)[0])
        if tuple(fitness[best]) < self.search.best_fitness:
            self._offer(population[best])
        return fitness

    def _offer(self, chromosome: NDArray[np.float32]) -> None:
        """Offer the schedule of a chromosome; on large graphs, where that takes long, not after Ctrl-C."""
        is_given_up = self.search.interrupt.is_set if self.rows_at_once == 1 else lambda: False
        if not is_given_up():
            schedule = self.decode(chromosome)
            if not is_given_up():
                self.search.offer(schedule)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that a chromosome stands for."""
        queue, steps = self._scratch[0], new_steps(self.arrays, self.devices)
        count, _ = decode(self.arrays, self.machine, queue, np.ascontiguousarray(chromosome), False, steps)
        return as_schedule(self.arrays.producer, queue.state.placement, steps.items[:count], steps.targets[:count])

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return a chromosome that decodes to this schedule, devices renamed so that the fixed op, if any, is on 0."""
        graph, devices = self.graph, self.devices
        rename = np.arange(devices)
        if self.fixed_op != NO_OP:
            home = int(schedule.placement(graph)[self.fixed_op])
            rename[[0, home]] = rename[[home, 0]]
        chromosome = np.zeros(self.genes, np.float32)
        falling = 1 - (np.arange(len(schedule)) + 0.5) / len(schedule)
        ops = schedule.items >= 0
        item, target = schedule.items, rename[schedule.targets]
        chromosome[item[ops] * devices + target[ops]] = 1
        chromosome[graph.num_ops * devices + item[ops]] = falling[ops]
        transfers = graph.num_ops * (devices + 1) + ~item[~ops] * devices + target[~ops]
        chromosome[transfers] = falling[~ops]
        return chromosome


_BATCH, _MOST_GENES = 64, 10**7
"""Schedules drawn at once, and the random numbers that they may take together."""


def solve(search: Search, parameters: Parameters) -> None:
    """Offer random schedules until the budget ends (Topoformer 5 and C: 100 random topological orders).

    One random priority per op, drawn once per order, then Kahn: this, not a uniform choice among the ready ops, gives
    the paper's numbers. On several devices placement and transfers are random too.
    """
    if not has_time_for_one(search):
        return
    with Chromosomes(search) as chromosomes:
        while not search.exhausted():
            rows = max(1, min(_BATCH, _MOST_GENES // chromosomes.genes))
            count = int(min(rows, search.evaluations_left))
            chromosomes.price(search.rng.random((count, chromosomes.genes), dtype="float32"))
