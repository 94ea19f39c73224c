"""Lower bounds where ops may run again: on the time that a memory limit adds, and on the peak for so much added time.

When an op runs for the first time, its ancestors have run and its descendants have not. Every op is then *done for
good*, with all it waits for, or *still to run*: for the first time, or again, which costs its runtime. An op that waits
by a control edge and has run lets nothing run again before it. A buffer whose maker is done for good and that an op
which is still to run reads is in memory; so are the bytes that the op itself needs. The cheapest such division that
keeps a limit has as its Lagrangian relaxation, in which a byte costs a price, a minimum cut; the best price gives the
bound. Bounds of several moments add up where each op's runtime is shared out: the flow of one leaves its remainder to
the next.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import FloatArray, IntArray
from ..base.speed import seconds_for
from ..base.units import format_bytes
from ..graph.graph import CostGraph
from ..kernels.orders.max_flow import FREE, SINK, SOURCE, max_flow, network_with, new_flow, reachable, source_side
from ..problem.problem import RUNTIME_TOLERANCE, Problem
from .bounds import BUILDING, FLOW, memory_bound, op_needs, recomputation_bound

SCALE = 2**50  # what all bytes, and all microseconds, are in a network, whose capacities are whole numbers
ROUNDED = 4  # of these units, more than floats can have rounded up in all capacities together
MOST_PRICES = 30
MOST_MOMENTS = 200
EXPLAINED_WORK = 10_000_000  # of a bound that explains a peak, see `seconds_for`
UNLIMITED = 2**61
_BYTES, _TIME, _ALWAYS, _BACK = range(4)


class Division(NamedTuple):
    """Ops divided into those done for good and those still to run."""

    least: float  # A bound on the weighted sum of both over all divisions, rounded down
    bytes: float  # of a division that comes as near as whole numbers can: beside what the op needs; of what runs again
    time: float


class FirstRuns:
    """The moments at which ops run first: minimum cuts among ops done for good, buffers, and ops that have run."""

    def __init__(
        self, graph: CostGraph, op_times: FloatArray | None = None, has_time_for: Any = lambda seconds: True
    ) -> None:
        self.graph, self.has_time_for, b = graph, has_time_for, graph.buffers
        arcs = 2 * (len(b.size) + 2 * graph.num_ops + len(b.users) + len(b.predecessors))
        self._heed(BUILDING * arcs)
        self.flow_cost = FLOW * arcs
        self.times = (graph.runtime if op_times is None else op_times).copy()
        self.needs = op_needs(graph, 1) + int(graph.persistent.sum())
        self.ops, count = graph.num_ops, len(b.size)
        self.has_run = self.ops + count
        ops, nodes = np.arange(self.ops), 2 * self.ops + count
        users = np.repeat(np.arange(count), np.diff(b.user_ptr)) + self.ops
        waiters = np.repeat(ops, np.diff(b.predecessor_ptr)) + self.has_run
        reader, read = np.repeat(ops, np.diff(graph.inputs[0])), graph.inputs[1]
        late, early = reader[graph.is_control[read]], graph.tensor_producer[read[graph.is_control[read]]]
        # Buffers to users; done for good, hence having run; having run, hence what it waited for, for good or not.
        always = ((users, b.users), (ops, ops + self.has_run), (waiters, b.predecessors + self.has_run))
        tails = np.concatenate((b.producer, ops + self.has_run, *(a for a, _ in always), late + self.has_run))
        heads = np.concatenate((np.arange(count) + self.ops, ops, *(a for _, a in always), early))
        forward = np.full(len(tails), _ALWAYS)
        forward[:count] = _BYTES
        forward[count : count + self.ops] = np.where(graph.runs_once, _ALWAYS, _TIME)
        of = np.zeros(2 * len(tails), np.int64)
        of[:count], of[count : count + self.ops] = np.arange(count), ops
        self.network, order = network_with(tails, heads, np.zeros(len(tails), np.int64), nodes, b.is_final)
        kind = np.concatenate((forward, np.full(len(tails), _BACK)))[order]
        self.arcs_of_bytes, self.arcs_of_time = np.flatnonzero(kind == _BYTES), np.flatnonzero(kind == _TIME)
        self.buffer_of_arc, self.op_of_arc = of[order][self.arcs_of_bytes], of[order][self.arcs_of_time]
        self.capacity = np.where(kind == _ALWAYS, UNLIMITED, 0)
        self.flow = new_flow(self.network)
        self.side = np.empty(nodes, bool)
        self.sizes = b.size.copy()
        self.too_large = self.arcs_of_bytes[:0]
        self.scale = 1.0

    def added_time(self, op: int, limit: int) -> tuple[float, float]:
        """Return the microseconds that schedules add which keep a limit at the first run of `op`, and the price."""
        spare = limit - int(self.needs[op])
        if spare < 0:
            return math.inf, 0.0
        self._look_at(op, spare)
        least = self._divide(1.0, 0.0)
        return _dual(lambda price: self._divide(price, 1.0), lambda d: d.time, lambda d: d.bytes, spare, least)

    def take_time(self, op: int, limit: int, price: float) -> float:
        """Return the microseconds by which a price on bytes bounds the first run of `op`; use up proving runtimes."""
        # The runtimes that are left bound what other moments add.
        spare = limit - int(self.needs[op])
        self._look_at(op, spare)
        bound = _value(self._divide(price, 1.0).least, price * spare)
        if bound <= 0:
            return 0.0
        sent = self.capacity[self.arcs_of_time] - self.flow.residual[self.arcs_of_time]
        self.times[self.op_of_arc] = np.maximum(0.0, self.times[self.op_of_arc] - (sent + 1) / self.scale)
        return bound

    def peak(self, op: int, added_time: float) -> int:
        """Return the bytes that any schedule which adds at most so many microseconds takes at the first run of `op`."""
        self._look_at(op)
        least = self._divide(0.0, 1.0)
        bound, _ = _dual(lambda price: self._divide(1.0, price), lambda d: d.bytes, lambda d: d.time, added_time, least)
        return int(self.needs[op]) + math.ceil(bound)

    def least_bytes(self, op: int) -> int:
        """Return the bytes that the first run of `op` takes at the least, however much runs again."""
        self._look_at(op)
        return int(self.needs[op]) + math.ceil(self._divide(1.0, 0.0).least)

    def _look_at(self, op: int, spare: float = math.inf) -> None:
        """Label the ops done at the moment, leave out the op's own needs, and rule out too large ones."""
        b, label = self.graph.buffers, self.flow.label
        label[:] = FREE
        label[self.ops : self.has_run][b.is_final] = SINK
        label[self.has_run + np.flatnonzero(reachable(b.predecessor_ptr, b.predecessors, op))] = SOURCE
        label[self.has_run + op] = SOURCE
        label[np.flatnonzero(reachable(b.successor_ptr, b.successors, op))] = SINK
        own = np.zeros(len(b.size), bool)
        own[b.used[b.used_ptr[op] : b.used_ptr[op + 1]]] = True
        own[b.made_ptr[op] : b.made_ptr[op + 1]] = True
        too_large = ~own & (b.size > spare)
        self.sizes = np.where(own | too_large, 0, b.size)
        self.too_large = self.arcs_of_bytes[too_large[self.buffer_of_arc]]

    def _heed(self, cost: float) -> None:
        """Raise TimeoutError if no time is left for work of a cost, see `seconds_for`."""
        if not self.has_time_for(seconds_for(cost)):
            raise TimeoutError

    def _divide(self, byte_weight: float, time_weight: float) -> Division:
        """Return the division of least weighted sum."""
        self._heed(self.flow_cost)
        total = float(self.sizes.sum()) * byte_weight + float(self.times.sum()) * time_weight
        self.scale = SCALE / total if total > 0 else 1.0
        capacity = self.capacity
        capacity[self.arcs_of_bytes] = np.floor(self.sizes[self.buffer_of_arc] * (byte_weight * self.scale))
        capacity[self.arcs_of_time] = np.floor(self.times[self.op_of_arc] * (time_weight * self.scale))
        capacity[self.too_large] = UNLIMITED
        self.flow.residual[:] = capacity
        sent = int(max_flow(self.network, self.flow, 2 * SCALE))
        if sent > 2 * SCALE:
            return Division(math.inf, math.inf, math.inf)
        source_side(self.network, self.flow, self.side)
        b = self.graph.buffers
        is_done, has_run = self.side[: self.ops], self.side[self.has_run :]
        # A buffer that is final, or that is read by what is still to run, is on the far side.
        held = is_done[b.producer] & ~self.side[self.ops : self.has_run]
        again = float(self.times[has_run & ~is_done].sum())
        return Division(max(0, sent - ROUNDED) / self.scale, float(self.sizes[held].sum()), again)


def _value(least: float, paid: float) -> float:
    """Return a weighted sum's bound on the objective, rounded down."""
    return least - paid - 2**-50 * (least + paid)


def _dual(
    divide: Callable[[float], Division],
    objective: Callable[[Division], float],
    constrained: Callable[[Division], float],
    bound: float,
    least: Division,
) -> tuple[float, float]:
    """Return a bound on the objective of divisions that keep a bound, and the price on the constraint, 0 for none."""
    if least.least > bound:
        return math.inf, 0.0
    free = divide(0.0)
    if constrained(free) <= bound:
        return free.least, 0.0
    best, steep, flat = (free.least, 0.0), free, least
    for _ in range(MOST_PRICES):
        if constrained(steep) <= constrained(flat):
            break
        price = (objective(flat) - objective(steep)) / (constrained(steep) - constrained(flat))
        if not price > 0:
            break
        found = divide(price)
        value = _value(found.least, price * bound)
        if value > best[0] * (1 + 1e-9):  # of prices that are as good, the least uses up least time
            best = value, price
        if value >= (objective(flat) + price * (constrained(flat) - bound)) * (1 - 1e-9):
            break
        if constrained(found) > bound:
            steep = found
        else:
            flat = found
    return best


def recompute_bound(
    problem: Problem, order: NDArray[Any], memory: IntArray, *, stop: Any = lambda: False, **limits: Any
) -> float:
    """Return the bound of the task over the first runs of the ops that take most in a known order."""
    least, limit = memory_bound(problem), problem.memory_limit
    if limit is not None and least > limit:
        return math.inf
    try:
        runs = FirstRuns(problem.graph, problem.op_times, **limits)
    except TimeoutError:
        return least if problem.task == "memory" else math.fsum(problem.op_times.tolist())
    steps = np.argsort(-memory, kind="stable")[:MOST_MOMENTS]
    if problem.task == "runtime":
        total = math.fsum(problem.op_times.tolist())
        steps = steps[:0] if limit is None else steps[memory[steps] > limit]
        added = _added_time(runs, order[steps].tolist(), limit or 0, stop)
        return total + _rounded_up(added, problem.op_times[~problem.graph.runs_once])
    if problem.runtime_limit is None:
        return least
    spare = max(0.0, problem.runtime_limit * (1 + 2 * RUNTIME_TOLERANCE) - float(problem.op_times.sum()))
    for step in steps:
        if stop() or memory[step] <= least:
            break
        try:
            least = max(least, runs.peak(int(order[step]), spare))
        except TimeoutError:
            break
    return least


def _rounded_up(added: float, op_times: FloatArray) -> float:
    """Return a bound rounded up to a sum of runs where all times are multiples of some whole number."""
    if math.isinf(added) or not np.all(op_times == np.floor(op_times)) or not op_times.any():
        return added
    unit = math.gcd(*(int(time) for time in set(op_times.tolist())))
    return unit * math.ceil(added / unit - 1e-6)


def _added_time(runs: FirstRuns, ops: list[int], limit: int, stop: Callable[[], bool]) -> float:
    """Return a bound on the microseconds that a limit adds: the sum over moments that share out the runtimes."""
    duals = []
    for op in ops:
        if stop():
            break
        try:
            bound, price = runs.added_time(op, limit)
        except TimeoutError:
            break
        if math.isinf(bound):
            return math.inf
        if bound > 0:
            duals.append((bound, price, op))
    added = 0.0
    for _, price, op in sorted(duals, key=lambda dual: -dual[0]):
        if stop() and added > 0:
            break
        try:
            added += runs.take_time(op, limit, price)
        except TimeoutError:
            break
    return added


def least_recomputed(graph: CostGraph, order: NDArray[Any], memory: IntArray) -> tuple[int, int, bool]:
    """Return bytes below which no schedule goes even if ops run again, the op that needs them, and if not it alone.

    The op is -1 if what stays to the end needs them. `order` is a known order, `memory` the bytes of its steps.
    """
    least, op = recomputation_bound(graph)
    alone = least, op, False
    if not (graph.runs_once.any() or graph.is_control.any()):  # all may be made again
        return alone
    try:
        runs = FirstRuns(graph, has_time_for=lambda seconds: seconds <= seconds_for(EXPLAINED_WORK))
    except TimeoutError:
        return alone
    found = alone
    for step in np.argsort(-memory, kind="stable")[: int(EXPLAINED_WORK / runs.flow_cost)]:
        if memory[step] <= found[0]:
            break
        if (least := runs.least_bytes(int(order[step]))) > found[0]:
            found = least, int(order[step]), True
    return found


def why_infeasible(problem: Problem, order: NDArray[Any], memory: IntArray) -> str:
    """Return the sentence that says why no recomputation reaches a memory limit that is proven out of reach."""
    graph, limit, runs = problem.graph, problem.memory_limit, FirstRuns(problem.graph)
    assert limit is not None
    op = int(np.argmax(runs.needs))
    prefix = f"no recomputation keeps {format_bytes(limit)}: "
    if int(runs.needs[op]) > limit:
        return f"{prefix}op '{graph.op_names[op]}' alone needs {format_bytes(int(runs.needs[op]))}, {_parts(graph, op)}"
    if memory_bound(problem) > limit:
        last = format_bytes(memory_bound(problem))
        return f"{prefix}the last step takes at least {last}, with persistent bytes and all final tensors"
    for step in np.argsort(-memory, kind="stable"):
        op = int(order[step])
        least = runs.least_bytes(op)
        if least > limit:
            break
    else:
        return f"{prefix}a search of all schedules ended without one"
    return (
        f"{prefix}op '{graph.op_names[op]}' runs in at least {format_bytes(least)}, {_parts(graph, op)}, "
        "and earlier results of ops that may not run again"
    )


def _parts(graph: CostGraph, op: int) -> str:
    """Return an op's needs while it runs, as a part of a sentence."""
    b = graph.buffers
    inputs = b.used[b.used_ptr[op] : b.used_ptr[op + 1]]
    amounts = map(int, (b.size[inputs].sum(), b.own[op], graph.workspace[op], graph.persistent.sum()))
    named = zip(amounts, ("inputs", "outputs", "workspace", "persistent"), strict=True)
    return "that is " + ", ".join(f"{format_bytes(amount)} of {what}" for amount, what in named if amount)
