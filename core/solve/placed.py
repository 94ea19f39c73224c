"""Schedules with addresses in an arena, or with what an allocator reserves, in the time of one search."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..addresses.packing import DEFAULT_SECONDS, IMPROVED_SHARE, Stop, never, rounded_up
from ..addresses.packing import warm_up as warm_up_packing
from ..addresses.placing import Placer
from ..base.arrays import IndexArray
from ..base.errors import UsageError
from ..base.speed import seconds_for
from ..graph.graph import CostGraph
from ..kernels.orders.order_memory import smooth
from ..model.allocators import MIB, Allocator
from ..model.reserved import Requests
from ..model.simulator import simulate
from ..model.verifier import verify_addresses
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..report.result import Result, changed_order
from ..search.method_spec import MethodSpec, check_supported
from ..search.registry import method_of
from ..search.search import Watcher
from ..search.warm_up import tiny_graph, warm_up
from .reserving import BLOCK_PLACES, reserve
from .solve import solve

SEARCH_SHARE, RESERVING_SHARE = 0.7, 0.4
"""Of the time, for the search; what it leaves is there for the addresses, or for what is reserved."""
PLACING, LEAST_SHARE = 50.0, 0.3
"""Numbers sorted in the time of first addresses, per op and read; and what the search has of a time too short."""
TIGHTENED = 3
"""Lower limits of live bytes that are tried, where ops run again and more than the limit is reserved."""
ROUNDS = 4
SMOOTHING_SHARE = 0.4
"""Of a round's time."""
MOVES_PER_OP, MOVES_AT_ONCE, READS_AT_ONCE = 60, 200, 20_000_000
POWERS = (2.0, 1.0, 4.0)


def solve_and_place(
    problem: Problem,
    spec: MethodSpec,
    alignment: int | None = None,
    allocator: Allocator | None = None,
    places: tuple[bool, ...] = BLOCK_PLACES,
    **budget: Any,
) -> Result:
    """Solve a problem; with an alignment or an allocator, for the least arena, or the least reserved, in its time."""
    if alignment is None and allocator is None:
        return solve(problem, spec, **budget)
    what = "weights that several devices read" if problem.machine.is_equal else "a machine"
    if alignment is not None and not problem.is_symmetric:
        raise UsageError(f"{problem.graph.name}: addresses are found for equal devices, not for {what}")
    check_allocator(problem, allocator)
    warm_up_places(alignment is not None, allocator is not None)
    seconds = spec.time_limit or budget.pop("time_limit", None)
    evaluations = spec.evaluations or budget.get("evaluations")
    if seconds is None and evaluations is None:
        seconds = spec.method.default_seconds
    check_supported(spec, problem, evaluations, budget.get("initial"))
    warm_up(problem, spec, evaluations, budget.get("jobs", 1))
    start = time.monotonic()
    share = SEARCH_SHARE if allocator is None else RESERVING_SHARE
    if alignment is not None and seconds:
        placing = seconds_for(PLACING * (problem.graph.num_ops + len(problem.graph.inputs[1])))
        share = max(LEAST_SHARE, min(share, 1 - placing / seconds))
    searched = None if seconds is None else share * seconds
    watcher = budget.pop("watcher", None) or Watcher()
    result = solve(problem, replace(spec, time_limit=None), time_limit=searched, watcher=watcher, **budget)
    stop = watcher.interrupt.is_set
    default = math.inf if alignment is None else DEFAULT_SECONDS
    left = default if seconds is None else max(0.0, seconds - (time.monotonic() - start))
    if alignment is None:
        assert allocator is not None
        share = left / (1 + 2 * TIGHTENED) if problem.recompute else left
        reserved = partial(reserve, allocator=allocator, seconds=share, watcher=watcher, places=places)
        chosen = reserved(result)
        if problem.recompute:
            chosen = _tightened(chosen, reserved, spec, share, watcher=watcher, **budget)
    else:
        chosen = choose(result, alignment, left, budget.get("seed", 0), stop)
    chosen = replace(chosen, seconds=time.monotonic() - start)
    if chosen.addresses is not None:
        verify_addresses(problem, chosen.schedule, chosen.addresses)
    return replace(chosen, status="interrupted", is_repeatable=False) if stop() else chosen


def check_allocator(problem: Problem, allocator: Allocator | None) -> None:
    """Refuse an allocator for a problem that it is not for."""
    if allocator is not None and (problem.devices > 1 or problem.task != "memory") and not problem.recompute:
        raise UsageError(f"{problem.graph.name}: an allocator is one device's, and for the memory task")
    if allocator is not None:
        Requests(problem.graph, allocator)  # refuses bytes beyond what an allocator has


def _tightened(
    first: Result, reserved: Callable[[Result], Result], spec: MethodSpec, seconds: float, **budget: Any
) -> Result:
    """Return a result that keeps a lower limit of live bytes, so that what is reserved keeps the limit."""
    best, problem = first, first.problem
    limit = live = problem.memory_limits[0]
    for _ in range(TIGHTENED):
        if limit is None or live is None or best.is_feasible or budget["watcher"].interrupt.is_set():
            break
        assert best.reserved is not None
        live -= best.reserved.peak - limit
        if live <= problem.graph.persistent.sum():
            break
        tighter, given = replace(problem, memory_limit=live), None if seconds == math.inf else seconds
        other = solve(tighter, replace(spec, time_limit=None), time_limit=given, **budget)
        if not other.is_feasible:
            break
        best = reserved(replace(other, problem=problem, lower_bound=first.lower_bound))
    return best


def choose(result: Result, alignment: int, time_limit: float, seed: int = 0, stop: Stop = never) -> Result:
    """Return a result with addresses for its schedule, or for one whose arena is smaller."""
    start, rng = time.monotonic(), np.random.default_rng(seed)
    deadline = start + time_limit
    placer = Placer(result.problem, result.schedule, alignment, stop, deadline)
    to_place = time.monotonic() - start
    left = IMPROVED_SHARE * max(0.0, time_limit - to_place)
    if result.problem.devices > 1 or result.problem.recompute or not method_of(result.method).searches:
        placer.improve(left, rng)
    else:
        placer = _improved_with_order(result, placer, left, to_place, rng)
    placer.search_targets(deadline - time.monotonic())
    return _with_addresses(result, placer)


def warm_up_places(addresses: bool = True, allocator: bool = True) -> None:
    """Compile the kernels that find addresses, and those of an allocator."""
    graph = tiny_graph()
    if addresses:
        warm_up_packing()
        _Smoother(graph, graph.input_order, 1, np.random.default_rng(0)).order(2, 1.0, 0.0)
    if allocator:
        requests = Requests(graph, Allocator())
        requests.least_capacity(requests.events(graph.input_order), MIB, [(0, True)])


def _improved_with_order(
    result: Result, best: Placer, time_limit: float, to_place: float, rng: np.random.Generator
) -> Placer:
    """Return the placer of the order with the least arena found in a time; one takes some seconds to be made."""
    deadline = time.monotonic() + time_limit
    problem, alignment = result.problem, best.alignment
    best.improve(time_limit / ROUNDS, rng)
    least, smoother = best.bound, _Smoother(problem.graph, result.schedule.op_order(), alignment, rng)
    for number in range(ROUNDS - 1):
        start = time.monotonic()
        seconds = (deadline - start) / (ROUNDS - 1 - number)
        if best.arena <= least or seconds <= to_place or best.stop():
            break
        limit = least if number % 2 == 0 else (least + best.arena) // 2
        schedule = smoother.order(limit, POWERS[number % len(POWERS)], start + SMOOTHING_SHARE * seconds)
        other = Placer(problem, schedule, alignment, best.stop, start + seconds)
        if other.bound < best.arena and problem.is_feasible([simulate(problem, schedule).peak]) >= result.is_feasible:
            other.improve(start + seconds - time.monotonic(), rng)
            best = min(best, other, key=lambda placer: placer.arena)
    return best


class _Smoother:
    """Orders with less memory away from their peak, each from the one that was found."""

    def __init__(self, graph: CostGraph, order: IndexArray, alignment: int, rng: np.random.Generator) -> None:
        self.order_found, self.rng, b = order, rng, graph.buffers
        size = rounded_up(b.size, alignment)
        own = np.zeros(len(b.own), np.int64)
        np.add.at(own, b.producer, size)
        self.buffers = b._replace(size=size, own=own, workspace=rounded_up(b.workspace, alignment))

    def order(self, limit: int, power: float, until: float) -> Schedule:
        """Return an order of which no step takes more than the limit."""
        b, order = self.buffers, self.order_found.copy()
        place = np.argsort(order).astype(np.int32)
        uses, memory = np.empty(len(b.size), np.int32), np.empty(len(order), np.int64)
        at_once = min(MOVES_AT_ONCE, 1 + READS_AT_ONCE // max(1, len(b.used)))
        for _ in range(0, MOVES_PER_OP * len(order), at_once):
            smooth(b, order, place, limit, power, self.rng.random((at_once, 2)), uses, memory)
            if time.monotonic() >= until:
                break
        return Schedule.single_device(order)


def _with_addresses(result: Result, placer: Placer) -> Result:
    """Return the result with addresses, and with the schedule that they are for."""
    addresses, schedule, notes = placer.addresses(), placer.schedule, list(result.notes)
    placed = replace(result, addresses=addresses, is_repeatable=result.is_repeatable and addresses.is_repeatable)
    if schedule is result.schedule:
        return placed
    simulation = simulate(result.problem, schedule)
    more, status = simulation.peak - result.simulation.peak, result.status
    notes.append(changed_order("a smaller arena", more))
    if more > 0 and status == "optimal" and result.problem.task == "memory":
        status = "feasible"
    return replace(placed, schedule=schedule, simulation=simulation, status=status, notes=tuple(notes))
