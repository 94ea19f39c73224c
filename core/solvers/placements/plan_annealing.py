"""Simulated annealing over plans on a machine, in rounds: order, placement, and how early inputs are sent."""

from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ...bounds.bounds import EdgeCosts, possible_times
from ...kernels.placements.plans import EARLY, LATE, Bunches, Plan, anneal_plan
from ...kernels.placements.sequences import NO_GROUPS
from ...problem.residents import first_home, model_of
from ...search.parameters import Parameters
from ...search.plans import Plans, objective_of, topological
from ...search.search import Search
from ..annealing import Annealing, reweighed
from ..orders.baselines import greedy_order
from . import gp_dfs
from .clusters import LARGEST_GROUP, Clusters, clusters_in_time, moving_groups
from .first_fit_devices import filled_placements
from .list_schedulers import upward_ranks

MOVES_PER_OP = 200
GROWTH = 1.15
HOTTEST, HOT_BY_OPS, COOLING = 0.1, 0.6, 0.01
RANDOM_ORDERS = 4  # placements along them may be better balanced, and hold less, than by rank or in the input order
SHARE_OF_REPAIR, SHARE_OF_ONE = 0.5, 0.4
WITHOUT, WITH_HOMES, WITH_LIMITS = 0.1, 0.3, 0.7  # of the moves those of a whole group, the first with neither

PRICED = 12
LEAST_SHARE = 1 / 24  # of the excess: what a group frees at least, unless none does; smaller ones take as long
LEAST_LONGER = 1e-6  # of the makespan: moves that take less, or that make it shorter, differ by their freed bytes
NEARLY = 0.5
MOST_PAIRS = 20_000_000
NOBODY = -1


class PlanAnnealing:
    """Starts for a machine, and the annealing of plans on it."""

    def __init__(self, search: Search, hot: float) -> None:
        self.search, self.plans = search, Plans(search.problem)
        self.ops = search.problem.graph.num_ops
        self.hot = min(HOTTEST, max(hot, HOT_BY_OPS / self.ops))
        self.annealing = Annealing(search)
        self.best_order = np.arange(self.ops, dtype=np.int32)
        self.best_placement, self.best_lead = np.zeros(self.ops, np.int32), np.zeros(self.ops, np.int32)
        self.leads = (EARLY, LATE) if self.plans.machine.beside else (EARLY,)
        self.groups = clusters_in_time(search) if search.problem.task == "runtime" else None
        self.is_tight = self.groups is not None and self.plans.may_exceed
        has_homes = first_home(search.problem.graph) < self.ops
        self.bunches = WITH_LIMITS if self.is_tight else WITH_HOMES if has_homes else WITHOUT
        rules = search.problem.rules
        times = np.where(rules.allowed[rules.group], rules.times, np.inf)
        self.fastest, self.is_slow = times.argmin(axis=1), times > times.min(axis=1, keepdims=True)
        self.places = self.plans.places(NO_GROUPS if self.groups is None else moving_groups(self.groups))

    def go_on(self) -> None:
        """Anneal until the budget ends, from the plan taken."""
        for number in count():
            if self.search.exhausted():
                return
            self.round(number)

    def offer_starts(self) -> None:
        """Offer one device alone, and each op where it ends first by upward rank; take the best as the start."""
        problem, plans = self.search.problem, self.plans
        ranked = np.lexsort((np.argsort(problem.graph.input_order), -upward_ranks(problem, EdgeCosts(problem))))
        order = topological(problem.graph, ranked)
        alone: list[Any] = plans.placements_of_one_device()
        tried = [(start, [*alone, plans.place_along(start)]) for start in (problem.graph.input_order, order)]
        if self.is_tight:  # orders that exceed the limits little
            greedy = greedy_order(model_of(problem.graph).buffers, self.search.exhausted)
            best = None if self.search.best is None else self.search.best.op_order()
            small = (order for order in (best, greedy) if order is not None)
            tried += [(order, [*alone, plans.place_along(order)]) for order in small]
        for _ in range(RANDOM_ORDERS):
            drawn = topological(problem.graph, self.search.rng.permutation(self.ops))
            tried.append((drawn, [plans.place_along(drawn)]))
        starts: list[tuple[Plan, IndexArray]] = []
        for start, placements in tried:
            for placement in placements:
                if placement is not None and not self.search.exhausted():
                    self._offer(plans.plan(start), placement)
                    starts += [(plans.plan(start, np.full(self.ops, lead)), placement) for lead in self.leads]
        if self.search.best is None:
            self.search.offer_order(problem.graph.input_order)
        self._offer_repaired(starts)
        self.take_best()
        self._offer_filled()

    def _offer_repaired(self, starts: list[tuple[Plan, IndexArray]]) -> None:
        """Offer the repairs of starts that exceed the limits when ops leave full devices, the best first."""
        search, plans = self.search, self.plans
        if self.groups is None or not self.is_tight or search.exhausted():
            return
        repair = Repair(search, plans, self.groups)
        left: list[tuple[int, int, Plan, IndexArray]] = []

        def mend(plan: Plan, placement: IndexArray, share: float) -> None:
            with search.part(share):
                placement = repair.repaired(plan, placement)
            self._offer(plan, placement)
            left.append((plans.price(plan, placement)[1].excess, len(left), plan, placement))

        priced = [plans.price(plan, placement)[1] for plan, placement in starts]
        least = min(limit for limit in search.problem.memory_limits if limit is not None)
        longer = [cost.runtime * (1.0 + cost.excess / least) for cost in priced]  # by the share of a limit it exceeds
        with search.part(SHARE_OF_REPAIR):
            for at in sorted(range(len(starts)), key=lambda n: (longer[n], n)):
                if search.exhausted():
                    break
                if search.best_fitness > (0, priced[at].runtime):  # else it is slower before anything has left
                    mend(*starts[at], SHARE_OF_ONE)
        if left and search.best_fitness[0] and not search.exhausted():
            mend(*min(left)[2:], SHARE_OF_REPAIR)

    def _offer_filled(self) -> None:
        """Offer placements that fill devices only so far, until one keeps the limits, then an even division."""
        if not self.search.best_fitness[0] or self.search.exhausted():
            return
        for placement in filled_placements(self.search.problem, self.search.cancellable):
            for lead in range(LATE + 1):
                plan = self.plans.plan(self.search.problem.graph.input_order, np.full(self.ops, lead))
                self._offer(plan, placement)
            if self.search.best_fitness[0] == 0 or self.search.exhausted():
                return
        if self.search.best_fitness[0] and not self.search.exhausted():
            gp_dfs.solve(self.search, Parameters())

    def take_best(self) -> None:
        """Take the plan of the best schedule known, with the lead that makes it cheapest."""
        assert self.search.best is not None
        self.annealing = Annealing(self.search)
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
        aim = objective_of(search.problem, max(cost.peak, 1), search.lower_bound)
        plans.aim = aim
        _, cost = plans.price(plan, placement)
        energy, length = cost.energy, MOVES_PER_OP * self.ops * GROWTH**number
        kept = self.best_order, self.best_placement, self.best_lead
        for temperature in self.annealing.temperatures(self.hot, COOLING * self.hot, moves=length):
            moves = int(min(length - self.annealing.made + 1, self.annealing.moves(self.ops)))
            bunches = Bunches(self.bunches, *self._returns(), bool(aim.memory and plans.machine.beside))
            walk = self.annealing.walk(temperature, (moves, 6), kept, (self.places, bunches))
            arrays = plans.arrays, plans.machine, plans.scratch
            energy = anneal_plan(*arrays, plan, plans.steps, aim, energy, walk)
            present = plans.scratch.placement.copy()
            if self.annealing.spend(walk):
                self._offer(plans.plan(self.best_order, self.best_lead), self.best_placement, counted=True)
                plans.scratch.placement[:] = present
            if self.is_tight and not search.exhausted():
                search.spend(1)
                _, cost = plans.price(plan, present)
                energy, weight = cost.energy, reweighed(aim.weight, cost.excess > 0)
                if weight != aim.weight:
                    plans.aim = aim = aim._replace(weight=weight)
                    energy = plans.price(plan, present)[1].energy

    def _start(self, number: int) -> tuple[Plan, Any]:
        plans, rng = self.plans, self.search.rng
        kind = number % 3
        if kind:
            order = topological(plans.graph, rng.permutation(self.ops))
            placement = plans.place_along(order) if kind == 1 else self.search.problem.rules.drawn(rng)
            if placement is not None:
                return plans.plan(order, self.best_lead), placement
        return plans.plan(self.best_order, self.best_lead), self.best_placement

    def _returns(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """Return the groups that hold ops on slower devices than need be, single ops included."""
        found = [(np.empty(0, np.int32),) * 3]
        groups, is_slow = self.groups, self.is_slow[np.arange(self.ops), self.plans.scratch.placement]
        if groups is not None and is_slow.any():
            is_wide = groups.last - groups.first > LARGEST_GROUP * self.ops
            for device in np.unique(self.fastest[is_slow]):
                held = np.concatenate(([0], np.cumsum((is_slow & (self.fastest == device))[groups.ops])))
                at = np.flatnonzero((held[groups.last] > held[groups.first]) & ~is_wide)
                found.append((groups.first[at], groups.last[at], np.full(len(at), device, np.int32)))
        first, last, device = (np.concatenate(column) for column in zip(*found, strict=True))
        return first, last, device

    def _offer(self, plan: Plan, placement: Any, *, counted: bool = False) -> None:
        schedule = self.plans.schedule(plan, placement)
        self.search.spend(not counted)
        if schedule is not None:
            self.search.offer(schedule)


class _Priced(NamedTuple):
    """The cost of a placement: bytes above the limits (all peaks, and the mean step), makespan, each peak."""

    excess: float
    runtime: float
    peaks: IntArray


class Repair:
    """Moves groups of ops off devices that exceed their limits, those that free most for the least time."""

    # A buffer on the fullest device at its peak is freed if its maker leaves, or all who read it later: the groups that
    # free most bytes per microsecond that moving them should take are priced, and the best one goes.

    def __init__(self, search: Search, plans: Plans, groups: Clusters) -> None:
        self.search, self.plans = search, plans
        self.problem, self.graph = search.problem, search.problem.graph
        self.groups = groups
        self.place = np.empty(self.graph.num_ops, np.int64)
        self.place[self.groups.ops] = np.arange(self.graph.num_ops)
        self.limits = np.array([np.inf if limit is None else limit for limit in self.problem.memory_limits])
        self.times = possible_times(self.problem)
        self.count = 0
        self.reads = np.repeat(np.arange(self.graph.num_tensors), np.diff(self.graph.consumers[0]))

    def repaired(self, plan: Plan, placement: IndexArray) -> IndexArray:
        """Return a placement that exceeds the limits less, not at all if that is found, for the order of a plan."""
        present = self._price(plan, placement)
        while present.excess and not self.search.exhausted():
            self._price(plan, placement)  # for its steps, which those tried since have overwritten
            device = int((present.peaks / self.limits).argmax())
            freed = self._freed(device, placement)
            over = float(present.peaks[device] - self.limits[device])
            for least in (LEAST_SHARE * over, 1.0):
                moves = self._promising(np.where(freed >= least, freed, 0.0), over, device, placement, present.peaks)
                found = self._best_of(moves, plan, placement, present)
                if found is not None:
                    break
            else:
                return placement
            placement, present = found
        return placement

    def _best_of(
        self, moves: list[IndexArray], plan: Plan, placement: IndexArray, present: _Priced
    ) -> tuple[IndexArray, _Priced] | None:
        """Make the move that takes least time for its freed bytes, then those that are nearly as good."""
        values = [0.0 if self.search.exhausted() else self._value(present, self._price(plan, m)) for m in moves]
        ranked = sorted(range(len(moves)), key=lambda n: (-values[n], n))
        if not ranked or values[ranked[0]] == 0.0:
            return None
        least, found = NEARLY * values[ranked[0]], None
        for at in ranked:
            if values[at] < least or self.search.exhausted():
                break
            moved = np.where(moves[at] != placement, moves[at], placement if found is None else found[0])
            priced = self._price(plan, moved)
            if self._value(present if found is None else found[1], priced) >= least:
                found = moved, priced
                if not priced.excess:
                    break
        return found

    def _value(self, before: _Priced, after: _Priced) -> float:
        """Return the bytes that a move frees per microsecond by which it makes a plan longer; 0 if it frees none."""
        longer = max(after.runtime - before.runtime, LEAST_LONGER * before.runtime, 1e-9)
        return max(0.0, before.excess - after.excess) / longer

    def _price(self, plan: Plan, placement: IndexArray) -> _Priced:
        self.search.spend(1)
        self.count, cost = self.plans.price(plan, placement)
        if not np.isfinite(cost.runtime):
            return _Priced(np.inf, np.inf, np.zeros_like(self.plans.scratch.peak))
        peaks, memory = self.plans.scratch.peak.copy(), self.plans.scratch.memory[: self.count]
        over = np.maximum(0.0, peaks - self.limits).sum()
        lasting = np.maximum(0.0, memory - self.limits[self.plans.steps[1].targets[: self.count]]).mean()
        return _Priced(float(over + lasting), cost.runtime, peaks)

    def _freed(self, device: int, placement: IndexArray) -> FloatArray:
        """Return the bytes that leave a device with each group when it is fullest, by the plan that was priced last."""
        graph, groups = self.graph, self.groups
        steps, scratch = self.plans.steps[1], self.plans.scratch
        items, targets = steps.items[: self.count], steps.targets[: self.count]
        start, end = steps.start[: self.count], steps.end[: self.count]
        is_op, is_here = items >= 0, targets == device
        ends = np.zeros(graph.num_ops)
        ends[items[is_op]] = end[is_op]
        op_start = np.full(graph.num_ops, np.inf)
        op_start[items[is_op & is_here]] = start[is_op & is_here]
        began = op_start[graph.tensor_producer]  # since when each tensor is on the device
        sent = ~is_op & is_here
        began[~items[sent]] = start[sent]
        now = start[int(np.where(is_here, scratch.memory[: self.count], -1).argmax())]
        here = placement[graph.tensor_producer] == device
        there = (began <= now) & ~graph.is_control
        root = np.where(here, graph.root, np.arange(graph.num_tensors))
        readers = graph.consumers[1]
        later = ends[readers] >= now
        by_here = later & (placement[readers] == device)
        first, last = np.full(graph.num_tensors, NOBODY), np.full(graph.num_tensors, NOBODY)
        np.maximum.at(last, root[self.reads[by_here]], self.place[readers[by_here]])
        first[last >= 0] = graph.num_ops
        np.minimum.at(first, root[self.reads[by_here]], self.place[readers[by_here]])
        stays = _any_of(root, graph.is_final & here)
        first[stays] = NOBODY
        is_read = _any_of(root, np.bincount(self.reads[later & (by_here | here[self.reads])], minlength=len(root)) > 0)
        is_held = there & (is_read | stays) & (root == np.arange(len(root)))
        buffers = np.flatnonzero(is_held & (np.arange(graph.num_tensors) < self.plans.machine.first_resident))
        buffers = buffers[np.argsort(-graph.tensor_size[buffers], kind="stable")]
        buffers = buffers[: MOST_PAIRS // len(groups.first)]
        # Places in the hierarchy's order of the maker there, and of the first and last later reader there, or `NOBODY`.
        maker = np.where(here[buffers], self.place[graph.tensor_producer[buffers]], NOBODY)
        first, last = first[buffers], last[buffers]
        low, high = groups.first[:, None], groups.last[:, None]
        leaves = (maker >= low) & (maker < high) | (first >= low) & (last < high)
        lasting = _summed(np.where(placement == device, graph.persistent, 0)[groups.ops])
        size = graph.tensor_size[buffers].astype(np.float64)
        return np.asarray(leaves @ size + lasting[groups.last] - lasting[groups.first], np.float64)

    def _promising(
        self, freed: FloatArray, over: float, device: int, placement: IndexArray, peaks: IntArray
    ) -> list[IndexArray]:
        """Return placements in which a group has left a device, those first that should free most for their time."""
        groups, found = self.groups, []
        here = (placement == device)[groups.ops]
        inside = _summed(here)
        freed = np.where(inside[groups.last] > inside[groups.first], freed, 0.0)
        for other in np.flatnonzero(np.isfinite(self.times).any(axis=0)).tolist():
            if other == device:
                continue
            longer = self.times[groups.ops, other] - np.where(here, self.times[groups.ops, device], 0.0)
            total = _summed(np.where(here & np.isfinite(longer), longer, 0.0))
            takes = np.maximum(0.0, total[groups.last] - total[groups.first]) + groups.exchange
            fits = (freed > 0) & (freed <= self.limits[other] - peaks[other])
            value = np.where(fits, np.minimum(freed, over) / np.maximum(takes, 1e-9), 0.0)
            best = np.argpartition(-value, min(PRICED, len(value) - 1))[:PRICED]
            found += [(float(value[group]), int(group), other) for group in best if value[group] > 0]
        found.sort(key=lambda move: (-move[0], move[1:]))
        return [self._moved(placement, device, group, other) for _, group, other in found[:PRICED]]

    def _moved(self, placement: IndexArray, device: int, group: int, other: int) -> IndexArray:
        """Return a placement with the ops of a group elsewhere, of those on a device that may be there."""
        rules, ops = self.problem.rules, self.groups.ops[self.groups.first[group] : self.groups.last[group]]
        leaders = np.unique(rules.group[ops[placement[ops] == device]])
        moves = np.zeros(self.graph.num_ops, bool)
        moves[leaders[rules.allowed[leaders, other]]] = True
        return np.asarray(np.where(moves[rules.group], other, placement), np.int32)


def _any_of(root: IndexArray, chosen: BoolArray) -> BoolArray:
    """Return whether any tensor of those that share a buffer is chosen, at the place of the one that they share."""
    found = np.zeros(len(root), bool)
    found[root[chosen]] = True
    return found


def _summed(values: NDArray[Any]) -> FloatArray:
    """Return the sums up to each place, 0 first."""
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
