"""Keys of one per op on machines, decoded to an order, along which each op is where it ends first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray
from ...model.simulator import simulate
from ...problem.schedule import Schedule
from ...search.plans import Plans
from ...search.search import Search
from .lazy_keys import keys_along
from .random_keys import Chromosomes, Population, ranked


class LazyMachineChromosomes(Chromosomes):
    """A key per op, the larger the earlier among those that are ready, and one that counts for nothing here."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.plans = Plans(search.problem)
        self.genes = self.graph.num_ops + 1

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn and priced before the search may end: one, which takes long beside a look."""
        return 1

    def _price_rows(self, population: Population) -> FloatArray:
        schedules = [self._decoded(row) for row in population]
        fitness = np.full((len(population), 2), np.inf)
        for row, schedule in enumerate(schedules):
            if schedule is not None:
                costs = simulate(self.problem, schedule)
                fitness[row] = self.problem.fitness(costs.peak_per_device.tolist(), costs.runtime)
        self.search.spend(len(population))
        best = int(ranked(fitness)[0])
        if (schedule := schedules[best]) is not None and tuple(fitness[best]) < self.search.best_fitness:
            self.search.offer(schedule)
        return fitness

    def _decoded(self, chromosome: NDArray[np.float32]) -> Schedule | None:
        order = self.plans.topological(np.argsort(-chromosome[:-1], kind="stable"))
        placement = self.plans.place_along(order)
        return None if placement is None else self.plans.schedule(self.plans.plan(order), placement)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that the keys stand for, that of one device if they send what no link carries."""
        return self._decoded(chromosome) or self.plans.schedules_along(self.graph.input_order)[0]

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return keys that fall along the schedule; the decoder need not give it back."""
        return keys_along(schedule.op_order())
