"""HEFT, CPOP and PEFT: the field's list schedulers for different devices.

Topcuoglu, Hariri and Wu 2002 (HEFT with insertion, CPOP) and Arabnejad and Barbosa 2014 (PEFT). As in the papers an op
is put where transfers run beside work and are not contended; what they find is then priced by the machine's own rules.
Differences: residents have their home where they are first read, and a device is left out that has no room for what
stays there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ...bounds.bounds import EdgeCosts, optimistic_costs, possible_times
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.plans import Plans
from ...search.search import Cancelled, Search
from .insertion import InsertionSchedule, place_in_order
from .ranks import downward_ranks, upward_ranks

MOST_CELLS = 10_000_000
"""Ops times devices: nothing interrupts a table of more, and a list schedule will do."""


Rank = Literal["upward", "optimistic", "critical-path"]


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Which of the three it is."""

    rank: Rank = parameter(
        "upward",
        "upward: longest path to the end (HEFT); optimistic: what is left at the best (PEFT); critical-path: that path "
        "on the device that is fastest for it (CPOP)",
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the ops by their rank, each where its end and the costs that the rank adds are least together."""
    problem = search.problem
    if search.exhausted() or problem.graph.num_ops * problem.devices > MOST_CELLS:
        return
    edges = EdgeCosts(problem)
    with suppress(Cancelled):
        _offer(search, edges, *RANKS[parameters.rank](search, edges))


def _upward(search: Search, edges: EdgeCosts) -> tuple[FloatArray, FloatArray]:
    """Return HEFT's priorities, shape `(ops,)`, and no costs ahead, shape `(ops, devices)`."""
    problem = search.problem
    return upward_ranks(problem, edges, search.cancellable), np.zeros((problem.graph.num_ops, problem.devices))


def _optimistic(search: Search, edges: EdgeCosts) -> tuple[FloatArray, FloatArray]:
    """Return PEFT's priorities, the mean optimistic costs, and these costs on each device."""
    ahead = optimistic_costs(search.problem, edges, mean=True, heed=search.cancellable)
    return ahead.mean(axis=1), ahead


def _critical(search: Search, edges: EdgeCosts) -> tuple[FloatArray, FloatArray]:
    """Return CPOP's priorities; ahead of the critical path all devices but its fastest cost infinitely much."""
    problem = search.problem
    priority = upward_ranks(problem, edges, search.cancellable) + downward_ranks(problem, edges, search.cancellable)
    path = _critical_path(problem, edges, priority)
    total = possible_times(problem)[path].sum(axis=0)
    ahead = np.zeros((problem.graph.num_ops, problem.devices))
    if np.isfinite(total).any():
        ahead[path] = np.inf
        ahead[path, int(total.argmin())] = 0.0
    return priority, ahead


RANKS: dict[Rank, Callable[[Search, EdgeCosts], tuple[FloatArray, FloatArray]]] = {
    "upward": _upward,
    "optimistic": _optimistic,
    "critical-path": _critical,
}


def _critical_path(problem: Problem, edges: EdgeCosts, priority: FloatArray) -> list[int]:
    """Return the ops of one longest path: from the most urgent first op on, the most urgent that waits for it."""
    own = first_home(problem.graph)
    leaving = edges.grouped(edges.sources, own)
    waits = np.zeros(own, bool)
    waits[edges.targets] = True
    at = int(np.where(waits, -np.inf, priority[:own]).argmax())
    path = [at]
    while leaving[at]:
        at = max((int(edges.targets[e]) for e in leaving[at]), key=lambda op: (priority[op], -op))
        path.append(at)
    return path


def _offer(search: Search, edges: EdgeCosts, priority: FloatArray, ahead: FloatArray) -> None:
    """Offer two schedules: by the machine's own rules, which takes little time, then with insertion, as the papers."""
    plans = Plans(search.problem)
    order = _by_priority(search, edges, priority)
    _offer_plan(search, plans, order, plans.place_along(order, np.where(np.isfinite(ahead), ahead, 1e300)))
    made = InsertionSchedule(search.problem, edges)
    if place_in_order(made, search.cancellable(order), ahead):
        _offer_plan(search, plans, made.order(), plans.place_homes(made.device))
    if search.best is None:
        search.offer_order(search.problem.graph.input_order)


def _offer_plan(search: Search, plans: Plans, order: Any, placement: IndexArray | None) -> None:
    schedule = None if placement is None else plans.schedule(plans.plan(order), placement)
    search.spend(1)
    if schedule is not None:
        search.offer(schedule)


def _by_priority(search: Search, edges: EdgeCosts, priority: FloatArray) -> list[int]:
    """Return the model's own ops, of those whose inputs are made the most urgent first; of equals, the first."""
    own = first_home(search.problem.graph)
    waiting, leaving = np.bincount(edges.targets, minlength=own), edges.grouped(edges.sources, own)
    ready = [(-priority[op], op) for op in range(own) if not waiting[op]]
    heapq.heapify(ready)
    order = []
    for _ in search.cancellable(range(own)):
        _, op = heapq.heappop(ready)
        order.append(op)
        for e in leaving[op]:
            target = int(edges.targets[e])
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (-priority[target], target))
    return order
