"""Least peak memory on several devices: an order for one device, its placement by beams, then annealing."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ...base.speed import seconds_for
from ...bounds.bounds import MIN_CUT_WORK_SHARED, even_share, lower_bound, min_cuts, room_below, split_buffers
from ...bounds.order_proofs import Precedences
from ...graph.graph import CostGraph
from ...kernels.cost_model import NO_LIMIT, machine_arrays, new_steps
from ...kernels.graph_arrays import GraphArrays, graph_arrays, most_transfers
from ...kernels.orders.order_memory import memory_of_steps
from ...kernels.placements import incremental_peak, placement_beam
from ...kernels.placements.sequences import Sequence, places_of
from ...model.simulator import Simulation
from ...problem.machine import Machine
from ...problem.problem import Problem
from ...problem.residents import model_of
from ...problem.schedule import Schedule
from ...search.plans import Plans, as_schedule
from ...search.search import Cancelled, Search
from ..annealing import Annealing
from ..orders import order_search
from ..orders.baselines import kahn_order
from .chromosomes import LazyChromosomes, decoding_work, has_time_to_decode, keys_along, spreading_work, start_keys
from .list_schedulers import list_schedule

SHARE_OF_ORDERS, SHARE_OF_BEAMS, SHARE_OF_SPREADS, SHARE_OF_CUTS, SHARE_OF_OTHERS = 0.2, 0.15, 0.1, 0.05, 0.1
SHARE_OF_PROOFS = 0.1
LEAST_SAVED = 0.5  # of the possible saving on several devices: an order along which beams save less is a bad one
COLD_OPS, WARMEST = 1000, 10.0  # graphs of fewer ops end warmer by at most so much: a move changes more of their bytes
FIRST_BEAM, LARGEST_BEAM, LEAST_DROP = 8, 1024, 200
CELLS_PER_CALL = 1_000_000
MOST_CELLS = 2**23
PLACES_AGAIN, USES_AGAIN = 0.05, 2.0  # of all places those priced again after a move; reads of its tensors' uses
POWER, STEEPER = 16, (1, 2, 4, 8)
"""Penalties grow with this power of the bytes, and are so much steeper near the peak, one after the other; so are
accepted rises. A sum over thousands of places says little of the largest before it is steep."""
AIMED = 0.8  # of the moves, at first, those of ops that fill the fullest places; fewer and fewer, none at last


class LeastPeak:
    """Search for schedules of low peak, in bytes, which count more on devices with less room; each is offered."""

    # Under the runtime task the goal is to keep the memory limits; else it is the lower bound.

    def __init__(self, search: Search, share: float = 1.0) -> None:
        self.search, self.problem = search, search.problem
        self.graph, self.devices = self.problem.graph, self.problem.devices
        self.model = model_of(self.graph)
        self.homes = self.graph.num_ops - self.model.num_ops
        self.arrays, self.machine = machine_arrays(self.problem)
        self.own = self.arrays if self.model is self.graph else graph_arrays(self.model, self.devices)
        self.lifetimes = incremental_peak.new_lifetimes(self.arrays, self.machine)
        self.annealing = Annealing(search, share)
        self.places = places_of(self.problem.rules.group, self.problem.rules.allowed)
        are_alone = not self.problem.rules.groups
        self.is_free = self.model is self.graph and bool(self.places.allowed.all()) and are_alone
        assert search.best is not None and search.best_simulation is not None
        limits, self.goal = self.machine.limits.astype(np.float64), int(search.lower_bound)
        if self.problem.task == "runtime":
            self.goal = int(self.machine.limits[self.machine.limits < NO_LIMIT].max())
            self.weight = self.goal / limits
        else:
            self.weight = self.problem.byte_weights
            if len({*self.problem.memory_limits}) > 1:
                self.weight = np.maximum(self.weight, search.best_value / limits)
        self.scaled = self.weight[:0] if (self.weight == 1.0).all() else self.weight
        self.best, self.peak = search.best, self._peak_of(search.best_simulation)
        self.buffers, self.bound = split_buffers(self.model), room_below(self.problem, search.lower_bound)

    def _peak_of(self, costs: Simulation) -> int:
        return int((costs.peak_per_device * self.weight).max())

    def run(self, hot: float, cold: float) -> None:
        """Search until the goal is met or the budget spent; temperatures are those of the peak."""
        if self.must_stop():
            return
        first = self._own_order(self.best)
        one = self.search_orders(first, SHARE_OF_ORDERS)
        assert one.best is not None
        self.search_placements(one.best.op_order())
        self.spread()
        alone = one.best_value * float(self.problem.byte_weights.min())
        if self.peak >= alone:
            self.deal(one.best.op_order())
        self.prove(one.best.op_order())
        least = max(self.goal, one.best_value / float((1.0 / self.problem.byte_weights).sum()))
        if alone - self.peak < LEAST_SAVED * (alone - least):
            with suppress(Cancelled):
                self.try_others([first, one.best.op_order()])
        warmer = min(WARMEST, max(1.0, COLD_OPS / self.graph.num_ops))
        self.anneal(hot * POWER, max(cold, min(hot, warmer * cold)) * POWER)

    def must_stop(self) -> bool:
        """Whether the goal is met or the budget spent."""
        return self.search.exhausted() or self.peak <= self.goal or self.annealing.progress() >= 1.0

    def try_others(self, tried: list[IndexArray]) -> None:
        """Send beams along other orders of low peak on one device, which may share its bytes out more evenly."""
        breadth_first = kahn_order(self.model, last_in_first_out=False, heed=self.search.cancellable)
        for start in (self.model.input_order, breadth_first):
            if self.must_stop() or any(np.array_equal(start, order) for order in tried):
                continue
            found = self.search_orders(start, SHARE_OF_OTHERS).best
            assert found is not None
            order = found.op_order()
            if not any(np.array_equal(order, other) for other in tried):
                self.follow(order)
            tried += [start, order]

    def search_orders(self, start: IndexArray, share: float) -> Search:
        """Return a search that has found an order of low peak on one device; its bound, shared out, holds here too."""
        search, problem = self.search, Problem(self.model, "memory")
        evaluations = max(1.0, share * self.annealing.evaluations)
        until = time.monotonic() + share * self.annealing.seconds
        with search.on(problem, evaluations=evaluations, until=until, lower_bound=lower_bound(problem)) as one:
            one.offer_order(start)
            order_search.solve(one, order_search.Parameters())
        if self.buffers is self.graph.buffers:
            self._share_bound(int(one.lower_bound))
        return one

    def _share_bound(self, total: int) -> None:
        """Raise the bound to an even share of the bound on one device."""
        if self.problem.task == "memory":
            self.search.raise_lower_bound(even_share(self.problem, total))
            self.goal = max(self.goal, int(self.search.lower_bound))
            self.bound = max(self.bound, total)

    def prove(self, order: IndexArray) -> None:
        """Raise the bound by minimum cuts, then by refuting peaks, given an order of low peak on one device."""
        search, ops = self.search, self.graph.num_ops
        if self.must_stop() or self.problem.task != "memory" or self.homes:
            return
        present = int(self.graph.persistent.sum())
        memory = memory_of_steps(self.buffers, order)
        if self.buffers is not self.graph.buffers:
            stop, has_time_for = self._stop_after(SHARE_OF_CUTS), search.has_time_for
            limits: Any = {"work": MIN_CUT_WORK_SHARED, "stop": stop, "has_time_for": has_time_for}
            for term, _ in min_cuts(self.buffers, order, memory, self.bound - present, **limits):
                self._share_bound(term + present)
        seconds = order_search.seconds_to_relate(ops) / SHARE_OF_PROOFS
        if self.must_stop() or ops > order_search.LARGEST_RELATED or not search.has_time_for(seconds):
            return
        precedences = Precedences(self.buffers, order, memory)
        stop = self._stop_after(SHARE_OF_PROOFS, lambda: precedences.flows >= self.annealing.evaluations)
        high = min(int(memory.max()), room_below(self.problem, self.peak) - present)
        for bound in precedences.bounds(self.bound - present, high, stop):
            self._share_bound(bound + present)

    def _stop_after(self, share: float, is_enough: Callable[[], bool] = lambda: False) -> Callable[[], bool]:
        """Return the test whether to stop: after a share of the time from now on, or if something is enough."""
        latest = min(self.search.deadline, time.monotonic() + share * self.annealing.seconds)
        return lambda: self.must_stop() or is_enough() or self.search.is_past(latest)

    def search_placements(self, order: Any, share: float = SHARE_OF_BEAMS) -> None:
        """Send beams along an order under falling limits: farther down after a success, wider after failures."""
        progress = self.annealing.progress
        until = progress() + share
        beams = _Beams(self, order, until + share)
        largest = beams.largest
        size, drop = int(min(FIRST_BEAM, largest, self.search.evaluations_left)), max(1, (self.peak - self.goal) // 4)
        while not self.must_stop() and progress() < until and size <= min(largest, self.search.evaluations_left):
            limit = max(self.goal, self.peak - drop)
            affordable = (share for share in beams.shares if size <= self.search.evaluations_left)
            if any(beams.send(size, limit, share) for share in affordable):
                drop = min(2 * drop, max(1, (self.peak - self.goal) // 2))
            elif drop > max(1, self.peak // LEAST_DROP):
                drop //= 2
            else:
                size *= 2

    def spread(self) -> None:
        """Offer schedules of a few keys, which put each op where it needs least, as far as that takes little time."""
        search, until = self.search, self.annealing.progress() + SHARE_OF_SPREADS
        if self.problem.task != "memory" or not self.is_free:
            return
        seconds = seconds_for(spreading_work(self.problem) / SHARE_OF_SPREADS)
        with LazyChromosomes(search) as chromosomes:
            for keys in start_keys(self.problem):
                if self.must_stop() or self.annealing.progress() >= until or not search.has_time_for(seconds):
                    return
                search.spend(1)
                self.offer(chromosomes.decode(keys))

    def deal(self, order: IndexArray) -> None:
        """Offer a schedule whose ops are dealt out at random: far better to anneal from than one device."""
        if self.must_stop():
            return
        self.search.spend(1)
        placement = self.search.rng.integers(0, self.devices, self.model.num_ops, np.int32)
        self._offer_sequence(self._sequence(order, placement))

    def follow(self, order: IndexArray) -> None:
        """Send narrow beams along an order, as long as each finds a lower peak."""
        beams, drop = _Beams(self, order), max(1, self.peak // LEAST_DROP)
        size = min(FIRST_BEAM, beams.largest)
        while not self.must_stop() and size <= self.search.evaluations_left:
            limit = max(self.goal, self.peak - drop)
            if not any(beams.send(size, limit, share) for share in beams.shares):
                return
            drop = min(2 * drop, max(1, (self.peak - self.goal) // 2))

    def anneal(self, hot: float, cold: float) -> None:
        """Anneal the best sequence, the temperature falling with the rest of the budget, penalties ever steeper."""
        search, ops = self.search, self.graph.num_ops
        if self.must_stop():
            return
        present, found = self._best_sequence(), self._best_sequence()
        annealing, least = self.annealing, self.peak
        # What a move costs, about, in ops priced: some places, and all uses of what its op makes or reads
        uses = np.diff(self.arrays.consumer_ptr) + 1.0
        work = int(PLACES_AGAIN * ops + USES_AGAIN * (uses**2).sum() / max(1, ops))
        steeper, priced, offered = 0, -math.inf, search.evaluations
        scale = incremental_peak.Scale(0.0, 1.0, self.scaled)
        aimed = PeakDraws(self.problem.graph, self.arrays, self.lifetimes, present)
        for temperature in annealing.temperatures(hot, cold):
            if self.must_stop():
                break
            stage = STEEPER[min(len(STEEPER) - 1, int(annealing.part * len(STEEPER)))]
            if stage != steeper or search.evaluations - priced > incremental_peak.MOST_MOVES:
                steeper = stage
                scale = incremental_peak.Scale((1.0 - 1.0 / stage) * least, max(1.0, float(least)), self.scaled)
                incremental_peak.price_lifetimes(self.arrays, self.lifetimes, present, scale)
                search.spend(1)
                priced = search.evaluations
            walk = annealing.walk(steeper * temperature, (annealing.moves(work), 6), found, self.places, (0, least))
            aimed.rewrite(walk.draws, AIMED * (1.0 - annealing.part))
            given = self.arrays, self.lifetimes, present, scale, self.machine.first_home
            incremental_peak.anneal_lifetimes(*given, walk)
            annealing.spend(walk)
            least = int(walk.found[1])
            if least < self.peak and (least <= self.goal or search.evaluations - offered >= ops):
                offered = search.evaluations
                self._offer_sequence(found)
        if least < self.peak:
            self._offer_sequence(found)

    def offer(self, schedule: Schedule) -> None:
        """Offer a schedule, and remember the one of least peak."""
        peak = self._peak_of(self.search.offer(schedule))
        if peak < self.peak:
            self.best, self.peak = schedule, peak

    def _offer_sequence(self, sequence: Sequence) -> None:
        """Build a sequence's schedule: of the transfers in one place, those that leave the fullest device first."""
        ops, devices = self.graph.num_ops, self.devices
        order, placement = sequence.order, sequence.placement
        sequence.position[order] = np.arange(ops)
        cells, early, late = self._transfers(sequence)
        after = np.maximum(np.where(sequence.late[cells] | (late < early), late, early), self.homes - 1)
        tensors, targets = np.divmod(cells, devices)
        items = np.concatenate((order, ~tensors))
        to = np.concatenate((placement[order], targets))
        source = np.concatenate((placement[order], placement[self.arrays.producer[tensors]]))
        steps = np.argsort(np.concatenate((2 * np.arange(ops), 2 * after + 1)), kind="stable")
        self.offer(Schedule.from_steps(items[steps], source[steps], to[steps]))

    def _transfers(self, sequence: Sequence) -> IndexArray:
        """Return the transfers, `tensor * devices + target`, and after which places if early, and if late."""
        found = np.empty((3, most_transfers(self.arrays, self.devices)), np.int32)
        return found[:, : incremental_peak.find_transfers(self.arrays, self.lifetimes, sequence, *found)]

    def _best_sequence(self) -> Sequence:
        """Return the best schedule as a sequence, its transfers early or late, whichever is nearer."""
        best = self.best
        return self._sequence(self._own_order(best), best.placement(self.graph), best.items, best.targets)

    def _own_order(self, schedule: Schedule) -> IndexArray:
        order = schedule.op_order()
        return order[order < self.model.num_ops]

    def _sequence(self, order: IndexArray, placement: IndexArray, items: Any = (), targets: Any = ()) -> Sequence:
        """Return a sequence of the model's own ops, on devices where they may be, residents first where it has none."""
        ops, own, cells = self.graph.num_ops, self.model.num_ops, self.graph.num_tensors * self.devices
        if not self.is_free:
            full = np.zeros(ops, np.int32)
            full[: len(placement)] = placement
            full = self.problem.rules.kept(full)
            placement = Plans(self.problem).place_homes(full) if len(placement) < ops else full
        order = np.concatenate((np.arange(own, ops, dtype=np.int32), order)).astype(np.int32)
        late = np.ones(cells, np.bool_)
        sequence = Sequence(order, np.empty(ops, np.int32), placement.astype(np.int32), late)
        sequence.position[order] = np.arange(ops)
        if len(items):
            after, sent = np.zeros(cells, np.int32), items < 0
            place = np.cumsum((items >= 0) & (items < own)) + self.homes - 1
            after[~items[sent] * self.devices + targets[sent]] = place[sent]
            sent_to, early, latest = self._transfers(sequence)
            late[sent_to] = 2 * after[sent_to] >= early + latest
        return sequence


def warm_up(tiny: Problem) -> None:
    """Compile the kernels after a better placement or sequence: on a tiny graph on two devices, if at all."""
    several = replace(tiny, task="memory", machine=Machine.equal(2, tiny.bandwidth, tiny.latency))
    search = Search(several, max_evaluations=20, lower_bound=-1.0)
    search.offer_order(tiny.graph.input_order)
    peaks = LeastPeak(search)
    peaks.goal = -1
    peaks.search_placements(tiny.graph.input_order, share=1.0)
    peaks._offer_sequence(peaks._best_sequence())


class _Beams:
    """Beams along one order, given up where time alone is limited and more of it is spent than a share."""

    def __init__(self, peaks: LeastPeak, order: Any, share: float = 1.0) -> None:
        self.peaks, self.share = peaks, share
        self.route, slots = placement_beam.new_route(peaks.own, order)
        self.slots = slots
        graph, devices = peaks.model, peaks.devices
        self.steps = new_steps(peaks.own, devices)
        self.shares = list({int(graph.persistent.sum()) // devices: None, 0: None})
        self.largest = max(1, min(LARGEST_BEAM, MOST_CELLS // (self.slots + graph.num_ops)))
        self.size = 0

    def send(self, size: int, limit: int, share: int) -> bool:
        """Look for a placement under a limit, a share of it set aside; offer it if there is one."""
        peaks, search = self.peaks, self.peaks.search
        graph, devices = peaks.model, peaks.devices
        if size > self.size:
            self.size = size
            self.states = placement_beam.new_states(size, self.slots, devices)
            self.choices = placement_beam.new_choices(size, graph.num_ops, devices)
        room = np.minimum(limit / peaks.weight, NO_LIMIT).astype(np.int64)
        beam = peaks.own, self.route, self.states
        limits = placement_beam.Limits(size, room, share, bool((room == limit).all()))
        self.choices.numbers[:] = search.rng.integers(0, 2**63, 8, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        stretch = max(1, CELLS_PER_CALL // (size * self.slots))
        placement_beam.start_beam(*beam)
        count = 1
        is_timed = math.isinf(peaks.annealing.evaluations)
        for first in range(0, graph.num_ops, stretch):
            if search.exhausted() or (is_timed and peaks.annealing.progress() >= self.share):
                return False
            last = min(graph.num_ops, first + stretch)
            count, expanded = placement_beam.extend_beam(*beam, self.choices, limits, first, last, count)
            search.spend(expanded / graph.num_ops)
            if count == 0:
                return False
        steps = placement_beam.trace_beam(*beam, self.choices, limits, count, self.steps)
        items, targets = self.steps.items[:steps], self.steps.targets[:steps]
        placement = np.empty(graph.num_ops, np.int32)
        placement[items[items >= 0]] = targets[items >= 0]
        if peaks.is_free:
            peaks.offer(as_schedule(peaks.arrays.producer, placement, self.steps, steps))
        else:
            peaks._offer_sequence(peaks._sequence(self.route.order, placement, items, targets))
        return True


class PeakDraws:
    """Rewrites the draws of an annealing for the peak: ops that fill the fullest places are drawn more often."""

    # An op's weight is the square root (else few ops would have all draws) of its bytes and of the tensors that it
    # makes or reads, each with the penalties of all places where it is held.

    def __init__(
        self, graph: CostGraph, arrays: GraphArrays, lifetimes: incremental_peak.Lifetimes, sequence: Sequence
    ) -> None:
        self.arrays, self.penalty, self.sequence, self.root = arrays, lifetimes.present.penalty, sequence, graph.root
        self.reader = np.repeat(np.arange(len(arrays.runtime)), np.diff(arrays.input_ptr))
        self.sums, self.drawn = np.empty(0), len(arrays.runtime)

    def rewrite(self, draws: FloatArray, share: float) -> None:
        """Let the first of each row of uniform draws stand for an op, drawn by weight."""
        ops = len(self.arrays.runtime)
        if self.drawn >= ops:
            weights = self._weights()
            self.sums = (share * weights / max(float(weights.sum()), 1e-300) + (1 - share) / ops).cumsum()
            self.drawn = 0
        self.drawn += len(draws)
        op = np.searchsorted(self.sums, draws[:, 0] * self.sums[-1], side="right")
        draws[:, 0] = (np.minimum(op, ops - 1) + 0.5) / ops

    def _weights(self) -> FloatArray:
        g, place, ops = self.arrays, self.sequence.position, len(self.arrays.runtime)
        until = np.concatenate(((0.0,), self.penalty.cumsum()))
        first = place[g.producer]
        last = np.where(g.is_final, ops - 1, first)
        np.maximum.at(last, g.inputs, place[self.reader])
        np.maximum.at(last, self.root, last)
        filled = (g.tensor_size * (until[last + 1] - until[first]))[self.root]
        made = np.bincount(g.producer, filled, ops)
        read = np.bincount(self.reader, filled[g.inputs], ops)
        filling = made + read + g.persistent * until[-1] + g.workspace * self.penalty[place]
        return np.asarray(np.sqrt(filling), np.float64)


def place(search: Search, orders: IndexArray) -> None:
    """Offer schedules on several devices that follow orders made for one, one of which has been offered there."""
    # Least peak: beams place the ops along each order, which has an equal share of the budget left. Least makespan: an
    # op's place in the order is its key in the lazy decoder; if no schedule keeps the memory limit, beams look for one
    # that does. Where devices differ or residents have a home, each op is where it ends first.
    problem = search.problem
    if problem.task == "runtime" or not problem.is_symmetric:
        rows = orders[: int(min(len(orders), search.evaluations_left))]
        if len(rows) and not search.exhausted():
            decode_keys(search, np.stack([keys_along(order) for order in rows]))
    if not problem.is_symmetric or (problem.task == "runtime" and search.best_fitness[0] == 0):
        return
    peaks = LeastPeak(search)
    for row, order in enumerate(orders):
        if peaks.must_stop():
            return
        peaks.search_placements(order, (1.0 - peaks.annealing.progress()) / (len(orders) - row))


def decode_keys(search: Search, keys: Any) -> None:
    """Offer the schedules of rows of keys of a makespan; a list schedule where there is no time to decode these."""
    graph = search.problem.graph
    if has_time_to_decode(search, decoding_work(search.problem)):
        with LazyChromosomes(search) as chromosomes:
            chromosomes.price(keys)
        return
    search.note(f"{graph.name}: there was no time for {search.working}'s decoder; this is a list schedule")
    schedule = list_schedule(search.problem, search.interrupt.is_set)
    if schedule is not None:
        search.spend(1)
        search.offer(schedule)
