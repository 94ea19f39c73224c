"""Chromosomes of random keys for one problem: encode, decode, and price them in parallel (REGAL A.5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray
from ...kernels.cost_model import new_state, new_steps
from ...kernels.graph_arrays import graph_arrays, most_transfers
from ...kernels.links import links_of
from ...kernels.placements.random_keys import Prices, decode, new_prices, price
from ...problem.schedule import Schedule
from ...search.search import Search

Population = NDArray[np.float32]
_MOST_READS = 10**6
"""Reads of ops that are priced between two looks at the clock, some hundredths of a second."""
_SECONDS_PER_GENE, _SECONDS_PER_READ, _NOTICED = 2e-8, 2.5e-7, 0.2
"""To draw a chromosome, to make a schedule of it and to price that; less than the last is not asked for."""

_MOST_GENES = 2**25
"""Of one schedule: more take more than a second to draw and decode, which nothing interrupts."""


def ranked(fitness: FloatArray) -> NDArray[np.intp]:
    """Return the rows from best to worst, equals in their order."""
    return np.lexsort((fitness[:, 1], fitness[:, 0]))


def has_time_for_one(search: Search) -> bool:
    """Whether there is time to draw the random keys of one schedule, and to make and offer it, and not too many."""
    graph, devices = search.problem.graph, search.problem.devices
    genes = graph.num_ops * (devices + 1) + graph.num_tensors * devices
    if genes > _MOST_GENES:
        return False
    seconds = _SECONDS_PER_GENE * genes + _SECONDS_PER_READ * (graph.num_ops + len(graph.inputs[1]))
    return seconds <= _NOTICED or search.has_time_for(seconds)


class Chromosomes:
    """The random keys of a problem: `ops * devices` affinities, `ops` priorities, `tensors * devices` transfers.

    Use it as a context manager: it owns the worker threads. Pricing splits a population over them; each
    chromosome is priced alone, so the result does not depend on their number.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.problem = search.problem
        graph, devices = self.problem.graph, self.problem.devices
        self.graph, self.devices = graph, devices
        self.genes = graph.num_ops * devices + graph.num_ops + graph.num_tensors * devices
        self.counts_memory = self.problem.task == "memory" or self.problem.memory_limit is not None
        self.arrays, self.links = graph_arrays(graph, devices), links_of(self.problem)
        self._scratch = [self._new_scratch() for _ in range(search.jobs)]
        self._pool = ThreadPoolExecutor(search.jobs) if search.jobs > 1 else None

    def __enter__(self) -> Chromosomes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool:
            self._pool.shutdown()

    def _new_scratch(self) -> tuple[Any, Any]:
        state = new_state(self.arrays, self.devices, self.counts_memory)
        return state, np.empty(self.graph.num_ops + most_transfers(self.arrays, self.devices), np.int64)

    def _price_part(self, worker: int, part: Population, prices: Prices) -> None:
        state, heap = self._scratch[worker]
        fixed = self.problem.fixed_op
        price(self.arrays, state, heap, part, fixed, self.links, self.counts_memory, prices)

    def price(self, population: Population) -> FloatArray:
        """Price each row, count the evaluations, offer the best, and return the fitness of each.

        Fitness has shape `(rows, 2)`: excess bytes over the memory limit, then the task's value; less is
        better, so every feasible schedule ranks before every infeasible one (REGAL 3.2). On large graphs rows that
        there was no time for are infinite.
        """
        fitness = np.full((len(population), 2), np.inf)
        rows = self.rows_per_look
        for start in range(0, len(population), rows):
            if start and self.search.must_stop_at_once():
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
            part_prices = [Prices(prices.peaks[part], prices.runtimes[part]) for part in parts]
            list(self._pool.map(self._price_part, range(self.search.jobs), rows, part_prices))
        peaks, runtimes = prices
        values = peaks if self.problem.task == "memory" else runtimes
        limit = self.problem.memory_limit
        excess = np.zeros(count) if limit is None else np.maximum(peaks - limit, 0)
        fitness = np.column_stack((excess, values)).astype(np.float64)
        self.search.evaluations += count
        best = int(ranked(fitness)[0])
        if self.problem.fitness([int(peaks[best])], float(runtimes[best])) < self.search.best_fitness:
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
        state, heap = self._scratch[0]
        genes, fixed = np.ascontiguousarray(chromosome), self.problem.fixed_op
        steps = new_steps(self.arrays, self.devices)
        count = decode(self.arrays, state, heap, genes, fixed, self.links, self.counts_memory, steps)
        items, targets = steps.items[:count], steps.targets[:count]
        sent = items < 0
        sources = targets.copy()
        sources[sent] = state.placement[self.arrays.producer[~items[sent]]]
        return Schedule.from_steps(items, sources, targets)

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return a chromosome that decodes to this schedule, devices renamed so that the fixed op is on 0.

        Priorities fall along the schedule, so the decoder always finds its next step the most urgent.
        """
        graph, devices = self.graph, self.devices
        rename = np.arange(devices)
        home = int(schedule.placement(graph)[self.problem.fixed_op])
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
