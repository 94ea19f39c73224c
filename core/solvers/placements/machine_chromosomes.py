"""Chromosomes of random keys on machines: the queue's steps and the lazy decoder's orders, by the machine's rules.

Queue: affinities choose among the devices where an op, and all that is on one device with it, may be; priorities order
the steps as in REGAL. Lazy: keys order the ops, and each is where it ends first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray
from ...base.errors import ScheduleError
from ...kernels.cost_model import new_state, new_steps
from ...kernels.links import Links
from ...kernels.placements.random_keys import decode
from ...model.simulator import Simulation, simulate
from ...problem.schedule import Schedule
from ...search.plans import Plans
from ...search.search import Search
from .random_keys import Chromosomes, Population, ranked

NO_DEVICE_FIXED = -1


class MachineChromosomes(Chromosomes):
    """The queue decoder's genes, `ops * devices` affinities, `ops` priorities and `tensors * devices` transfers."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.plans = Plans(search.problem)

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn and priced before the search may end: one, which takes long beside a look."""
        return 1

    def price(self, population: Population) -> FloatArray:
        """Price each row, count the evaluations, offer the best; excess and value of each, shape `(rows, 2)`."""
        schedules = [self._decoded(row) for row in population]
        priced = [(schedule, self._costs(schedule)) for schedule in schedules]
        self.search.evaluations += len(population)
        fitness = np.array(
            [
                (np.inf, np.inf)
                if costs is None
                else self.problem.fitness(costs.peak_per_device.tolist(), costs.runtime)
                for _, costs in priced
            ],
            np.float64,
        )
        best = int(ranked(fitness)[0])
        schedule, costs = priced[best]
        if schedule is not None and costs is not None and tuple(fitness[best]) < self.search.best_fitness:
            self.search.offer(schedule)
        return fitness

    def _costs(self, schedule: Schedule | None) -> Simulation | None:
        """Return what a schedule costs; None where it sends something that no link carries."""
        try:
            return None if schedule is None else simulate(self.problem, schedule)
        except ScheduleError:
            return None

    def _decoded(self, chromosome: NDArray[np.float32]) -> Schedule | None:
        rules, devices = self.problem.rules, self.devices
        state = new_state(self.arrays, devices, False)
        heap = self._scratch[0][1]
        genes = np.array(chromosome, np.float32)
        affinity = genes[: self.graph.num_ops * devices].reshape(-1, devices)
        affinity[:] = np.where(rules.allowed, affinity[rules.group], -1.0)
        steps = new_steps(self.arrays, devices)
        count = decode(self.arrays, state, heap, genes, NO_DEVICE_FIXED, Links(devices, 0.0, 0.0), False, steps)
        items, targets = steps.items[:count], steps.targets[:count]
        sent = items < 0
        needless = np.zeros(count, bool)
        needless[sent] = self.plans.machine.everywhere[~items[sent]]
        items, targets = items[~needless], targets[~needless]
        sources, sent = targets.copy(), items < 0
        sources[sent] = state.placement[self.arrays.producer[~items[sent]]]
        return Schedule.from_steps(items, sources, targets)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that a chromosome stands for."""
        schedule = self._decoded(chromosome)
        assert schedule is not None
        return schedule

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return a chromosome that decodes to this schedule."""
        devices, ops = self.devices, schedule.items >= 0
        chromosome = np.zeros(self.genes, np.float32)
        falling = 1 - (np.arange(len(schedule)) + 0.5) / len(schedule)
        item, target = schedule.items, schedule.targets
        chromosome[item[ops] * devices + target[ops]] = 1
        chromosome[self.graph.num_ops * devices + item[ops]] = falling[ops]
        transfers = self.graph.num_ops * (devices + 1) + ~item[~ops] * devices + target[~ops]
        chromosome[transfers] = falling[~ops]
        return chromosome


class LazyMachineChromosomes(MachineChromosomes):
    """A key per op, the larger the earlier among those that are ready, and one that counts for nothing here."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.genes = self.graph.num_ops + 1

    def _decoded(self, chromosome: NDArray[np.float32]) -> Schedule | None:
        order = self.plans.topological(np.argsort(-chromosome[:-1], kind="stable"))
        placement = self.plans.place_along(order)
        return None if placement is None else self.plans.schedule(self.plans.plan(order), placement)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that the keys stand for, that of one device if they send what no link carries."""
        return self._decoded(chromosome) or self.plans.schedules_along(self.graph.input_order)[0]

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return keys that fall along the schedule; the decoder need not give it back."""
        keys: NDArray[np.float32] = np.ones(self.genes, np.float32)
        order = schedule.op_order()
        keys[order] = 1 - (np.arange(len(order)) + 0.5) / len(order)
        return keys
