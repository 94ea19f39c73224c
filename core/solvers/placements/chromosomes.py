"""Chromosomes of random keys for one problem: encode, decode, and price them in parallel (REGAL A.5)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IndexArray
from ...base.speed import seconds_for
from ...graph.graph import CostGraph
from ...kernels.cost_model import machine_arrays, new_state, new_steps
from ...kernels.placements.heads import path_ends
from ...kernels.placements.lazy_keys import new_lazy, price_keys
from ...kernels.placements.plans import Plan
from ...kernels.placements.random_keys import decode, new_queue, price
from ...kernels.placements.sequences import places_of, run_sequence
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search.parameters import Parameters
from ...search.plans import Plans, as_schedule, objective_of, topological
from ...search.search import Search

Population = NDArray[np.float32]
NO_OP = -1
_MOST_READS = 10**6  # reads of ops that are priced between two looks at the clock
_GENE, _READ = 0.25, 3.0  # work, in numbers sorted in the time: to draw a gene, and to price and offer an op's inputs
_MOST_GENES = 2**25  # of one schedule: nothing interrupts its drawing and decoding
_BATCH, _MOST_DRAWN = 64, 10**7  # random schedules drawn at once, and the random numbers that they may take together
MOST_DECODED = 6_250_000  # work of decoding keys of a makespan, which nothing stops; larger graphs are listed
MOST_UNSEEN = 625_000  # work of decoding keys between two looks at the clock, about, unless one row takes more
LOOK, FIND, TRY, OP, STEP = 0.025, 0.05, 0.03, 25.0, 1.25
"""Work, in numbers sorted in the time: to look at an op, at an input on a device, to try an op on a device, to make
and offer an op of a schedule, and to run one decoded on one of the devices."""


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
    """The random keys of a problem: `ops * devices` affinities, `ops` priorities, `tensors * devices` transfers."""

    # It owns the worker threads; each chromosome is priced alone, so the result does not depend on their number.

    _work = 1e-3  # of a row, in numbers sorted in the time; that of the queue is bounded by the reads

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

    def _price_part(self, worker: int, part: Population, prices: FloatArray) -> None:
        """Fill rows of excess and peak in bytes, and makespan in microseconds."""
        price(self.arrays, self.machine, self._scratch[worker], part, self.counts_memory, prices)

    def price(self, population: Population) -> FloatArray:
        """Return the fitness of each row: excess bytes, then the task's value (REGAL 3.2); infinite if out of time."""
        fitness = np.full((len(population), 2), np.inf)
        rows = min(self.batch_rows, self.search.jobs * max(1, int(MOST_UNSEEN / self._work)))  # between two looks
        for start in range(0, len(population), rows):
            if start and self.search.cancelled():
                break
            fitness[start : start + rows] = self._price_rows(population[start : start + rows])
        return fitness

    @property
    def batch_rows(self) -> int:
        """How many rows are drawn and priced before the search may end, however many threads price them."""
        return max(1, _MOST_READS // (self.graph.num_ops + len(self.arrays.inputs)))

    def _price_rows(self, population: Population) -> FloatArray:
        prices, jobs = np.empty((len(population), 3)), self.search.jobs
        if self._pool is None:
            self._price_part(0, population, prices)
        else:
            parts = [slice(*ends) for ends in pairwise(np.linspace(0, len(population), jobs + 1).astype(int))]
            rows, part_prices = ([whole[part] for part in parts] for whole in (population, prices))
            list(self._pool.map(self._price_part, range(jobs), rows, part_prices))
        fitness: FloatArray = prices[:, [0, 1 if self.problem.task == "memory" else 2]]
        fitness[np.isinf(prices[:, 2])] = np.inf
        self.search.spend(len(population))
        best = int(ranked(fitness)[0])
        if tuple(fitness[best]) < self.search.best_fitness:
            self._offer(population[best])
        return fitness

    def _offer(self, chromosome: NDArray[np.float32]) -> None:
        """Offer the schedule of a chromosome; on large graphs, where that takes long, not after Ctrl-C."""
        is_given_up = self.search.interrupt.is_set if self.batch_rows == 1 else lambda: False
        if not is_given_up():
            schedule = self.decode(chromosome)
            if not is_given_up():
                self.search.offer(schedule)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that a chromosome stands for."""
        queue, steps = self._scratch[0], new_steps(self.arrays, self.devices)
        count, _ = decode(self.arrays, self.machine, queue, np.ascontiguousarray(chromosome), False, steps)
        return as_schedule(self.arrays.producer, queue.state.placement, steps, count)

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
        chromosome[graph.num_ops * (devices + 1) + ~item[~ops] * devices + target[~ops]] = falling[~ops]
        return chromosome


def bottom_levels(graph: CostGraph, times: FloatArray | None = None) -> FloatArray:
    """Return each op's longest path to a sink, itself included, by its runtime or `times`, microseconds; `(ops,)`."""
    return path_ends(graph.input_order[::-1], *graph.successors, graph.runtime if times is None else times)


def _waits(graph: CostGraph) -> float:
    """Return for how many steps all ops together are ready and wait, in the input order."""
    place = np.argsort(graph.input_order)
    pointers, predecessors = graph.predecessors
    ready = np.full(graph.num_ops, -1)
    np.maximum.at(ready, np.repeat(np.arange(graph.num_ops), np.diff(pointers)), place[predecessors])
    return float((place - ready - 1).sum())


def decoding_work(problem: Problem) -> float:
    """Return about how much work the decoding of keys of a makespan is."""
    # Every op that waits is looked at in each step, as if in the input order. Devices meet about once per level and
    # device, and then each input of each op that waits is looked for on every device. Where devices differ, no op
    # waits.
    graph, devices = problem.graph, problem.devices
    ops, reads = graph.num_ops, len(graph.inputs[1])
    if not problem.is_symmetric:
        return FIND * reads * devices
    levels = path_ends(graph.input_order, *graph.predecessors, np.ones(ops)).max()
    looks = _waits(graph) * (1 + min(1.0, levels * devices / ops) * devices * (1 + reads / ops))
    return float(LOOK * looks + FIND * reads * devices)


def spreading_work(problem: Problem) -> float:
    """Return the work of decoding keys of a peak: in each step each op that waits is tried on each device."""
    graph, devices = problem.graph, problem.devices
    tried = (_waits(graph) + graph.num_ops) * devices * (1 + len(graph.inputs[1]) / graph.num_ops)
    return TRY * tried + OP * graph.num_ops


def has_time_to_decode(search: Search, work: float) -> bool:
    """Whether keys of a makespan, whose decoding is so much work, can be decoded, and their schedule be offered."""
    return work <= MOST_DECODED and search.has_time_for(seconds_for(work + OP * search.problem.graph.num_ops))


def keys_along(order: IndexArray) -> NDArray[np.float32]:
    """Return keys that fall along an order, shape `(ops + 1,)`."""
    keys = np.ones(len(order) + 1, np.float32)
    keys[order] = 1 - (np.arange(len(order)) + 0.5) / len(order)
    return keys


def start_keys(problem: Problem) -> Population:
    """Return good keys to start from, shape `(4, ops + 1)`: bottom levels, with four values of the last key."""
    level = bottom_levels(problem.graph)
    keys = np.empty((4, len(level) + 1), np.float32)
    keys[:, :-1] = level / max(level.max(), 1e-300)
    keys[:, -1] = (1.0, 0.5, 0.25, 0.0)
    return keys


class LazyChromosomes(Chromosomes):
    """One key per op, and the patience of the decoder, or its noise for the peak: shape `(ops + 1,)`."""

    # Where devices differ or residents have a home that counts for nothing: ops follow their keys, each where it ends
    # first.

    def __init__(self, search: Search) -> None:
        self.aim, self.is_lazy = objective_of(search.problem), search.problem.is_symmetric
        self.places = places_of(search.problem.rules.group, search.problem.rules.allowed)
        super().__init__(search)
        self.genes = self.graph.num_ops + 1
        work = spreading_work if self.aim.is_peak else decoding_work
        self._work = work(self.problem) + STEP * self.graph.num_ops * self.devices

    @property
    def batch_rows(self) -> int:
        """How many rows are drawn and priced before the search may end: one where that takes long beside a look."""
        return super().batch_rows if self.is_lazy else 1

    def _new_scratch(self) -> Any:
        if not self.is_lazy:
            return Plans(self.problem)
        return new_state(self.arrays, self.devices, self.aim.memory), new_lazy(self.arrays, self.machine, self.places)

    def _price_part(self, worker: int, part: Population, prices: FloatArray) -> None:
        if not self.is_lazy:
            for row, keys in enumerate(part):
                plans = self._scratch[worker]
                plan, placement = self._plan(plans, keys)
                prices[row] = (0, 0, np.inf) if placement is None else plans.price(plan, placement)[1][1:]
            return
        state, lazy = self._scratch[worker]
        price_keys(self.arrays, state, lazy, part, self.aim, self.machine, prices)

    def _plan(self, plans: Plans, keys: NDArray[np.float32]) -> tuple[Plan, IndexArray | None]:
        """Return the ops along their keys, and where each ends first; None if something cannot be sent there."""
        order = topological(self.graph, np.argsort(-keys[:-1], kind="stable"))
        return plans.plan(order), plans.place_along(order)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that the keys stand for, that of one device if they send over a missing link."""
        if not self.is_lazy:
            plans: Plans = self._scratch[0]
            plan, placement = self._plan(plans, chromosome)
            schedule = None if placement is None else plans.schedule(plan, placement)
            return schedule or plans.schedules_along(self.graph.input_order)[0]
        self._price_part(0, np.ascontiguousarray(chromosome)[None], np.empty((1, 3)))
        state, lazy = self._scratch[0]
        steps = new_steps(self.arrays, self.devices)
        count, *_ = run_sequence(self.arrays, state, lazy.due, lazy.order, self.aim, self.machine, np.inf, steps)
        return as_schedule(self.arrays.producer, state.placement, steps, count)

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return keys that fall along the schedule; the decoder need not give it back."""
        return keys_along(schedule.op_order())


def solve(search: Search, parameters: Parameters) -> None:
    """Offer random schedules until the budget ends (Topoformer 5: 100 random topological orders).

    One random priority per op, drawn once per order, then Kahn; not a uniform choice among the ready. The paper does
    not say how it draws.
    """
    if not has_time_for_one(search):
        return
    with Chromosomes(search) as chromosomes:
        while not search.exhausted():
            rows = max(1, min(_BATCH, _MOST_DRAWN // chromosomes.genes))
            count = int(min(rows, search.evaluations_left))
            chromosomes.price(search.rng.random((count, chromosomes.genes), dtype="float32"))
