"""Annealing of whole schedules on several devices, each transfer a step of its own, in cycles that grow longer.

Every plan can be reached, also those that send a tensor early, or in another order, at the price of more moves.
"""

import math
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from ...base.errors import UsageError
from ...kernels.cost_model import machine_arrays, new_state
from ...kernels.placements.heads import path_ends
from ...kernels.placements.sequences import places_of
from ...kernels.placements.step_moves import Edit, Scene, anneal_steps, new_plan, run_plan
from ...problem.problem import Problem
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.plans import as_schedule, objective_of
from ...search.search import Search
from ..annealing import Annealing, reweighed
from .clusters import groups_in_time
from .first_fit_devices import filled_placements
from .peak_annealing import POWER

NO_EDIT = Edit(np.int64(-1), -1)


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Temperatures are relative: at 0.01 a schedule 1% worse is accepted with probability 1/e."""

    hot: float = parameter(
        5e-3,
        "first temperature of a cycle; at 0.01 a schedule 1% worse is taken with probability 1/e",
        low=1e-9,
        high=1.0,
    )
    cold: float = parameter(2e-4, "last temperature of a cycle, likewise", low=1e-9, high=1.0)
    cycle: int = parameter(200, "moves of the first cycle, times the ops", low=1)
    growth: float = parameter(1.5, "how much longer each next cycle is", low=1.0, high=100.0)

    def check(self, problem: Problem) -> None:
        """Raise UsageError if transfers run beside ops, or a link is missing."""
        machine = problem.machine
        if machine.is_beside or not machine.has_link.all():
            raise UsageError(
                "method 'step-search' knows blocking transfers between any two devices; for this machine use annealing"
            )


def solve(search: Search, parameters: Parameters) -> None:
    """Anneal in cycles from the best schedule known, every second one from where the last ended, to the end."""
    if search.best is None:
        search.offer_order(search.problem.graph.input_order)
    if search.exhausted():
        return
    walk = _Walk(search)
    if search.problem.task == "runtime" and search.problem.is_limited:
        walk.fill_devices()
    moves: float = min(parameters.cycle * search.problem.graph.num_ops, search.evaluations_left)
    for is_new in cycle((True, False)):
        if search.exhausted():
            return
        if is_new:
            walk.start_from_best()
        walk.cool(int(moves), parameters.hot, parameters.cold)
        moves *= parameters.growth


class _Walk:
    """The present plan, the kernels' scratch, and the objective."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        self.graph, self.ops = self.problem.graph, self.problem.graph.num_ops
        devices, rules = self.problem.devices, self.problem.rules
        self.arrays, self.machine = machine_arrays(self.problem)
        self.aim = objective_of(self.problem, max(1.0, search.best_value), search.lower_bound)
        self.power = POWER if self.aim.is_peak else 1
        self.state = new_state(self.arrays, devices, self.aim.memory)
        sent, least = np.empty(self.graph.num_tensors, np.uint64), self.machine.times.min(axis=1)
        tail = path_ends(self.graph.input_order[::-1], *self.graph.successors, least) - least
        self.scene = Scene(self.arrays, self.state, sent, self.machine, least, tail, float(least.sum()))
        self.present, self.other, self.best = (new_plan(self.arrays, devices) for _ in range(3))
        self.places = places_of(rules.group, rules.allowed, groups_in_time(search))
        self.best_placement = np.empty(self.ops, np.int32)
        self.count, self.energy = 0, math.inf

    def start_from_best(self) -> None:
        """Take the best schedule known for the present plan."""
        best = self.search.best
        assert best is not None
        self.count = len(best)
        self.present.items[: self.count], self.present.targets[: self.count] = best.items, best.targets
        self.state.placement[:] = best.placement(self.graph)
        self._price()

    def fill_devices(self) -> None:
        """Offer the schedules that fill one device after another, in the input order."""
        order = self.problem.graph.input_order
        for placement in filled_placements(self.problem, self.search.cancellable):
            self.count = self.ops
            self.present.items[: self.ops], self.state.placement[:] = order, placement
            self._price()
            self.search.offer(as_schedule(self.arrays.producer, placement, self.present, self.count))

    def cool(self, moves: int, hot: float, cold: float) -> None:
        """Make so many moves, or as many as the budget allows, while the temperature falls; offer improvements."""
        search, annealing = self.search, Annealing(self.search)
        kept = self.best, self.best_placement
        for temperature in annealing.temperatures(hot, cold, moves=moves):
            batch = min(moves - annealing.made, annealing.moves(self.ops))
            walk = annealing.walk(temperature * self.power, (batch, 6), kept, self.places)
            start = self.count, self.energy, 0
            self.count, self.energy, count = anneal_steps(self.scene, (self.present, self.other), start, self.aim, walk)
            if annealing.spend(walk):
                search.offer(as_schedule(self.arrays.producer, self.best_placement, self.best, count))
            if self.aim.memory and not self.aim.is_peak and not search.exhausted():
                weight = reweighed(self.aim.weight, self._price() > 0)
                if weight != self.aim.weight:
                    self.aim = self.aim._replace(weight=weight)
                    self._price()

    def _price(self) -> int:
        """Price the present plan, and normalise it; return by how much it exceeds the limits."""
        self.search.spend(1)
        priced = run_plan(self.scene, self.present, self.count, NO_EDIT, self.aim, np.inf, self.other)
        self.count, self.energy, excess, *_ = priced
        self.present, self.other = self.other, self.present
        return int(excess)
