"""Simulated annealing over plans on a machine: order, placement, and how early each op is sent what it lacks.

Kirkpatrick, Gelatt and Vecchi 1983 (Metropolis steps, geometric cooling), in rounds that start from the best plan, from
random orders placed where each op ends first, and from random placements, each round longer than the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import IndexArray
from ...bounds.machine_bounds import EdgeCosts
from ...kernels.placements.group_moves import no_groups
from ...kernels.placements.plans import EARLY, LATE, Cost, Plan, PlanWalk, Returns, anneal_plan
from ...kernels.placements.sequences import Objective
from ...problem.residents import first_home, model_of
from ...search.parameters import Parameters
from ...search.plans import EXCESS_WEIGHT, Plans, objective_of
from ...search.search import Search
from ..orders.lpmf import greedy_order
from . import gp_dfs
from .cooling import Cooling
from .first_fit_devices import filled_placements
from .insertion import MOST_OPS, RULES, place_ready_ops
from .op_groups import LARGEST_GROUP, hierarchy_in_time, moving_groups
from .ranks import upward_ranks
from .repair import Relief

MOVES_PER_OP = 200
GROWTH = 1.15
HOTTEST, HOT_BY_OPS, COOLING = 0.1, 0.6, 0.01
MOST_STEPS_PER_CALL = 2_000_000
RANDOM_ORDERS = 4
"""What is placed along them may be better balanced, and hold less, than by rank or in the input order."""
SHARE_OF_RELIEF, SHARE_OF_ONE = 0.5, 0.4
WITHOUT, WITH_HOMES, WITH_LIMITS = 0.1, 0.3, 0.7
"""Of the moves those of a whole group: with neither limits nor homes of weights, with homes, and with limits."""
HEAVIER, LIGHTER, HEAVIEST = 1.5, 0.9, 1e6


class PlanAnnealing:
    """Starts for a machine, and the annealing of plans on it."""

    def __init__(self, search: Search, hot: float) -> None:
        self.search, self.plans = search, Plans(search.problem)
        self.ops = search.problem.graph.num_ops
        self.hot = min(HOTTEST, max(hot, HOT_BY_OPS / self.ops))
        self.cooling = Cooling(search)
        self.best_order = np.arange(self.ops, dtype=np.int32)
        self.best_placement, self.best_lead = np.zeros(self.ops, np.int32), np.zeros(self.ops, np.int32)
        self.leads = (EARLY, LATE) if self.plans.machine.beside else (EARLY,)
        self.groups = hierarchy_in_time(search) if search.problem.task == "runtime" else None
        self.is_tight = self.groups is not None and self.plans.may_exceed
        has_homes = first_home(search.problem.graph) < self.ops
        self.bunches = WITH_LIMITS if self.is_tight else WITH_HOMES if has_homes else WITHOUT
        rules = search.problem.rules
        times = np.where(rules.allowed[rules.group], rules.times, np.inf)
        self.fastest, self.is_slow = times.argmin(axis=1), times > times.min(axis=1, keepdims=True)
        self.places = self.plans.places(no_groups() if self.groups is None else moving_groups(self.groups))

    def go_on(self) -> None:
        """Anneal until the budget ends, from the plan taken."""
        number = 0
        while not self.search.exhausted():
            self.round(number)
            number += 1

    def offer_starts(self) -> None:
        """Offer one device alone, and each op where it ends first by upward rank; take the best as the start."""
        problem, plans = self.search.problem, self.plans
        ranked = np.lexsort((np.argsort(problem.graph.input_order), -upward_ranks(problem, EdgeCosts(problem))))
        order = plans.topological(ranked)
        alone: list[Any] = plans.placements_of_one_device()
        tried = [(start, [*alone, plans.place_along(start)]) for start in (problem.graph.input_order, order)]
        for small in self._small_orders():
            tried.append((small, [*alone, plans.place_along(small)]))
        for _ in range(RANDOM_ORDERS):
            drawn = plans.topological(self.search.rng.permutation(self.ops))
            tried.append((drawn, [plans.place_along(drawn)]))
        starts: list[tuple[Plan, IndexArray]] = []
        for start, placements in tried:
            for placement in placements:
                if placement is not None and not self.search.exhausted():
                    self._offer(plans.plan(start), placement)
                    starts += [(plans.plan(start, np.full(self.ops, lead)), placement) for lead in self.leads]
        self._offer_ready_ops()
        if self.search.best is None:
            self.search.offer_order(problem.graph.input_order)
        self._offer_relieved(starts)
        self.take_best()
        self._offer_filled()

    def _small_orders(self) -> list[IndexArray]:
        """Return orders that exceed the limits little: that of the best schedule, and of `lpmf` on one device."""
        if not self.is_tight:
            return []
        greedy = greedy_order(model_of(self.search.problem.graph).buffers, self.search.exhausted)
        best = None if self.search.best is None else self.search.best.op_order()
        return [order for order in (best, greedy) if order is not None]

    def _offer_relieved(self, starts: list[tuple[Plan, IndexArray]]) -> None:
        """Offer what becomes of starts that exceed the limits when ops leave full devices, the best first."""
        search, plans = self.search, self.plans
        if self.groups is None or not self.is_tight or search.exhausted():
            return
        relief = Relief(search, plans, self.groups)
        left: list[tuple[int, int, Plan, IndexArray]] = []

        def relieve(plan: Plan, placement: IndexArray, share: float) -> None:
            with search.part(share):
                placement = relief.relieved(plan, placement)
            self._offer(plan, placement)
            left.append((plans.price(plan, placement)[1].excess, len(left), plan, placement))

        priced = [plans.price(plan, placement)[1] for plan, placement in starts]
        with search.part(SHARE_OF_RELIEF):
            for at in sorted(range(len(starts)), key=lambda n: (self._with_excess(priced[n]), n)):
                if search.exhausted():
                    break
                if search.best_fitness > (0, priced[at].runtime):  # else it is slower before anything has left
                    relieve(*starts[at], SHARE_OF_ONE)
        if left and search.best_fitness[0] and not search.exhausted():
            relieve(*min(left)[2:], SHARE_OF_RELIEF)

    def _with_excess(self, cost: Cost) -> float:
        """Return a makespan, longer by the share of a limit by which a plan exceeds them."""
        least = min(limit for limit in self.search.problem.memory_limits if limit is not None)
        return cost.runtime * (1.0 + cost.excess / least)

    def _offer_ready_ops(self) -> None:
        """Offer what rules on all ready ops find, where the graph is small and time counts."""
        problem = self.search.problem
        if self.ops > MOST_OPS or problem.task == "memory":
            return
        edges = EdgeCosts(problem)
        for rule in RULES:
            made = None if self.search.exhausted() else place_ready_ops(problem, edges, rule)
            if made is not None:
                self._offer(self.plans.plan(made.order()), self.plans.place_homes(made.device))

    def _offer_filled(self) -> None:
        """Offer placements that fill devices only so far, until one keeps the limits, then an even division."""
        if not self.search.problem.is_limited:
            return
        for placement in filled_placements(self.search.problem):
            if self.search.best_fitness[0] == 0 or self.search.exhausted():
                return
            for lead in range(LATE + 1):
                plan = self.plans.plan(self.search.problem.graph.input_order, np.full(self.ops, lead))
                self._offer(plan, placement)
        if self.search.best_fitness[0] and not self.search.exhausted():
            gp_dfs.solve(self.search, Parameters())

    def take_best(self) -> None:
        """Take the plan of the best schedule known, with the lead that makes it cheapest."""
        assert self.search.best is not None
        self.cooling = Cooling(self.search)
        self.best_order[:] = self.plans.homes_first(self.search.best.op_order())
        self.best_placement[:] = self.search.best.placement(self.plans.graph)
        prices = []
        for lead in range(LATE + 1):
            plan = self.plans.plan(self.best_order, np.full(self.ops, lead))
            _, cost = self.plans.price(plan, self.best_placement)
            prices.append((cost.excess, self.search.problem.value(cost.peak, cost.runtime), lead))
        self.best_lead[:] = min(prices)[2]

    def round(self, number: int) -> None:
        """Cool down once, from a start by the number of the round."""
        plan, placement = self._start(number)
        plans, search = self.plans, self.search
        plans.scratch.placement[:] = placement
        _, cost = plans.price(plan, placement)
        if not np.isfinite(cost.runtime):
            return
        aim = objective_of(search.problem, max(cost.peak, 1), 1.0 / max(search.lower_bound, 1e-9))
        plans.aim = aim
        _, cost = plans.price(plan, placement)
        energy, made, length = cost.energy, 0, MOVES_PER_OP * self.ops * GROWTH**number
        start = self.cooling.progress()
        while made < length and not search.exhausted():
            spent = (self.cooling.progress() - start) / max(1e-9, 1.0 - start)
            share = min(1.0, max(made / length, spent))
            moves = int(min(length - made + 1, self.cooling.moves(self.ops), MOST_STEPS_PER_CALL))
            energy = self._walk(plan, aim, self.hot * COOLING**share, energy, moves)
            made += moves
            if self.is_tight and not search.exhausted():
                aim, energy = self._reweighed(plan, aim)

    def _reweighed(self, plan: Plan, aim: Objective) -> tuple[Objective, float]:
        """Weigh the excess more while the present plan has any, else less; return what it costs then."""
        plans = self.plans
        self.search.spend(1)
        _, cost = plans.price(plan, plans.scratch.placement)
        factor = HEAVIER if cost.excess else LIGHTER
        weight = min(max(EXCESS_WEIGHT, aim.weight * factor), HEAVIEST)
        if weight != aim.weight:
            plans.aim = aim = aim._replace(weight=weight)
            _, cost = plans.price(plan, plans.scratch.placement)
        return aim, cost.energy

    def _start(self, number: int) -> tuple[Plan, Any]:
        plans, rng = self.plans, self.search.rng
        kind = number % 3
        if kind:
            order = self.plans.topological(rng.permutation(self.ops))
            placement = plans.place_along(order) if kind == 1 else self._random_placement()
            if placement is not None:
                return plans.plan(order, self.best_lead), placement
        return plans.plan(self.best_order, self.best_lead), self.best_placement

    def _random_placement(self) -> Any:
        rules, rng = self.search.problem.rules, self.search.rng
        draws = np.where(rules.allowed, rng.random(rules.allowed.shape), -1.0)
        return draws.argmax(axis=1)[rules.group].astype(np.int32)

    def _walk(self, plan: Plan, aim: Any, temperature: float, energy: float, moves: int) -> float:
        search, plans = self.search, self.plans
        excess, value = search.best_fitness
        best = np.array([min(excess, 2**62), value], np.float64)
        before = best.copy()
        leads = bool(aim.memory and plans.machine.beside)
        draws = search.rng.random((moves, 6))
        kept = self.best_order, self.best_placement, self.best_lead
        bunches = self.bunches, self._returns()
        walk = PlanWalk(temperature, energy, draws, best, *kept, leads, *bunches)
        energy = anneal_plan(plans.arrays, plans.machine, plans.scratch, plan, plans.steps, self.places, aim, walk)
        search.spend(moves)
        if tuple(best) < tuple(before):
            present = plans.scratch.placement.copy()
            self._offer(plans.plan(self.best_order, self.best_lead), self.best_placement, counted=True)
            plans.scratch.placement[:] = present
        return energy

    def _returns(self) -> Returns:
        """Return the groups that hold ops on slower devices than need be, single ops included."""
        found = [(np.empty(0, np.int32),) * 3]
        groups, is_slow = self.groups, self.is_slow[np.arange(self.ops), self.plans.scratch.placement]
        if groups is not None and is_slow.any():
            is_wide = groups.last - groups.first > LARGEST_GROUP * self.ops
            for device in np.unique(self.fastest[is_slow]):
                held = np.concatenate(([0], np.cumsum((is_slow & (self.fastest == device))[groups.ops])))
                at = np.flatnonzero((held[groups.last] > held[groups.first]) & ~is_wide)
                found.append((groups.first[at], groups.last[at], np.full(len(at), device, np.int32)))
        return Returns(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _offer(self, plan: Plan, placement: Any, *, counted: bool = False) -> None:
        schedule = self.plans.schedule(plan, placement)
        self.search.spend(not counted)
        if schedule is not None:
            self.search.offer(schedule)
