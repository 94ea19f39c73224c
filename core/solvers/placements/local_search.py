"""Local search with random restarts (REGAL A.10): an op changes its device, or its place in the order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import IndexArray
from ...graph.graph import CostGraph
from ...kernels.cost_model import Steps, new_state
from ...kernels.orders.order_memory import shift
from ...kernels.orders.priority_orders import greedy
from ...kernels.placements.sequences import new_due, room_of, run_sequence
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.plans import Plans, as_schedule, objective_of
from ...search.search import Search
from ...search.settings import shipped


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """When to restart; the paper found its restarts by grid search, as ours are, and does not name them."""

    patience: int = parameter(0, "moves without a better schedule before a restart; 0: as grid search chose", low=0)


def solve(search: Search, parameters: Parameters) -> None:
    """Walk from random schedules, by moves that do not worsen them: another device for an op, or another place."""
    patience = parameters.patience or shipped("local-search", Parameters).parameters(search.problem.task).patience
    walk = _Walk(search)
    start = search.initial
    while not search.exhausted():
        if start is None:
            walk.restart()
        else:
            walk.set(start.op_order(), start.placement(search.problem.graph))
            start = None
        if search.exhausted():
            return
        current, failures = walk.price(), 0
        while failures < patience and not search.exhausted():
            undo = walk.move()
            failures += 1
            if undo is None:
                continue
            fitness = walk.price()
            if fitness < current:
                failures = 0
            if fitness <= current:
                current = fitness
            else:
                undo()


class _Walk:
    """The schedule that moves change: a topological order, and a placement within the machine's rules."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        graph, machine = self.problem.graph, self.problem.machine
        self.ops, self.devices, self.rules = graph.num_ops, self.problem.devices, self.problem.rules
        self.aim = objective_of(self.problem)._replace(together=False)
        self.plans = Plans(self.problem)
        self.is_stepped = not machine.is_beside and machine.has_link.all()
        self.state = new_state(self.plans.arrays, self.devices, self.aim.memory)
        self.due = new_due(self.plans.arrays, self.devices)
        self.placement = self.state.placement
        self.order, self.place = np.empty(self.ops, np.int32), np.empty(self.ops, np.int32)
        self.steps = Steps(self.plans.steps[1].items, self.plans.steps[1].targets)

    def restart(self) -> None:
        """Draw an order and a placement, each op where it and all that is with it may be."""
        graph, rng = self.problem.graph, self.search.rng
        placement = None if self.problem.is_symmetric else self.rules.drawn(rng)
        order = random_order(graph, rng)
        self.set(order, rng.integers(0, self.devices, self.ops) if placement is None else placement)

    def set(self, order: IndexArray, placement: NDArray[Any]) -> None:
        """Take an order and a placement."""
        self.order[:] = order
        self.place[order] = np.arange(self.ops, dtype=np.int32)
        self.placement[:] = placement

    def price(self) -> tuple[int, float]:
        """Price the schedule, count the evaluation, and offer it if it is the best so far."""
        if self.is_stepped:
            arrays, machine, order = self.plans.arrays, self.plans.machine, self.plans.homes_first(self.order)
            priced = run_sequence(arrays, self.state, self.due, order, self.aim, machine, np.inf, self.steps)
            count, _, excess, peak, runtime = priced
        else:
            count, (_, excess, peak, runtime) = self.plans.price(self.plans.plan(self.order), self.placement)
        self.search.spend(1)
        fitness = excess, self.problem.value(peak, runtime)
        if fitness < self.search.best_fitness and np.isfinite(runtime):
            self.search.offer(as_schedule(self.plans.arrays.producer, self.placement, self.plans.steps[1], count))
        return fitness

    def move(self) -> Callable[[], None] | None:
        """Make a random move; returns its inverse, or None if the op drawn cannot move that way."""
        rng = self.search.rng
        op = int(rng.integers(self.ops))
        if self.devices > 1 and rng.integers(2):
            before = int(self.placement[op])
            self._put_on(op, (before + int(rng.integers(1, self.devices))) % self.devices)
            return lambda: self._put_on(op, before)
        here = int(self.place[op])
        first, last = room_of(self.plans.arrays, self.place, op, 0, self.ops)
        if first == last - 1:
            return None
        there = int(rng.integers(first, last - 1))
        shift(self.order, self.place, here, there + (there >= here))
        return lambda: shift(self.order, self.place, int(self.place[op]), here)

    def _put_on(self, op: int, device: int) -> None:
        if self.rules.allowed[op, device]:
            self.placement[self.rules.group == self.rules.group[op]] = device


def random_order(graph: CostGraph, rng: np.random.Generator) -> IndexArray:
    """Return the topological order that always takes the ready op of least random priority."""
    (order,) = greedy(graph.buffers, -rng.random(graph.num_ops))
    return cast(IndexArray, order)
