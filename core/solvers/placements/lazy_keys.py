"""Chromosomes of one key per op, decoded lazily (`docs/methods/several-devices.md`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import FloatArray, IndexArray
from ...base.speed import seconds_for
from ...graph.graph import CostGraph
from ...kernels.cost_model import new_state, new_steps
from ...kernels.placements.group_moves import places_of
from ...kernels.placements.heads import path_ends
from ...kernels.placements.lazy_keys import new_lazy, price_keys
from ...kernels.placements.plans import Plan
from ...kernels.placements.random_keys import Prices, new_prices
from ...kernels.placements.sequences import run_sequence
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search.plans import Plans, as_schedule, objective_of
from ...search.search import Search
from .random_keys import Chromosomes, Population

MOST_DECODED = 6_250_000
"""Work of decoding keys of a makespan, which nothing stops; `list_schedule` is for larger graphs."""
MOST_UNSEEN = 625_000
"""Work of decoding keys between two looks at the clock, about, unless one row takes more."""
LOOK, READ, TRY, OP, STEP = 0.025, 0.05, 0.03, 25.0, 1.25
"""Work, in numbers sorted in the time: to look at an op, at an input on a device, to try an op on a device, to make
and offer an op of a schedule, and to run one decoded on one of the devices."""


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
    """Return about how much work the decoding of keys of a makespan is.

    Every op that waits is looked at in each step, as if in the input order. Devices meet about once per level and
    device, and then each input of each op that waits is looked for on every device. Where devices differ, no op waits.
    """
    graph, devices = problem.graph, problem.devices
    ops, reads = graph.num_ops, len(graph.inputs[1])
    if not problem.is_symmetric:
        return READ * reads * devices
    levels = path_ends(graph.input_order, *graph.predecessors, np.ones(ops)).max()
    share_of_meetings = min(1.0, levels * devices / ops)
    looks = _waits(graph) * (1 + share_of_meetings * devices * (1 + reads / ops))
    return float(LOOK * looks + READ * reads * devices)


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
    """Keys of shape `(ops + 1,)`: one per op, and the patience of the decoder, or its noise for the peak.

    Where devices differ or residents have a home it counts for nothing: ops follow their keys, each where it ends
    first.
    """

    def __init__(self, search: Search) -> None:
        self.aim, self.is_lazy = objective_of(search.problem), search.problem.is_symmetric
        self.places = places_of(search.problem.rules.group, search.problem.rules.allowed)
        super().__init__(search)
        self.genes = self.graph.num_ops + 1
        work = spreading_work if self.aim.is_peak else decoding_work
        self._work = work(self.problem) + STEP * self.graph.num_ops * self.devices

    @property
    def rows_at_once(self) -> int:
        """How many rows are drawn and priced before the search may end: one where that takes long beside a look."""
        return super().rows_at_once if self.is_lazy else 1

    @property
    def rows_per_look(self) -> int:
        """How many rows are priced between two looks at the clock, on all threads."""
        return min(self.rows_at_once, self.search.jobs * max(1, int(MOST_UNSEEN / self._work)))

    def _new_scratch(self) -> Any:
        if not self.is_lazy:
            return Plans(self.problem)
        return new_state(self.arrays, self.devices, self.aim.memory), new_lazy(self.arrays, self.machine, self.places)

    def _price_part(self, worker: int, part: Population, prices: Prices) -> None:
        if not self.is_lazy:
            for row, keys in enumerate(part):
                plan, placement = self._plan(self._scratch[worker], keys)
                prices.runtimes[row] = np.inf
                if placement is not None:
                    _, cost = self._scratch[worker].price(plan, placement)
                    prices.excesses[row], prices.peaks[row], prices.runtimes[row] = cost[1:]
            return
        state, lazy = self._scratch[worker]
        price_keys(self.arrays, state, lazy, part, self.aim, self.machine, prices)

    def _plan(self, plans: Plans, keys: NDArray[np.float32]) -> tuple[Plan, IndexArray | None]:
        """Return the ops along their keys, and where each ends first; None if something cannot be sent there."""
        order = plans.topological(np.argsort(-keys[:-1], kind="stable"))
        return plans.plan(order), plans.place_along(order)

    def decode(self, chromosome: NDArray[np.float32]) -> Schedule:
        """Return the schedule that the keys stand for, that of one device if they send what no link carries."""
        if not self.is_lazy:
            plans: Plans = self._scratch[0]
            plan, placement = self._plan(plans, chromosome)
            schedule = None if placement is None else plans.schedule(plan, placement)
            return schedule or plans.schedules_along(self.graph.input_order)[0]
        self._price_part(0, np.ascontiguousarray(chromosome)[None], new_prices(1))
        state, lazy = self._scratch[0]
        steps = new_steps(self.arrays, self.devices)
        count, *_ = run_sequence(self.arrays, state, lazy.due, lazy.order, self.aim, self.machine, np.inf, steps)
        return as_schedule(self.arrays.producer, state.placement, steps.items[:count], steps.targets[:count])

    def encode(self, schedule: Schedule) -> NDArray[np.float32]:
        """Return keys that fall along the schedule; the decoder need not give it back."""
        return keys_along(schedule.op_order())
