"""Chromosomes of random keys for one problem: encode, decode, and price them in parallel (REGAL A.5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...graph import FloatArray
from ...kernels.cost_model import new_state
from ...kernels.graph_arrays import graph_arrays
from ...kernels.several_devices.random_keys import decode, price
from ...schedule import Schedule
from ...search.search import Search

Population = NDArray[np.float32]


def ranked(fitness: FloatArray) -> NDArray[np.intp]:
    """Return the rows from best to worst, equals in their order."""
    return np.lexsort((fitness[:, 1], fitness[:, 0]))


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
        if graph.num_ops + graph.num_tensors * devices >= 2**31:
            raise UsageError(f"{graph.name}: too many tensors times devices ({graph.num_tensors} x {devices})")
        self.counts_memory = self.problem.task == "memory" or self.problem.memory_limit is not None
        self.arrays = graph_arrays(graph)
        readers = np.diff(graph.consumers[0])
        self.most_steps = graph.num_ops + int(np.minimum(readers, devices - 1).sum())
        self._nothing = np.empty(0, np.int32)
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
        return state, np.empty(self.most_steps, np.int64)

    def _price_part(self, worker: int, part: Population, peaks: Any, runtimes: Any) -> None:
        state, heap = self._scratch[worker]
        price(
            self.arrays,
            state,
            heap,
            part,
            self._nothing,
            self.devices,
            self.problem.fixed_op,
            self.counts_memory,
            float(self.problem.latency),
            self.problem.microseconds_per_byte,
            peaks,
            runtimes,
        )

    def price(self, population: Population) -> FloatArray:
        """Price each row, count the evaluations, offer the best, and return the fitness of each.

        Fitness has shape `(rows, 2)`: excess bytes over the memory limit, then the task's value; less is
        better, so every feasible schedule ranks before every infeasible one (REGAL 3.2).
        """
        count = len(population)
        peaks = np.empty(count, np.int64)
        runtimes = np.empty(count)
        if self._pool is None:
            self._price_part(0, population, peaks, runtimes)
        else:
            cuts = np.linspace(0, count, self.search.jobs + 1).astype(int)
            parts = [slice(a, b) for a, b in pairwise(cuts)]
            list(
                self._pool.map(
                    lambda w: self._price_part(w, population[parts[w]], peaks[parts[w]], runtimes[parts[w]]),
                    range(self.search.jobs),
                )
            )
        values = peaks if self.problem.task == "memory" else runtimes
        limit = self.problem.memory_limit
        excess = np.zeros(count) if limit is None else np.maximum(peaks - limit, 0)
        fitness = np.column_stack((excess, values)).astype(np.float64)
        self.search.evaluations += count
        best = int(ranked(fitness)[0])
        if self.problem.fitness(int(peaks[best]), float(runtimes[best])) < self.search.best_fitness:
            self.search.offer(self.decode(population[best]))
        return fitness

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that a chromosome stands for."""
        state, heap = self._scratch[0]
        items = np.empty(self.most_steps, np.int32)
        targets = np.empty(self.most_steps, np.int32)
        steps = decode(
            self.arrays,
            state,
            heap,
            np.ascontiguousarray(chromosome),
            self.devices,
            self.problem.fixed_op,
            self.counts_memory,
            float(self.problem.latency),
            self.problem.microseconds_per_byte,
            items,
            targets,
        )
        items, targets = items[:steps], targets[:steps]
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
