"""Order and recomputation decided together, on one device: runs annealed from a known order."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...base.arrays import IndexArray, frozen
from ...kernels.runs.annealing import Aim, anneal_runs, new_annealing
from ...kernels.runs.sequences import new_sequence, run_graph, set_sequence
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search import parameters as base
from ...search.search import Search
from ..annealing import Annealing, reweighed

ORDER_SHARE = 0.25
MOST_TRIES, LEAST_BATCHES = 1000, 50  # between two temperatures
MOST_STEPS = 1_000_000  # tries times ops, so that time limits are kept
LEAST_TRIES = 150  # per op, to cool once more
FIRST_WEIGHT = 1e-3
UNLIMITED = 1e6
LEAST_PRICED = 0.01  # of the tries, counted where hardly any move is possible
FIRST_STEP, TARGET_SHARE = 0.3, 0.15
MOST_RUNS = 3  # times the ops, of a sequence


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """How the annealing cools, and whether the first runs may move."""

    hot: float = base.parameter(1e-3, "first temperature, as a share of the time of all ops", low=0.0, high=1.0)
    cold: float = base.parameter(1e-4, "last temperature, likewise", low=0.0, high=1.0)
    rounds: int = base.parameter(3, "how often to cool at most, each time from the best so far", low=1)
    order: Literal["searched", "input"] = base.parameter(
        "searched", "searched, too; input: first runs keep the input order"
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Look for an order that needs nothing to run again, then anneal runs from the best one."""
    search.offer_order(search.problem.graph.input_order)
    moves_first = parameters.order == "searched"
    if moves_first and not search.exhausted():
        _search_order(search)
    if search.exhausted() or math.isinf(search.lower_bound):
        return
    runs = AnnealedRuns(search, moves_first)
    if search.problem.task == "memory":
        _least_peak(runs, parameters)
    else:
        _least_time(runs, parameters)


def warm_up(tiny: Problem) -> Problem:
    """Return a problem whose orders do not keep the limit, so that runs are annealed."""
    return replace(tiny, task="runtime", memory_limit=1, runtime_limit=None)


def parts(problem: Problem, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods used for a problem."""
    return ["order-search", "recompute"]


def _search_order(search: Search) -> None:
    """Offer an order of little memory, without repeated runs: the first that keeps the limit, if there is one."""
    problem = search.problem
    assert search.best is not None

    with search.on(
        Problem(problem.graph),
        evaluations=ORDER_SHARE * search.evaluations_left,
        until=search.share_of_time(ORDER_SHARE),
        lower_bound=0 if problem.memory_limit is None else problem.memory_limit,  # all that is wanted
        jobs=search.jobs,
        reports=True,
    ) as inner:
        inner.offer(Schedule.single_device(search.best.first_runs()))
        inner.run("order-search")
    assert inner.best is not None
    search.offer(inner.best)


class AnnealedRuns:
    """A sequence of runs that is annealed, and the best found so far."""

    def __init__(self, search: Search, moves_first: bool) -> None:
        problem = search.problem
        self.search, self.moves_first = search, moves_first
        self.total = float(problem.op_times.sum())
        self.graph = run_graph(problem.graph)._replace(runtime=problem.op_times)
        capacity = MOST_RUNS * problem.graph.num_ops + 64
        self.runs = new_sequence(self.graph, capacity)
        self.state = new_annealing(self.graph, capacity, int(search.rng.integers(2**31)))
        self.aim = Aim(0, 0.0, 0.0, 0.0, moves_first)
        self.most_tries = max(1, min(MOST_TRIES, MOST_STEPS // problem.graph.num_ops))

    def start(self, order: IndexArray, limit: int, allowed: float) -> None:
        """Begin at a sequence, under a limit of bytes and with so much time that costs nothing."""
        runs, state = self.runs, self.state
        order = frozen(order, np.int32)
        if len(order) > len(runs.items) or not set_sequence(self.graph, runs, order):
            order = Schedule.single_device(order).first_runs()  # some op runs oftener than here is room for
            set_sequence(self.graph, runs, order)
        excess = np.maximum(runs.memory[: len(order)] - limit, 0).sum(dtype=np.float64)
        time_taken = self.search.problem.op_times[order].sum()
        state.values[:] = [excess, time_taken, max(time_taken, allowed), excess]
        state.best[: len(order)], state.best_length[0] = order, len(order)
        # Of a limit that was not kept before, the weight has grown to what it takes by now.
        is_known = limit == self.aim.limit and excess > 0
        weight = self.aim.weight if is_known else FIRST_WEIGHT * self.total / limit
        self.aim = Aim(limit, allowed, weight, 0.0, self.moves_first)

    def best_order(self) -> IndexArray:
        """Return the best sequence of the annealing, or that of the search before there is one."""
        if self.state.best_length[0]:
            return self.state.best[: self.state.best_length[0]].copy()
        assert self.search.best is not None
        return self.search.best.op_order()

    @property
    def keeps_both(self) -> bool:
        """Whether the best keeps the limit within the time that costs nothing."""
        return bool(self.state.values[3] == 0 and self.state.values[2] <= self.aim.allowed * (1 + 1e-12))

    def cool(self, parameters: Parameters, annealing: Annealing) -> bool:
        """Anneal until the budget ends or both limits are kept, and offer the best; whether both are kept."""
        for temperature in annealing.temperatures(parameters.hot, parameters.cold):
            if self.keeps_both:
                break
            self.step(temperature, annealing)
        self.search.offer(Schedule.single_device(self.best_order()))
        return self.keeps_both

    def step(self, temperature: float, annealing: Annealing) -> None:
        """Try some moves at a temperature, given as a share of the time of all ops."""
        search = self.search
        tries = int(min(self.most_tries, search.evaluations_left, 1 + annealing.affordable() / LEAST_BATCHES))
        walk, unit = annealing.walk(self.total * temperature, (tries, 0), (), ()), self.total / self.aim.limit
        weight = reweighed(self.aim.weight, self.state.values[0] > 0, least=1e-6 * unit, most=1e3 * unit)
        self.aim = self.aim._replace(temperature=walk.temperature, weight=weight)
        priced = anneal_runs(self.graph, self.runs, self.state, self.aim, tries)
        annealing.spend(walk, max(priced, tries * LEAST_PRICED))


def _least_time(runs: AnnealedRuns, parameters: Parameters) -> None:
    """Cool several times, each from the best so far; less often where there is time for few moves of each op."""
    search = runs.search
    limit = search.problem.memory_limit
    assert limit is not None
    runs.start(runs.best_order(), limit, 0.0)
    whole = Annealing(search)
    runs.step(parameters.hot, whole)  # says how many moves there is time for
    rounds = whole.affordable() / (LEAST_TRIES * search.problem.graph.num_ops)
    for left in range(int(max(1, min(parameters.rounds, rounds))), 0, -1):
        if search.exhausted():
            return
        runs.start(runs.best_order(), limit, 0.0)
        runs.cool(parameters, Annealing(search, 1 / left))


def _least_peak(runs: AnnealedRuns, parameters: Parameters) -> None:
    """Cool towards one target after the other below the best peak, nearer to it each time that one is not reached."""
    search, share = runs.search, FIRST_STEP
    allowed = search.problem.runtime_limit
    while not search.exhausted():
        assert search.best is not None and search.best_simulation is not None
        peak = search.best_simulation.peak
        step = math.ceil(share * (peak - search.lower_bound))
        runs.start(search.best.op_order(), peak - step, UNLIMITED * runs.total if allowed is None else allowed)
        if not runs.cool(parameters, Annealing(search, TARGET_SHARE)):
            if step <= 1:
                return
            share /= 2
