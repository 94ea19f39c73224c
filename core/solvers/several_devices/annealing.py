"""Simulated annealing on several devices: of the makespan here, of the peak in `peak_annealing`.

Kirkpatrick, Gelatt and Vecchi 1983 (Metropolis steps, geometric cooling); keys find a good placement at once, moves of
single ops then refine what no keys decode to. The decoders, and what each part is worth:
`docs/methods/several-devices.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from ...kernels.cost_model import Steps, new_state, new_steps, no_steps
from ...kernels.graph_arrays import graph_arrays
from ...kernels.links import links_of
from ...kernels.several_devices.courses import new_course
from ...kernels.several_devices.group_moves import NO_MOVES, moves_of
from ...kernels.several_devices.lazy_decoder import new_lazy
from ...kernels.several_devices.lazy_keys import anneal_keys, price_keys
from ...kernels.several_devices.makespans import anneal_sequence
from ...kernels.several_devices.random_keys import new_prices
from ...kernels.several_devices.sequences import Aim, Walk, run_sequence
from ...problem import Problem
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search, Stopped
from ..machines.plan_annealing import anneal
from ..one_device import order_search
from . import peak_annealing
from .balanced_cuts import BalancedCuts
from .cooling import Cooling
from .gp_dfs import merge
from .lazy_keys import EXCESS_WEIGHT, aim_of, as_schedule, has_time_to_decode, seconds_to_decode, start_keys
from .list_schedule import list_schedule
from .move_draws import MoveDraws
from .op_groups import groups_in_time
from .peak_annealing import POWER, LeastPeak

LARGEST_IMPATIENT = 10_000
"""Ops up to which keys may have little patience: one device then takes all, and ready ops pile up on it."""
PRICED_AGAIN = 4
"""Of so many ops about one is priced again after a move, where the makespan alone counts."""
HEAVIER, LIGHTER, HEAVIEST = 1.5, 0.9, 1e6
OPS_PER_WINDOW = (36, 108)
SHARE_OF_TRIES, SHARE_OF_CUTS = 0.05, 0.2
"""Of the budget left: each size of window is tried, and once more for longer if that is clearly better."""
CLEARLY_BETTER = 0.95
LARGEST_IN_CYCLES, KEYS_PER_OP = 64, 40
MOVES_PER_OP, LONGER, HOTTER, HOTTER_PEAK = 4000, 1.3, (10.0, 1.0), 20.0
"""Of small graphs: how long a first cycle is, how much longer each next one, and how much hotter they are: in turn for
the makespan; for the peak all but the first.

What is much hotter shares out a few large weights, by worse plans in between.
"""
SECONDS_TO_MERGE = 2e-5
SECONDS_OF_KEYS = 0.01
"""Seconds between two looks at the clock, about: keys of a dense graph take milliseconds each."""


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Temperatures are relative: at 0.001 a schedule 0.1% worse is accepted with probability 1/e."""

    keys: float = parameter(
        0.2, "share of the budget spent on the lazy decoder's keys, for the runtime task", low=0.0, high=1.0
    )
    fitting: float = parameter(
        0.7, "largest share of the budget spent to keep the memory limit, for the runtime task", low=0.0, high=1.0
    )
    hot: float = parameter(
        5e-4,
        "first temperature, for the runtime task; at 0.001 a schedule 0.1% worse is taken with probability 1/e",
        low=1e-9,
        high=1.0,
    )
    cold: float = parameter(5e-5, "last temperature, for the runtime task, likewise", low=1e-9, high=1.0)
    memory_hot: float = parameter(1e-3, "first temperature, for the memory task, likewise", low=1e-9, high=1.0)
    memory_cold: float = parameter(
        3e-5,
        "last temperature, for the memory task, likewise; graphs of fewer than 1,000 ops end warmer, in proportion",
        low=1e-9,
        high=1.0,
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Anneal until the budget ends; the best schedule known is one of the starts.

    Makespan: keys, then, if the best exceeds the memory limit, the search for the least peak until a schedule
    fits, then sequences. Temperatures fall with the evaluations spent if these are limited, else with the time.
    Where a small graph's transfers are free and time alone is limited, they fall with the evaluations of cycles, of
    which there are more in more time: a search that goes on afterwards, as `auto` does, misses only the last of them.
    """
    p = parameters
    problem = search.problem
    if not problem.is_plain:
        anneal(search, p.hot if problem.task == "runtime" else p.memory_hot)
        return
    if search.best is None:
        search.offer_order(problem.graph.input_order)
    for_peak = p.memory_hot, p.memory_cold
    if problem.task == "memory":
        if _is_in_cycles(search):
            _minimise_peak_in_cycles(search, *for_peak)
        else:
            LeastPeak(search, int(search.lower_bound)).run(*for_peak)
    else:
        _minimise_makespan(search, p, for_peak)
    search.must_stop()  # a clock of its own may have seen first that time is up


def warm_up(tiny: Problem) -> Problem:
    """Compile what the search on one device needs, too; more is done under a limit that cannot be kept."""
    if not tiny.is_plain:
        return tiny
    order_search.warm_up(tiny)
    list_schedule(tiny)
    peak_annealing.warm_up(tiny)
    return tiny if tiny.memory_limit is None else replace(tiny, memory_limit=1)


def _is_in_cycles(search: Search) -> bool:
    """Whether a small graph is annealed in cycles: transfers are free, and time alone is limited."""
    problem, is_counted = search.problem, search.evaluations_left < math.inf
    is_free = problem.task == "memory" or (problem.memory_limit is None and not problem.is_paid)
    is_small = problem.devices > 1 and problem.graph.num_ops <= LARGEST_IN_CYCLES
    return is_small and is_free and search.is_timed and not is_counted


def _minimise_peak_in_cycles(search: Search, hot: float, cold: float) -> None:
    """Search for the least peak, then anneal it anew, for longer each time, until time ends."""
    moves = float(MOVES_PER_OP * search.problem.graph.num_ops)
    with search.limited(int(moves)):
        LeastPeak(search, int(search.lower_bound)).run(hot, cold)
    while not search.must_stop():
        moves *= LONGER
        with search.limited(int(moves)):
            LeastPeak(search, int(search.lower_bound)).anneal(HOTTER_PEAK * hot * POWER, HOTTER_PEAK * cold * POWER)


def _minimise_makespan(search: Search, p: Parameters, for_peak: tuple[float, float]) -> None:
    if search.problem.devices > 1 and search.problem.graph.num_ops > LARGEST_IMPATIENT:
        schedule = list_schedule(search.problem, search.must_stop)  # where there may be no time to decode any keys
        if schedule is not None:
            search.evaluations += 1
            search.offer(schedule)
    if search.must_stop():
        return
    annealing = _Annealing(search)
    starts = start_keys(search.problem)
    if search.problem.graph.num_ops > LARGEST_IMPATIENT:
        annealing.price_starts(starts[:-1])
    elif annealing.price_starts(starts):
        annealing.over_cuts()
        if _is_in_cycles(search):
            annealing.over_cycles(p.hot, p.cold)
            return
        annealing.over_keys(p.keys, p.hot, p.cold)
    if search.best_fitness[0] > 0:
        assert search.problem.memory_limit is not None
        LeastPeak(search, search.problem.memory_limit, p.fitting).run(*for_peak)
        annealing.start_from_best()
    annealing.over_sequences(p.hot, p.cold)


class _Annealing:
    """The kernels' scratch, the sequence of the best schedule so far, and the clock of the budget."""

    def __init__(self, search: Search) -> None:
        self.search, self.problem = search, search.problem
        graph, devices = self.problem.graph, self.problem.devices
        self.ops = graph.num_ops
        self.arrays = graph_arrays(graph, devices)
        self.aim = aim_of(self.problem)
        self.state = new_state(self.arrays, devices, self.aim.memory)
        self.lazy, self.links = new_lazy(self.arrays, devices), links_of(self.problem)
        self.order, self.placement = np.empty(self.ops, np.int32), np.zeros(self.ops, np.int32)
        self.keys = np.empty(0, np.float32)
        self.move_draws: MoveDraws | None = None
        self.group_moves = NO_MOVES
        self.steps = new_steps(self.arrays, devices)
        self.cooling = Cooling(search)
        self.seconds_to_decode = seconds_to_decode(self.problem)
        self.start_from_best()

    def start_from_best(self) -> None:
        """Take the sequence of the best schedule so far."""
        assert self.search.best is not None
        self.order[:] = self.search.best.op_order()
        self.placement[:] = self.search.best.placement(self.problem.graph)

    def price_starts(self, keys: Any) -> bool:
        """Decode and price rows of keys as far as the budget goes, and keep the best; False if there was none."""
        search = self.search
        prices = new_prices(1)
        best: tuple[int, float] | None = None
        for row in keys:
            if search.must_stop() or not has_time_to_decode(search, self.seconds_to_decode):
                break
            price_keys(self.arrays, self.state, self.lazy, row[None], self.aim, self.links, prices)
            search.evaluations += 1
            fitness = self.problem.fitness(int(prices.peaks[0]), float(prices.runtimes[0]))
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
        if not self.problem.is_paid or search.must_stop():
            return
        cuts = BalancedCuts(search, self.arrays)
        for share in (SHARE_OF_TRIES, SHARE_OF_CUTS):
            for ops_per_window in OPS_PER_WINDOW:
                if not search.must_stop():
                    self._offer_cut(cuts, ops_per_window, share)
            if search.best_fitness >= (excess, CLEARLY_BETTER * value):
                break
        self.start_from_best()

    def _offer_cut(self, cuts: BalancedCuts, ops_per_window: int, share: float) -> None:
        """Offer a placement that cuts little as a sequence, and as a merger of an order per device."""
        search, problem = self.search, self.problem
        self.placement[:], self.order[:] = cuts.placement(ops_per_window, share), cuts.by_start
        if search.must_stop():
            return
        search.evaluations += 1
        self._offer()
        if search.must_stop() or not search.has_time_for(SECONDS_TO_MERGE * self.ops):
            return
        search.evaluations += 1
        device_of = self.placement[cuts.by_level]
        orders = [cuts.by_level[device_of == device].tolist() for device in range(problem.devices)]
        with suppress(Stopped):
            search.offer(merge(problem, self.placement, orders, search.heeding))

    def over_keys(self, share: float, hot: float, cold: float) -> None:
        """Anneal the best keys until a share of the budget that is left is spent."""
        start = self.cooling.progress()
        aim = aim_of(self.problem, scale=self._scale())
        energy = np.inf
        search = self.search
        while not search.must_stop() and has_time_to_decode(search, self.seconds_to_decode):
            if (now := (self.cooling.progress() - start) / max(1 - start, 1e-9)) >= share:
                return
            first = hot * (cold / hot) ** (now / share)
            energy = self._anneal(6, anneal_keys, (self.lazy, self.keys, aim), first, energy)

    def over_cycles(self, hot: float, cold: float) -> None:
        """Anneal some keys, then the sequence of the best schedule anew, for longer each time, until time ends."""
        search, moves = self.search, float(MOVES_PER_OP * self.ops)
        with search.limited(KEYS_PER_OP * self.ops):
            self.cooling = Cooling(search)
            self.over_keys(1.0, hot, cold)
        for hotter in cycle(HOTTER):
            if search.must_stop():
                return
            with search.limited(int(moves)):
                self.cooling = Cooling(search)
                self.start_from_best()
                self.over_sequences(hotter * hot, cold)
            moves *= LONGER

    def over_sequences(self, hot: float, cold: float) -> None:
        """Anneal the sequence of the best schedule until the budget ends."""
        search = self.search
        if search.must_stop():
            return
        start = self.cooling.progress()
        order = self.order.copy()
        position = np.empty(self.ops, np.int32)
        position[order] = np.arange(self.ops)
        aim, energy = self._sequence_aim()
        self.state.placement[:] = self.placement
        self.group_moves = moves_of(groups_in_time(search))
        columns = 6 if self.group_moves.groups.first.size else 5
        scratch = self.lazy.due, new_course(self.arrays, self.problem.graph.input_order, self.links)
        if self.problem.is_paid and not aim.memory:
            self.move_draws = MoveDraws(self.problem, self.arrays, self.state.placement)
        while not search.must_stop() and (now := self.cooling.progress()) < 1.0:
            temperature = hot * (cold / hot) ** ((now - start) / (1.0 - start))
            energy = self._anneal(columns, anneal_sequence, (scratch, order, position, aim), temperature, energy)
            if aim.memory and not search.must_stop():
                aim, energy = self._reweigh(aim, order)

    def _reweigh(self, aim: Aim, order: Any) -> tuple[Aim, float]:
        """Weigh the excess more while the present sequence has any, else less; return what it costs then."""
        search = self.search
        search.evaluations += 1
        _, energy, peak, runtime = self._run(aim, order)
        factor = HEAVIER if peak > aim.limit else LIGHTER
        weight = min(max(EXCESS_WEIGHT, aim.weight * factor), HEAVIEST)
        penalty = (energy - aim.scale * runtime) * weight / aim.weight
        return aim._replace(weight=weight), penalty + aim.scale * runtime

    def _scale(self) -> float:
        return 1.0 / max(self.search.lower_bound, 1e-9)

    def _sequence_aim(self) -> tuple[Aim, float]:
        """Return what to minimise and what the sequence costs; a limit may be kept better just in time."""
        aim = aim_of(self.problem, scale=self._scale())
        both = [self._cost(aim)]
        if aim.memory and not self.search.must_stop():
            both.append(self._cost(aim._replace(together=False)))
        return min(both, key=lambda pair: pair[1])

    def _cost(self, aim: Aim) -> tuple[Aim, float]:
        self.search.evaluations += 1
        self.state.placement[:] = self.placement
        return aim, self._run(aim, self.order)[1]

    def _run(self, aim: Aim, order: Any, steps: Steps | None = None) -> tuple[int, float, int, float]:
        """Run an order on the placement that `state` holds, and write its steps if they are asked for."""
        links, steps = self.links, steps or no_steps()
        return run_sequence(self.arrays, self.state, self.lazy.due, order, aim, links, np.inf, steps)

    def _anneal(
        self, columns: int, kernel: Callable[..., float], arguments: tuple[Any, ...], temperature: float, energy: float
    ) -> float:
        """Make some moves at one temperature, offer the best, and return what the present schedule costs."""
        search = self.search
        moves = self.cooling.moves(self.ops if self.aim.memory or kernel is anneal_keys else self.ops // PRICED_AGAIN)
        if kernel is anneal_keys:
            moves = min(moves, max(1, int(SECONDS_OF_KEYS / max(self.seconds_to_decode, 1e-9))))
        if self.move_draws:
            moves = min(moves, self.ops)
        excess, value = search.best_fitness
        best = np.array([min(excess, 2**62), value], np.float64)
        before = best.copy()
        draws = search.rng.random((moves, columns))
        if self.move_draws:
            self.move_draws.rewrite(draws)
        walk = Walk(temperature, energy, draws, best, self.order, self.placement, self.group_moves)
        energy = kernel(self.arrays, self.state, *arguments, self.links, walk)
        search.evaluations += moves
        if tuple(best) < tuple(before):
            self._offer(arguments[-1])
        return energy

    def _offer(self, aim: Aim | None = None) -> None:
        """Offer the sequence in `order` and `placement` as a schedule."""
        present = self.state.placement.copy()
        self.state.placement[:] = self.placement
        count, *_ = self._run(aim or self.aim, self.order, self.steps)
        self.state.placement[:] = present
        items, targets = self.steps.items[:count], self.steps.targets[:count]
        self.search.offer(as_schedule(self.arrays.producer, self.placement, items, targets))
