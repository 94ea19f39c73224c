"""The least that a caching allocator reserves: the order, an opening block, and other options of the allocator."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.arrays import IndexArray, IntArray
from ..base.units import format_bytes
from ..bounds.bounds import is_met, lower_bound, min_cut_bound, recomputation_bound
from ..kernels.orders.order_memory import memory_of_steps
from ..model.allocators import MIB, Allocator
from ..model.reserved import MOST_BYTES, Requests, pool_graph, rounded_to_segments, verify_reserved
from ..model.simulator import simulate
from ..model.unrolled import of_runs
from ..problem.problem import Problem
from ..problem.schedule import Reserved, Schedule, opening_line
from ..report.result import IN_INPUT_ORDER, OPENING, Result, changed_order
from ..search.method_spec import parse_method
from ..search.registry import DEFAULT_METHOD, method_of
from ..search.search import Watcher
from ..solvers.orders.baselines import greedy_order, kahn_order, reverse_postorder
from .solve import solve

LARGE_SHARE, SMALL_SHARE = 0.3, 0.1
"""Of the time left, to bound what the blocks above 1 MiB take, and the others."""
OTHER_SEARCH, OTHER_EVALUATIONS, OTHER_SEEDS = "order-search", 2000, 8
"""Orders of other seeds, as many as the time is enough for: live bytes are alike, but not what they reserve."""
NO_BLOCK, LEAST_PAGE = (0, True), 12 * MIB  # PyTorch takes more than 10 MiB, CUDA whole pages of 2
BLOCK_PLACES = (True, False)
"""Where an opening block may come: before the weights, and after them."""
PARTS = (2, 3, 4)
"""Of segments, into which small blocks fit as a dual feasible function counts them."""
STRIDES, MOST_BLOCKS = tuple(MIB << power for power in range(30, 0, -1)), 1024
"""Opening blocks are tried in steps, from wide to narrow ones, until so many would be tried."""


@dataclass
class Plan:
    """The best order and opening block so far."""

    requests: Requests
    late: Callable[[], bool]
    bound: int = 0
    reserved: int = 2**62
    live: int = 2**62
    order: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    block: tuple[int, bool] = NO_BLOCK  # bytes, and whether it comes before the weights
    places: tuple[bool, ...] = BLOCK_PLACES

    def try_plan(self, order: IndexArray, events: IntArray, block: tuple[int, bool] = NO_BLOCK) -> None:
        """Price an order with an opening block or without; of equal ones without, the least live bytes win."""
        most = self.reserved + (block == NO_BLOCK) if self.order.size else math.inf
        reserved = self.requests.reserved(events, *block, most)
        if reserved < most:
            live = int(memory_of_steps(self.requests.buffers, order).max())
            if (reserved, live, block[0]) < (self.reserved, self.live, self.block[0]):
                self.reserved, self.live, self.order, self.block = reserved, live, order, block

    def try_orders(self, orders: Iterable[IndexArray]) -> None:
        """Price orders with opening blocks, in steps from wide to narrow ones."""
        tried = []
        for order in orders:
            if self.order.size == 0 or not self.late():
                tried.append((order, self.requests.events(order)))
                self.try_plan(*tried[-1])
        if self.requests.allocator.expandable_segments:  # its blocks are all cut from one segment
            return
        for stride in STRIDES:
            if stride * MOST_BLOCKS < self.reserved:
                return
            for order, events in tried:
                for block in range(stride, self.reserved, 2 * stride):  # others were tried with a wider one
                    for is_before in self.places:
                        if self.late() or self.reserved <= self.bound:
                            return
                        self.try_plan(order, events, (block, is_before))


def reserve(
    result: Result, allocator: Allocator, seconds: float, watcher: Watcher, *, places: tuple[bool, ...] = BLOCK_PLACES
) -> Result:
    """Return a result with what its schedule reserves, or with one that reserves less, a block at one of the places."""
    end, problem = time.monotonic() + seconds, result.problem
    late: Callable[[], bool] = lambda: watcher.interrupt.is_set() or time.monotonic() >= end  # noqa: E731
    runs, schedule = of_runs(problem, result.schedule)
    requests, input_order = Requests(runs.graph, allocator), problem.graph.input_order
    program = requests if not problem.recompute else Requests(problem.graph, allocator)
    before = program.reserved(program.events(input_order))
    searches = method_of(result.method).searches and not problem.recompute
    bound, orders, solved = 0, [schedule.op_order()], [result]
    for is_large, share in ((True, LARGE_SHARE), (False, SMALL_SHARE)):
        given: dict[str, Any] = {"time_limit": share * seconds}
        if seconds == math.inf:
            given = {"evaluations": OTHER_EVALUATIONS}
        pool = Problem(pool_graph(problem.graph, allocator, is_large))
        least: list[float] = [recomputation_bound(pool.graph)[0] if problem.recompute else lower_bound(pool)]
        if searches and not late():
            solved.append(solve(pool, DEFAULT_METHOD, seed=result.seed, watcher=watcher, **given))
            orders.append(solved[-1].schedule.op_order())
            least.append(solved[-1].lower_bound)
        is_cut = not (is_large or problem.recompute or allocator.expandable_segments)  # into segments of 2 MiB
        parts = [Problem(pool_graph(problem.graph, allocator, False, count)) for count in PARTS * is_cut]
        for part in parts + [pool] * (not searches and not problem.recompute):  # a search has cut its pool already
            if not late():
                least.append(min_cut_bound(part, orders[-1], int(lower_bound(part)), stop=late))
        bound += rounded_to_segments(max(least), allocator, is_large)
    least_live = 0 if problem.task == "runtime" else result.in_bytes(result.lower_bound)
    plan = Plan(requests, late, max(bound, least_live), places=places)
    if searches:
        graph, buffers = problem.graph, problem.graph.buffers
        quick = [reverse_postorder(graph), greedy_order(buffers, late)]
        quick += [kahn_order(graph, last_in_first_out=way) for way in (True, False)]
        orders += [input_order, *(order for order in quick if order is not None)]
    plan.try_orders(orders)
    for seed in range(result.seed + 1, result.seed + 1 + OTHER_SEEDS * searches):
        left = end - time.monotonic()
        if late() or plan.reserved <= plan.bound:
            break
        limits: dict[str, Any] = {"evaluations": OTHER_EVALUATIONS, "time_limit": left if math.isfinite(left) else None}
        other = solve(problem, parse_method(OTHER_SEARCH), seed=seed, watcher=watcher, **limits)
        solved.append(other)
        plan.try_orders([other.schedule.op_order()])
    is_repeatable = all(found.is_repeatable for found in solved) and not late()
    return _with_reserved(replace(result, is_repeatable=is_repeatable), plan, before)


def _with_reserved(result: Result, plan: Plan, before: int) -> Result:
    """Return the result with its plan, verified."""
    problem, requests, allocator = result.problem, plan.requests, plan.requests.allocator
    run, (block, is_before) = requests.events(plan.order), plan.block
    otherwise = {IN_INPUT_ORDER: before}
    if block:
        otherwise["without the opening block"] = requests.reserved(run)
    for page in () if allocator.expandable_segments else (allocator.large_segment, LEAST_PAGE):
        other = Requests(requests.graph, replace(allocator, expandable_segments=True, large_segment=page))
        with_pages = other.reserved(other.events(plan.order), most=MOST_BYTES)
        otherwise |= {f"with {other.allocator}": with_pages} if with_pages < MOST_BYTES else {}
    blocks = {plan.block, NO_BLOCK}
    above = plan.live + int(requests.graph.persistent.sum())
    least, retries = min(requests.least_capacity(run, above, blocks, plan.late), (plan.reserved, 0))
    reserved = Reserved(str(allocator), plan.reserved, plan.bound, *plan.block, least, retries)
    schedule = result.schedule if problem.recompute else Schedule.single_device(plan.order)
    verify_reserved(problem, schedule, reserved)
    limit, status = problem.memory_limits[0], result.status
    is_proven = limit is not None and (result.is_proven_infeasible or plan.bound > limit)
    notes, simulation = list(result.notes), simulate(problem, schedule)
    own = f"no schedule reserves less than {format_bytes(plan.bound)}"
    why = [notes.pop() if result.is_proven_infeasible else own] * is_proven
    if limit is not None and plan.reserved > limit:
        status = "infeasible" if is_proven else "limit-not-met"
    elif status in ("optimal", "feasible"):
        is_optimal = is_met(result.value, result.lower_bound) if problem.recompute else reserved.is_optimal
        status = "optimal" if is_optimal else "feasible"
    if schedule.items.tolist() != result.schedule.items.tolist():
        notes.append(changed_order("less reserved memory", simulation.peak - result.simulation.peak))
    less = ""
    if plan.places == (False,):  # it is opened with the plan; a block before the weights is for the user to open
        before_weights = replace(plan, places=(True,), block=NO_BLOCK, reserved=requests.reserved(run))
        before_weights.try_orders([plan.order])
        block, is_before = before_weights.block if before_weights.reserved < plan.reserved else NO_BLOCK
        less = f", reserves {format_bytes(before_weights.reserved)}"
    if block:
        notes.append(f"{OPENING}{opening_line(block, is_before)}{less}")
    found = replace(result, schedule=schedule, simulation=simulation, status=status, is_proven_infeasible=is_proven)
    return replace(found, reserved=reserved, reserved_otherwise=otherwise, notes=(*notes, *why))
