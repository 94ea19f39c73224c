"""Simulated annealing of the makespan on several devices, by its parts; `annealing` says which are run when.

Keys find a good placement at once, where transfers take time placements alone do, and moves of single ops and of groups
then refine what no keys decode to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np

from ...base.arrays import IndexArray
from ...kernels.cost_model import Steps, machine_arrays, new_state, new_steps, no_steps
from ...kernels.placements.group_moves import no_groups, places_of
from ...kernels.placements.incremental_makespan import new_course
from ...kernels.placements.lazy_decoder import new_lazy
from ...kernels.placements.lazy_keys import anneal_keys, price_keys
from ...kernels.placements.makespans import anneal_sequence
from ...kernels.placements.random_keys import new_prices
from ...kernels.placements.sequences import Objective, Walk, run_sequence
from ...problem.schedule import Schedule
from ...search.plans import EXCESS_WEIGHT, objective_of
from ...search.search import Cancelled, Search
from .balanced_cuts import BalancedCuts
from .cooling import Cooling
from .excess_weights import UncheckedMoves, Weighing, at_once, by_and_by
from .gp_dfs import merge
from .lazy_keys import has_time_to_decode, seconds_to_decode
from .move_draws import MoveDraws
from .op_groups import groups_in_time
from .random_keys import as_schedule

PRICED_AGAIN = 4
"""Of so many ops about one is priced again after a move, where the makespan alone counts."""
OPS_PER_WINDOW = (36, 108)
SHARE_OF_TRIES, SHARE_OF_CUTS = 0.05, 0.2
"""Of the budget left: each size of window is tried, and once more for longer if that is clearly better."""
CLEARLY_BETTER = 0.95
SHARE_OF_LIMIT, LIGHTLY = 0.5, 0.3
"""The share of the budget left in which a schedule returns within the memory limit, and what its excess weighs at
first, against its makespan."""
KEYS_PER_OP = 40
GROUPED, GROUPED_WITH_HOMES = 0.1, 0.3
"""Of the moves of sequences those of groups: with residents that have a home more, as these follow their readers."""
MOVES_PER_OP, LONGER, HOTTER = 4000, 1.3, (10.0, 1.0)
"""Of small graphs: how long a first cycle is, how much longer each next one, and how much hotter they are, in turn.

What is much hotter shares out a few large weights, by worse plans in between.
"""
SECONDS_TO_MERGE = 2e-5
SECONDS_OF_KEYS = 0.01
"""Seconds between two looks at the clock, about: keys of a dense graph take milliseconds each."""


class MakespanAnnealing:
    """The kernels' scratch, the sequence of the best schedule so far, and the clock of the budget."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        graph, devices = self.problem.graph, self.problem.devices
        self.ops = graph.num_ops
        self.arrays, self.machine = machine_arrays(self.problem)
        self.places = places_of(self.problem.rules.group, self.problem.rules.allowed, no_groups())
        self.aim = objective_of(self.problem)
        self.state = new_state(self.arrays, devices, self.aim.memory)
        self.lazy = new_lazy(self.arrays, self.machine, self.places)
        self.order, self.placement = np.empty(self.ops, np.int32), np.zeros(self.ops, np.int32)
        self.keys, self.keys_before = np.empty(0, np.float32), np.empty(self.ops + 1, np.float32)
        self.move_draws: MoveDraws | None = None
        self.steps = new_steps(self.arrays, devices)
        self.cooling = Cooling(search)
        self.seconds_to_decode = seconds_to_decode(self.problem)
        self.start_from_best()

    def start_from_best(self) -> None:
        """Take the sequence of the best schedule so far."""
        assert self.search.best is not None
        self._start_from(self.search.best)

    def _start_from(self, schedule: Schedule) -> None:
        self.order[:] = self._homes_first(schedule.op_order())
        self.placement[:] = schedule.placement(self.problem.graph)

    def _homes_first(self, order: IndexArray) -> IndexArray:
        is_home = order >= self.machine.first_home
        return np.concatenate((order[is_home], order[~is_home]))

    def price_starts(self, keys: Any) -> bool:
        """Decode and price rows of keys as far as the budget goes, and keep the best; False if there was none."""
        search = self.search
        prices = new_prices(1)
        best: tuple[int, float] | None = None
        for row in keys:
            if search.exhausted() or not has_time_to_decode(search, self.seconds_to_decode):
                break
            price_keys(self.arrays, self.state, self.lazy, row[None], self.aim, self.machine, prices)
            search.spend(1)
            *_, excess, peak, runtime = self._run(self.aim, self.lazy.order)
            fitness = excess, self.problem.value(peak, runtime)
            if best is None or fitness < best:
                best, self.keys = fitness, row.copy()
            if fitness < search.best_fitness:
                self.order[:], self.placement[:] = self.lazy.order, self.state.placement
                self._offer()
        self.cooling = Cooling(search)
        return best is not None

    def over_cuts(self) -> None:
        """Offer placements that cut little, where transfers take time, and more of them if that is clearly better."""
        search, (excess, value) = self.search, self.search.best_fitness
        if not self.problem.transfers_take_time or search.exhausted():
            return
        cuts = BalancedCuts(search, self.arrays, self.machine)
        for share in (SHARE_OF_TRIES, SHARE_OF_CUTS):
            for ops_per_window in OPS_PER_WINDOW:
                if not search.exhausted():
                    self._offer_cut(cuts, ops_per_window, share)
            if search.best_fitness >= (excess, CLEARLY_BETTER * value):
                break
        self.start_from_best()

    def _offer_cut(self, cuts: BalancedCuts, ops_per_window: int, share: float) -> None:
        """Offer a placement that cuts little as a sequence, and as a merger of an order per device."""
        search, problem = self.search, self.problem
        self.placement[:], self.order[:] = cuts.placement(ops_per_window, share), self._homes_first(cuts.by_start)
        if search.exhausted():
            return
        search.spend(1)
        self._offer()
        if search.exhausted() or problem.replicate or not search.has_time_for(SECONDS_TO_MERGE * self.ops):
            return
        search.spend(1)
        device_of = self.placement[cuts.by_level]
        orders = [cuts.by_level[device_of == device].tolist() for device in range(problem.devices)]
        with suppress(Cancelled):
            search.offer(merge(problem, self.placement, orders, search.cancellable))

    def over_keys(self, share: float, hot: float, cold: float) -> None:
        """Anneal the best keys until a share of the budget that is left is spent."""
        start = self.cooling.progress()
        aim = objective_of(self.problem, scale=self._scale())
        energy = np.inf
        search = self.search
        while not search.exhausted() and has_time_to_decode(search, self.seconds_to_decode):
            if (now := (self.cooling.progress() - start) / max(1 - start, 1e-9)) >= share:
                return
            first = hot * (cold / hot) ** (now / share)
            arguments = self.lazy, self.keys, self.keys_before, aim
            energy = self._anneal(5, anneal_keys, arguments, first, energy)

    def over_cycles(self, hot: float, cold: float) -> None:
        """Anneal some keys, then the sequence of the best schedule anew, for longer each time, until time ends."""
        search, moves = self.search, float(MOVES_PER_OP * self.ops)
        with search.part(evaluations=KEYS_PER_OP * self.ops):
            self.cooling = Cooling(search)
            self.over_keys(1.0, hot, cold)
        for hotter in cycle(HOTTER):
            if search.exhausted():
                return
            with search.part(evaluations=int(moves)):
                self.cooling = Cooling(search)
                self.start_from_best()
                self.over_sequences(hotter * hot, cold)
            moves *= LONGER

    def over_excess(self, fast: Schedule, hot: float, cold: float) -> None:
        """Anneal the sequence of a schedule beyond the memory limit, whose excess weighs little at first."""
        if self.search.exhausted():
            return
        self._start_from(fast)
        aim = objective_of(self.problem, scale=self._scale())
        self.state.placement[:] = self.placement
        self.search.spend(1)
        _, energy, _, _, runtime = self._run(aim, self.order)
        excess = energy - aim.scale * runtime
        if excess > 0.0:
            self.cooling = Cooling(self.search, SHARE_OF_LIMIT)
            share = min(1.0, LIGHTLY * aim.scale * runtime / excess)
            weight = aim.weight * (share or 1.0)  # against a makespan of nothing, all of it
            self.over_sequences(hot, cold, by_and_by, weight)
            self.cooling = Cooling(self.search)

    def over_sequences(self, hot: float, cold: float, weigh: Weighing = at_once, weight: float = EXCESS_WEIGHT) -> None:
        """Anneal the present sequence until the budget ends; a weight is what an excess of the limit has at first."""
        search = self.search
        if search.exhausted():
            return
        start = self.cooling.progress()
        order = self.order.copy()
        position = np.empty(self.ops, np.int32)
        position[order] = np.arange(self.ops)
        aim, energy = self._sequence_aim(weight)
        self.state.placement[:] = self.placement
        share = GROUPED if self.machine.first_home == self.ops else GROUPED_WITH_HOMES
        self.places = self.places._replace(groups=groups_in_time(search), share=share)
        columns = 6 if self.places.groups.first.size else 5
        course = new_course(self.arrays, self.problem.graph.input_order, self.machine)
        if course.costs and self.problem.devices > 1:
            self.move_draws = MoveDraws(self.arrays, self.machine, self.places.allowed, self.state.placement)
        unchecked = UncheckedMoves(aim.together or not course.has_hubs)
        while not search.exhausted() and (now := self.cooling.progress()) < 1.0:
            temperature = hot * (cold / hot) ** ((now - start) / (1.0 - start))
            present = order, position, self.state.placement
            before = [values.copy() for values in present] if (moves := unchecked.next()) else []
            heeded = aim._replace(memory=False) if moves else aim
            arguments = (self.lazy.due, course), order, position, heeded
            energy_before = energy
            energy = self._anneal(columns, anneal_sequence, arguments, temperature, energy, moves)
            if aim.memory and not search.exhausted():
                passed = (self.cooling.progress() - now) / (1.0 - start)
                weighed, cost, is_within = self._reweigh(aim, order, weigh, passed)
                if unchecked.keeps(is_within):
                    aim, energy = weighed, cost
                else:
                    energy = energy_before
                    for values, old in zip(present, before, strict=True):
                        values[:] = old

    def _reweigh(self, aim: Objective, order: Any, weigh: Weighing, passed: float) -> tuple[Objective, float, bool]:
        """Weigh the excess more if the present sequence has any, else less; offer it if it is the best."""
        self.search.spend(1)
        _, energy, excess, _, runtime = self._run(aim, order)
        is_within = excess == 0
        if is_within and (0, runtime) < self.search.best_fitness:
            self.order[:], self.placement[:] = order, self.state.placement
            self._offer(aim)
        weight = weigh(aim.weight, not is_within, passed)
        penalty = (energy - aim.scale * runtime) * weight / aim.weight
        return aim._replace(weight=weight), penalty + aim.scale * runtime, is_within

    def _scale(self) -> float:
        return 1.0 / max(self.search.lower_bound, 1e-9)

    def _sequence_aim(self, weight: float) -> tuple[Objective, float]:
        """Return what to minimise and what the sequence costs; a limit may be kept better just in time."""
        aim = objective_of(self.problem, scale=self._scale())._replace(weight=weight)
        both = [self._cost(aim)]
        if aim.memory and not self.search.exhausted():
            both.append(self._cost(aim._replace(together=False)))
        return min(both, key=lambda pair: pair[1])

    def _cost(self, aim: Objective) -> tuple[Objective, float]:
        self.search.spend(1)
        self.state.placement[:] = self.placement
        return aim, self._run(aim, self.order)[1]

    def _run(self, aim: Objective, order: Any, steps: Steps | None = None) -> tuple[int, float, int, int, float]:
        """Run an order on the placement that `state` holds, and write its steps if they are asked for."""
        steps = steps or no_steps()
        return run_sequence(self.arrays, self.state, self.lazy.due, order, aim, self.machine, np.inf, steps)

    def _anneal(
        self,
        columns: int,
        kernel: Callable[..., float],
        arguments: tuple[Any, ...],
        temperature: float,
        energy: float,
        unchecked: int = 0,
    ) -> float:
        """Make some moves at one temperature, offer the best, and return what the present schedule costs."""
        search = self.search
        is_run_whole = kernel is anneal_keys or (self.aim.memory and not unchecked)
        moves = self.cooling.moves(self.ops if is_run_whole else self.ops // PRICED_AGAIN)
        if unchecked:
            moves = min(moves, unchecked)
        if kernel is anneal_keys:
            moves = min(moves, max(1, int(SECONDS_OF_KEYS / max(self.seconds_to_decode, 1e-9))))
        if self.move_draws:
            moves = min(moves, self.ops)
        excess, value = (0, -math.inf) if unchecked else search.best_fitness
        best = np.array([min(excess, 2**62), value], np.float64)
        before = best.copy()
        draws = search.rng.random((moves, columns))
        if self.move_draws:
            self.move_draws.rewrite(draws)
        walk = Walk(temperature, energy, draws, best, self.order, self.placement, self.places)
        energy = kernel(self.arrays, self.state, *arguments, self.machine, walk)
        search.spend(moves)
        if tuple(best) < tuple(before):
            self._offer(arguments[-1])
        return energy

    def _offer(self, aim: Objective | None = None) -> None:
        """Offer the sequence in `order` and `placement` as a schedule."""
        present = self.state.placement.copy()
        self.state.placement[:] = self.placement
        count, *_ = self._run(aim or self.aim, self.order, self.steps)
        self.state.placement[:] = present
        items, targets = self.steps.items[:count], self.steps.targets[:count]
        self.search.offer(as_schedule(self.arrays.producer, self.placement, items, targets))
