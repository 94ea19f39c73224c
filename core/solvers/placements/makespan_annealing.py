"""Simulated annealing of the makespan on several devices, by its parts; `annealing` says which are run when."""

import math
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray
from ...bounds.bounds import earliest_finish
from ...kernels.cost_model import NO_STEPS, MachineArrays, Steps, machine_arrays, new_state, new_steps
from ...kernels.graph_arrays import GraphArrays
from ...kernels.placements.balanced_cuts import anneal_cuts, new_cuts, weigh_moves
from ...kernels.placements.incremental_makespan import anneal_sequence, new_course
from ...kernels.placements.lazy_keys import anneal_keys, new_lazy, price_keys
from ...kernels.placements.sequences import Objective, Sequence, places_of, run_sequence
from ...problem.schedule import Schedule
from ...search.plans import EXCESS_WEIGHT, as_schedule, objective_of, topological
from ...search.search import Cancelled, Search
from ..annealing import Annealing, reweighed
from .chromosomes import MOST_UNSEEN, bottom_levels, decoding_work, has_time_to_decode
from .clusters import even_parts, groups_in_time, places_across
from .gp_dfs import merge
from .list_schedulers import seconds_to_list

PRICED_AGAIN = 4  # of so many ops about one is priced again after a move, where the makespan alone counts
OPS_PER_WINDOW = (36, 108)
SHARE_OF_TRIES, SHARE_OF_CUTS = 0.05, 0.2  # of the budget left: for each size of window, and then for a better one
CLEARLY_BETTER = 0.95
HOT, COLD = 1.0, 0.02  # first and last temperature of cuts, against the mean runtime
SHARE_OF_LIMIT, LIGHTLY = 0.5, 0.3
"""The share of the budget left in which a schedule returns within the memory limit, and the weight of its excess at
first, against its makespan."""
KEYS_PER_OP = 40
GROUPED, GROUPED_WITH_HOMES = 0.1, 0.3  # of the moves those of groups; more with homes, which follow their readers
MOVES_PER_OP, LONGER, HOTTER = 4000, 1.3, (10.0, 1.0)
"""Of small graphs: how long a first cycle is, how much longer each next one, and how much hotter they are, in turn."""
RISE = 1e5  # how much heavier an excess gets if it lasts a whole annealing that begins beyond the memory limit
LEAST_UNCHECKED, MOST_UNCHECKED, PAUSE = 8, 2000, 8
"""How few and how many moves go unchecked at once, and how often none do once the fewest were taken back."""
UNIFORM_SHARE = 0.2  # of the moves: drawn uniformly, so that none is excluded
SHORTEST = 1e-9  # of the longest transfer: shorter mean runtimes count as this, as weights have to be finite


class MakespanAnnealing:
    """The kernels' scratch, the sequence of the best schedule so far, and the clock of the budget."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        graph, devices = self.problem.graph, self.problem.devices
        self.ops = graph.num_ops
        self.arrays, self.machine = machine_arrays(self.problem)
        self.places = places_of(self.problem.rules.group, self.problem.rules.allowed)
        self.aim = objective_of(self.problem)
        self.state = new_state(self.arrays, devices, self.aim.memory)
        self.lazy = new_lazy(self.arrays, self.machine, self.places)
        self.order, self.placement = np.empty(self.ops, np.int32), np.zeros(self.ops, np.int32)
        self.keys = np.empty(0, np.float32)
        self.steps = new_steps(self.arrays, devices)
        self.annealing = Annealing(search)
        self.decoding_work = decoding_work(self.problem)
        self.start_from()

    def start_from(self, schedule: Schedule | None = None) -> None:
        """Take the sequence of the best schedule so far, or of another one."""
        if schedule is None:
            schedule = self.search.best
        assert schedule is not None
        self.order[:] = self._homes_first(schedule.op_order())
        self.placement[:] = schedule.placement(self.problem.graph)

    def _homes_first(self, order: IndexArray) -> IndexArray:
        is_home = order >= self.machine.first_home
        return np.concatenate((order[is_home], order[~is_home]))

    def price_starts(self, keys: Any) -> bool:
        """Decode and price rows of keys as far as the budget goes, and keep the best; False if there was none."""
        search = self.search
        best: tuple[int, float] | None = None
        for row in keys:
            if search.exhausted() or not has_time_to_decode(search, self.decoding_work):
                break
            price_keys(self.arrays, self.state, self.lazy, row[None], self.aim, self.machine, np.empty((1, 3)))
            search.spend(1)
            *_, excess, peak, runtime = self._run(self.aim, self.lazy.order)
            fitness = excess, self.problem.value(peak, runtime)
            if best is None or fitness < best:
                best, self.keys = fitness, row.copy()
            if fitness < search.best_fitness:
                self.order[:], self.placement[:] = self.lazy.order, self.state.placement
                self._offer()
        self.annealing = Annealing(search)
        return best is not None

    def over_cuts(self) -> None:
        """Offer placements that cut little, where transfers take time, and more of them if that is clearly better."""
        search, problem, graph = self.search, self.problem, self.problem.graph
        if not problem.transfers_take_time or search.exhausted() or not search.has_time_for(seconds_to_list(problem)):
            return
        place = np.argsort(graph.input_order)
        by_start = topological(graph, np.lexsort((place, earliest_finish(graph) - graph.runtime)))
        by_level = topological(graph, np.lexsort((place, -bottom_levels(graph))))
        self.order[:] = self._homes_first(by_start)
        level = earliest_finish(graph, np.ones(self.ops)).astype(np.int64) - 1
        with search.part(until=search.share_of_time(SHARE_OF_CUTS)):
            across = np.lexsort((places_across(search, level), level)).astype(np.int32)
        for slices in [2**n for n in range(1, (problem.devices - 1).bit_length())] + [problem.devices]:
            self._offer_cut(problem.rules.kept(even_parts(across, level, self.arrays.runtime, slices)), by_level)
        excess, value = search.best_fitness
        for share in (SHARE_OF_TRIES, SHARE_OF_CUTS):
            for ops_per_window in OPS_PER_WINDOW:
                if not search.exhausted():
                    self._offer_cut(self.cut(by_start, ops_per_window, share), by_level)
            if search.best_fitness >= (excess, CLEARLY_BETTER * value):
                break
        self.start_from()

    def cut(self, by_start: IndexArray, ops_per_window: int, share: float) -> IndexArray:
        """Return a placement that sends little and shares windows of equal work, by earliest starts, out evenly."""
        search, rules, annealing = self.search, self.problem.rules, Annealing(self.search, share)
        windows = even_parts(by_start, 0 * by_start, self.arrays.runtime, max(1, self.ops // ops_per_window))
        cuts = new_cuts(self.arrays, self.machine, rules.drawn(search.rng), windows)
        mean = max(float(self.arrays.runtime.mean()), 1e-300)
        for temperature in annealing.temperatures(HOT * mean, COLD * mean):
            sweeps = annealing.walk(temperature, (annealing.moves(self.ops), 3 * self.ops), (), self.places)
            anneal_cuts(self.arrays, self.machine, cuts, sweeps._replace(draws=sweeps.draws.reshape(-1, 3)))
            annealing.spend(sweeps)
        return rules.kept(cuts.placement)

    def _offer_cut(self, placement: IndexArray, by_level: IndexArray) -> None:
        """Offer a placement that cuts little as a sequence, and as a merger of an order per device."""
        search, problem = self.search, self.problem
        if search.exhausted():
            return
        self.placement[:] = placement
        search.spend(1)
        self._offer()
        if search.exhausted() or problem.replicate:
            return
        search.spend(1)
        orders = [by_level[placement[by_level] == device].tolist() for device in range(problem.devices)]
        with suppress(Cancelled):
            search.offer(merge(problem, placement, orders, search.cancellable))

    def over_keys(self, share: float, hot: float, cold: float) -> None:
        """Anneal the best keys until a share of the budget that is left is spent."""
        aim, energy = objective_of(self.problem, bound=self.search.lower_bound), math.inf
        most = max(1, int(MOST_UNSEEN / max(self.decoding_work, 1.0)))
        annealing, kept = self.annealing, (self.order, self.placement)
        for temperature in annealing.temperatures(hot, cold, share=share):
            if not has_time_to_decode(self.search, self.decoding_work):
                return
            walk = annealing.walk(temperature, (min(most, annealing.moves(self.ops)), 5), kept, self.places)
            energy = anneal_keys(self.arrays, self.state, self.lazy, self.keys, aim, self.machine, energy, walk)
            if annealing.spend(walk):
                self._offer(aim)

    def over_cycles(self, hot: float, cold: float) -> None:
        """Anneal some keys, then the sequence of the best schedule anew, for longer each time, until time ends."""
        search, moves = self.search, float(MOVES_PER_OP * self.ops)
        with search.part(evaluations=KEYS_PER_OP * self.ops):
            self.annealing = Annealing(search)
            self.over_keys(1.0, hot, cold)
        for hotter in cycle(HOTTER):
            if search.exhausted():
                return
            with search.part(evaluations=int(moves)):
                self.annealing = Annealing(search)
                self.start_from()
                self.over_sequences(hotter * hot, cold)
            moves *= LONGER

    def over_excess(self, fast: Schedule, hot: float, cold: float) -> None:
        """Anneal the sequence of a schedule beyond the memory limit, whose excess weighs little at first."""
        if self.search.exhausted():
            return
        self.start_from(fast)
        aim = objective_of(self.problem, bound=self.search.lower_bound)
        self.state.placement[:] = self.placement
        self.search.spend(1)
        _, energy, _, _, runtime = self._run(aim, self.order)
        excess = energy - aim.scale * runtime
        if excess > 0.0:
            self.annealing = Annealing(self.search, SHARE_OF_LIMIT)
            share = min(1.0, LIGHTLY * aim.scale * runtime / excess)
            weight = aim.weight * (share or 1.0)  # against a makespan of nothing, all of it
            self.over_sequences(hot, cold, weight, is_gradual=True)
            self.annealing = Annealing(self.search)

    def over_sequences(self, hot: float, cold: float, weight: float = EXCESS_WEIGHT, is_gradual: bool = False) -> None:
        """Anneal the present sequence to the end; the weight of an excess soon forbids one, or rises evenly."""
        search, annealing, kept = self.search, self.annealing, (self.order, self.placement)
        if search.exhausted():
            return
        temperatures, order = annealing.temperatures(hot, cold), self.order.copy()
        position = np.empty(self.ops, np.int32)
        position[order] = np.arange(self.ops)
        aim, energy = self._sequence_aim(weight)
        self.state.placement[:] = self.placement
        share = GROUPED if self.machine.first_home == self.ops else GROUPED_WITH_HOMES
        self.places = self.places._replace(groups=groups_in_time(search), share=share)
        columns = 6 if self.places.groups.first.size else 5
        course = new_course(self.arrays, self.problem.graph.input_order, self.machine)
        drawn = None
        if course.costs and self.problem.devices > 1:
            drawn = MoveDraws(self.arrays, self.machine, self.places.allowed, self.state.placement)
        checks = UncheckedMoves(aim.together or not course.has_hubs)
        present = Sequence(order, position, self.state.placement, np.empty(0, np.bool_))
        for temperature in temperatures:
            unchecked, energy_before = checks.next(), energy
            before = [values.copy() for values in present] if unchecked else []
            is_run_whole = aim.memory and not unchecked
            moves = annealing.moves(self.ops if is_run_whole else self.ops // PRICED_AGAIN)
            moves = min(moves, unchecked or moves, self.ops if drawn else moves)
            best = (0, -math.inf) if unchecked else None
            walk = annealing.walk(temperature, (moves, columns), kept, self.places, best)
            if drawn:
                drawn.rewrite(walk.draws)
            heeded = aim._replace(memory=is_run_whole)
            energy = anneal_sequence(self.arrays, self.state, course, present, heeded, self.machine, energy, walk)
            if annealing.spend(walk) and not unchecked:
                self._offer(heeded)
            if aim.memory and not search.exhausted():
                rise = RISE ** (annealing.passed() - annealing.part) if is_gradual else None
                weighed, cost, is_within = self._reweigh(aim, order, rise)
                if checks.keeps(is_within):
                    aim, energy = weighed, cost
                else:
                    energy = energy_before
                    for values, old in zip(present, before, strict=True):
                        values[:] = old

    def _reweigh(self, aim: Objective, order: Any, rise: float | None) -> tuple[Objective, float, bool]:
        """Weigh the excess more if the present sequence has any, else less; offer it if it is the best."""
        self.search.spend(1)
        _, energy, excess, _, runtime = self._run(aim, order)
        is_within = excess == 0
        if is_within and (0, runtime) < self.search.best_fitness:
            self.order[:], self.placement[:] = order, self.state.placement
            self._offer(aim)
        weight = reweighed(aim.weight, not is_within, *(rise, 1 / rise, 0.0) if rise else ())
        penalty = (energy - aim.scale * runtime) * weight / aim.weight
        return aim._replace(weight=weight), penalty + aim.scale * runtime, is_within

    def _sequence_aim(self, weight: float) -> tuple[Objective, float]:
        """Return the objective and the cost of the sequence; a limit may be kept better just in time."""
        aim = objective_of(self.problem, bound=self.search.lower_bound)._replace(weight=weight)
        both: list[tuple[Objective, float]] = []
        for tried in (aim, aim._replace(together=False)):
            if not both or (aim.memory and not self.search.exhausted()):
                self.search.spend(1)
                self.state.placement[:] = self.placement
                both.append((tried, self._run(tried, self.order)[1]))
        return min(both, key=lambda pair: pair[1])

    def _run(self, aim: Objective, order: Any, steps: Steps = NO_STEPS) -> tuple[int, float, int, int, float]:
        """Run an order on the placement that `state` holds, and write its steps if they are asked for."""
        return run_sequence(self.arrays, self.state, self.lazy.due, order, aim, self.machine, np.inf, steps)

    def _offer(self, aim: Objective | None = None) -> None:
        """Offer the sequence in `order` and `placement` as a schedule."""
        present = self.state.placement.copy()
        self.state.placement[:] = self.placement
        count, *_ = self._run(aim or self.aim, self.order, self.steps)
        self.state.placement[:] = present
        self.search.offer(as_schedule(self.arrays.producer, self.placement, self.steps, count))


class UncheckedMoves:
    """How many moves are made before their memory is looked at, which takes several times as long as their makespan."""

    # While the limit is kept some are, and all of them are taken back if it no longer is. There are twice as many each
    # time that it still is, else half as many; if they were the fewest, the memory of each move is looked at for a
    # while.

    def __init__(self, are_priced: bool) -> None:
        self.are_priced, self.size, self.pause, self.made, self.is_within = are_priced, LEAST_UNCHECKED, 0, 0, False

    def next(self) -> int:
        """Return how many moves are next, or 0 if the memory of each is looked at."""
        self.made = self.size if self.are_priced and self.is_within and not self.pause else 0
        self.pause = max(0, self.pause - 1)
        return self.made

    def keeps(self, is_within: bool) -> bool:
        """Whether the moves last made are kept, given whether the limit is after them."""
        is_kept = is_within or not self.made
        if not is_kept and self.size == LEAST_UNCHECKED:
            self.pause = PAUSE
        elif self.made:
            self.size = min(2 * self.size, MOST_UNCHECKED) if is_kept else max(self.size // 2, LEAST_UNCHECKED)
        self.is_within = is_within or not is_kept
        return is_kept


class MoveDraws:
    """Rewrites the draws of an annealing of sequences, so that moves which send less are drawn more often."""

    def __init__(self, arrays: GraphArrays, machine: MachineArrays, allowed: BoolArray, placement: IndexArray) -> None:
        self.arrays, self.machine, self.allowed, self.placement = arrays, machine, allowed, placement
        ops, devices = machine.times.shape
        self.cuts = new_cuts(arrays, machine, placement, np.zeros(ops, np.int32))
        longest = machine.latency.max() + arrays.tensor_size.max(initial=0) * machine.per_byte.max()
        self.mean = max(float(arrays.runtime.mean()), SHORTEST * float(longest), 1e-300)
        self.weights, self.sums = np.empty((ops, devices)), np.empty(0)
        self.drawn = ops

    def rewrite(self, draws: FloatArray) -> None:
        """Let rows of uniform draws, as `anneal_sequence` takes them, stand for ops and devices drawn by weight."""
        ops, devices = self.weights.shape
        if self.drawn >= ops:  # in all, half of the weights of a uniform draw are for an op's own device
            weigh_moves(self.arrays, self.machine, self.cuts, self.mean, self.weights)
            uniform = np.where(self.allowed, 1.0 / (devices - 1), 0.0)
            uniform[np.arange(ops), self.placement] = 1.0
            self.weights *= uniform
            share = (1 - UNIFORM_SHARE) / self.weights.sum()
            self.sums = (share * self.weights + UNIFORM_SHARE / (2 * ops) * uniform).cumsum()
            self.drawn = 0
        self.drawn += len(draws)
        cell = np.searchsorted(self.sums, draws[:, 0] * self.sums[-1], side="right")
        op, device = np.divmod(np.minimum(cell, ops * devices - 1), devices)
        away = (device - self.placement[op]) % devices
        draws[:, 0] = (op + 0.5) / ops
        draws[:, 1] = 0.5 * draws[:, 1] + np.where(away == 0, 0.5, 0.0)
        draws[:, 2] = np.where(away == 0, draws[:, 2], (away - 0.5) / (devices - 1))
