"""Lower bounds where ops may run again: on the time that a memory limit adds, and on the peak for so much added time.

Look at the moment at which an op runs for the first time. Its ancestors have run, its descendants have not. Every op
is then either *done for good* or *still to run*: for the first time, or again, which costs an ancestor its runtime. A
buffer whose maker is done for good and which an op that is still to run reads is in memory; so are the op's own inputs,
outputs and workspace. The cheapest division into the two that keeps a limit is a minimum cut with a side condition; its
Lagrangian relaxation, in which a byte costs a price, is a minimum cut, and the best price gives the bound. No order is
assumed, and what has to run again so that something else can is paid for as well. Views count as their buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..graph import CostGraph
from ..kernels.one_device.max_flow import FREE, SINK, SOURCE, Flow, Network, max_flow, smallest_source_side
from ..kernels.reach import reachable
from ..problem import Problem
from ..units import format_bytes
from .bounds import memory_bound, op_needs

SCALE = 2**50
"""What all bytes, and all microseconds, are in a network, whose capacities are whole numbers."""
MOST_PRICES = 30
MOST_MOMENTS = 200
UNLIMITED = 2**61
_BYTES, _USERS, _TIME, _BACK = range(4)


class Division(NamedTuple):
    """Ops divided into those done for good and those still to run.

    Parameters
    ----------
    least
        A bound on the weighted sum of both over all divisions, rounded down.
    bytes, time
        Of one division that comes as near to it as whole numbers can: bytes in memory beside what the op needs itself,
        and microseconds of what runs again.
    """

    least: float
    bytes: float
    time: float


class FirstRuns:
    """The moments at which the ops of a graph run first, as minimum cuts of one network."""

    def __init__(self, graph: CostGraph, op_times: FloatArray | None = None) -> None:
        self.graph, b = graph, graph.buffers
        self.op_times = graph.runtime if op_times is None else op_times
        self.needs = op_needs(graph, 1) + int(graph.persistent.sum())
        self.ops, count = graph.num_ops, len(b.size)
        nodes = self.ops + count + 1
        users = np.repeat(np.arange(count), np.diff(b.user_ptr))
        source = np.full(self.ops, nodes - 1)
        tails = np.concatenate((b.producer, users + self.ops, source))
        heads = np.concatenate((np.arange(count) + self.ops, b.users, np.arange(self.ops)))
        kinds = np.repeat((_BYTES, _USERS, _TIME, _BACK), (count, len(users), self.ops, len(tails)))
        self.network, order = _network(tails, heads, nodes, b.is_final)
        self.kind = kinds[order]
        self.of = np.concatenate((np.arange(count), users, np.arange(self.ops), np.zeros(len(tails), np.int64)))[order]
        scratch = (np.empty(nodes, np.int32) for _ in range(4))
        self.flow = Flow(self.network.capacity.copy(), np.full(nodes, FREE, np.int8), *scratch)
        self.side = np.empty(nodes, bool)
        self.sizes, self.times = b.size.copy(), self.op_times.copy()

    def added_time(self, op: int, limit: int) -> float:
        """Return the microseconds that any schedule adds whose memory at the first run of `op` keeps a limit.

        It is infinite where none keeps it.
        """
        self._look_at(op)
        spare = limit - int(self.needs[op])
        if spare < 0:
            return math.inf
        return _dual(
            lambda price: self._divide(price, 1.0), lambda d: d.time, lambda d: d.bytes, spare, self._divide(1, 0)
        )

    def peak(self, op: int, added_time: float) -> int:
        """Return the bytes that any schedule which adds at most so many microseconds takes at the first run of `op`."""
        self._look_at(op)
        least = self._divide(0.0, 1.0)
        found = _dual(lambda price: self._divide(1.0, price), lambda d: d.bytes, lambda d: d.time, added_time, least)
        return int(self.needs[op]) + math.ceil(found - 1e-6 * max(1.0, found) * 2**-20)

    def least_bytes(self, op: int) -> int:
        """Return the bytes that the first run of `op` takes at the least, however much runs again."""
        self._look_at(op)
        return int(self.needs[op]) + int(self._divide(1.0, 0.0).bytes)

    def _look_at(self, op: int) -> None:
        """Label what has run at the moment, and leave out what the op needs itself."""
        b, label = self.graph.buffers, self.flow.label
        label[:] = FREE
        label[self.ops : self.ops + len(b.size)][b.is_final] = SINK
        label[-1] = SOURCE
        before = reachable(b.predecessor_ptr, b.predecessors, op)
        label[: self.ops][before & self.graph.runs_once] = SOURCE
        label[: self.ops][reachable(b.successor_ptr, b.successors, op) & (np.arange(self.ops) != op)] = SINK
        if self.graph.runs_once[op]:
            label[op] = SOURCE
        own = np.zeros(len(b.size), bool)
        own[b.used[b.used_ptr[op] : b.used_ptr[op + 1]]] = True
        own[b.made_ptr[op] : b.made_ptr[op + 1]] = True
        self.sizes = np.where(own, 0, b.size)
        has_run = before.copy()
        has_run[op] = True
        self.times = np.where(has_run & ~self.graph.runs_once, self.op_times, 0.0)

    def _divide(self, byte_weight: float, time_weight: float) -> Division:
        """Return the division of least weighted sum."""
        total = float(self.sizes.sum()) * byte_weight + float(self.times.sum()) * time_weight
        scale = SCALE / total if total > 0 else 1.0
        capacity = np.zeros(len(self.kind), np.int64)
        for kind, values, weight in ((_BYTES, self.sizes, byte_weight), (_TIME, self.times, time_weight)):
            arcs = self.kind == kind
            capacity[arcs] = np.floor(values[self.of[arcs]] * (weight * scale))
        capacity[self.kind == _USERS] = UNLIMITED
        self.flow.residual[:] = capacity
        sent = int(max_flow(self.network, self.flow, UNLIMITED))
        smallest_source_side(self.network, self.flow, self.side)
        b = self.graph.buffers
        is_done = self.side[: self.ops]
        held = is_done[b.producer] & ~self.side[self.ops : self.ops + len(b.size)]
        # A buffer that is final, or that is read by what is still to run, is on the far side.
        return Division(sent / scale, float(self.sizes[held].sum()), float(self.times[~is_done].sum()))


def _dual(
    divide: Callable[[float], Division],
    objective: Callable[[Division], float],
    constrained: Callable[[Division], float],
    bound: float,
    least: Division,
) -> float:
    """Return a bound on the objective of every division that keeps the bound, by a price on what is constrained.

    Each price gives a bound; cutting planes find the best one. `least` is the division of least constrained sum.
    """
    if constrained(least) > bound * (1 + 1e-12):
        return math.inf
    free = divide(0.0)
    if constrained(free) <= bound:
        return objective(free)
    best, steep, flat = 0.0, free, least
    for _ in range(MOST_PRICES):
        if constrained(steep) <= constrained(flat):
            break
        price = (objective(flat) - objective(steep)) / (constrained(steep) - constrained(flat))
        if not price > 0:
            break
        found = divide(price)
        value = found.least - price * bound
        best = max(best, value)
        if value >= (objective(flat) + price * (constrained(flat) - bound)) * (1 - 1e-9):
            break
        if constrained(found) > bound:
            steep = found
        else:
            flat = found
    return best


def _network(
    tails: NDArray[Any], heads: NDArray[Any], nodes: int, is_final: NDArray[Any]
) -> tuple[Network, NDArray[np.intp]]:
    """Return a network without capacities, and the places of its arcs among those given and their reverses."""
    arcs = len(tails)
    both_tails, both_heads = np.concatenate((tails, heads)), np.concatenate((heads, tails))
    order = np.argsort(both_tails, kind="stable")
    place = np.empty(2 * arcs, np.int64)
    place[order] = np.arange(2 * arcs)
    network = Network(
        np.searchsorted(both_tails[order], np.arange(nodes + 1)).astype(np.int32),
        both_heads[order].astype(np.int32),
        place[(order + arcs) % (2 * arcs)].astype(np.int32),
        np.zeros(2 * arcs, np.int64),
        is_final,
    )
    return network, order


def recompute_bound(
    problem: Problem, order: NDArray[Any], memory: IntArray, *, stop: Callable[[], bool] = lambda: False
) -> float:
    """Return the bound of the task over the first runs of the ops that take most in a known order.

    Parameters
    ----------
    problem
        With `recompute`: the least microseconds under its memory limit, or the least bytes under that of its runtime.
    order, memory
        A known order, shape `(ops,)`, and its bytes at each step: where they fit, nothing has to run again.
    stop
        Asked before each op.

    Returns
    -------
    float
        Microseconds of all runs or bytes of the peak; infinite where the memory limit is proven out of reach.
    """
    runs = FirstRuns(problem.graph, problem.op_times)
    total = math.fsum(problem.op_times.tolist())
    least = memory_bound(problem)
    best = total if problem.task == "runtime" else least
    if problem.memory_limit is not None and least > problem.memory_limit:
        return math.inf
    spare = math.inf if problem.runtime_limit is None else max(0.0, problem.runtime_limit - total)
    for step in np.argsort(-memory, kind="stable")[:MOST_MOMENTS]:
        op = int(order[step])
        if stop() or math.isinf(best):
            break
        if problem.task == "memory":
            if memory[step] <= best:
                break
            best = max(best, runs.peak(op, spare) if spare < math.inf else best)
        elif problem.memory_limit is not None:
            if memory[step] <= problem.memory_limit:
                break
            best = max(best, total + runs.added_time(op, problem.memory_limit))
    if problem.counts_runs and problem.task == "runtime" and best < math.inf:
        return float(math.ceil(best - 1e-6))
    return best


def why_infeasible(problem: Problem, order: NDArray[Any], memory: IntArray) -> str:
    """Return the sentence that says why no recomputation reaches a memory limit that is proven out of reach.

    Parameters are those of `recompute_bound`, for which that returned infinity.
    """
    graph, limit, runs = problem.graph, problem.memory_limit, FirstRuns(problem.graph)
    assert limit is not None
    op = int(np.argmax(runs.needs))
    prefix = f"no recomputation keeps {format_bytes(limit)}: "
    if int(runs.needs[op]) > limit:
        return f"{prefix}op '{graph.op_names[op]}' alone needs {format_bytes(int(runs.needs[op]))}, {_parts(graph, op)}"
    if memory_bound(problem) > limit:
        finals = format_bytes(memory_bound(problem))
        return f"{prefix}what is kept to the end, with persistent bytes, takes {finals}"
    for step in np.argsort(-memory, kind="stable"):
        op = int(order[step])
        least = runs.least_bytes(op)
        if least > limit:
            break
    return (
        f"{prefix}op '{graph.op_names[op]}' runs in at least {format_bytes(least)}, {_parts(graph, op)}, "
        "and what ops that may run only once made before it"
    )


def _parts(graph: CostGraph, op: int) -> str:
    """Return what an op needs while it runs, as a part of a sentence."""
    b = graph.buffers
    inputs = b.used[b.used_ptr[op] : b.used_ptr[op + 1]]
    amounts = {
        "inputs": int(b.size[inputs].sum()),
        "outputs": int(b.own[op]),
        "workspace": int(graph.workspace[op]),
        "persistent": int(graph.persistent.sum()),
    }
    return "that is " + ", ".join(f"{format_bytes(amount)} of {what}" for what, amount in amounts.items() if amount)
