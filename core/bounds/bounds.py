"""Lower bounds on peak memory and makespan: no schedule can be better (`docs/concepts/bounds.md`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import BoolArray, FloatArray, IntArray, sum_of_groups
from ..graph.buffers import Buffers
from ..graph.graph import CostGraph
from ..kernels.orders.max_flow import FREE, SINK, SOURCE, max_flow, network_of, new_flow, smallest_source_side
from ..kernels.orders.order_memory import memory_of_steps
from ..kernels.paths import path_ends
from ..kernels.reach import reachable
from ..problem.problem import Problem
from ..problem.residents import model_of
from .communication_bounds import communication_bound
from .machine_bounds import machine_memory_bound, machine_runtime_bound
from .split_buffers import split_buffers

MIN_CUT_WORK, MIN_CUT_WORK_SHARED = 100_000_000, 10_000_000
"""Arcs of all flows together: on one device; on several, where the bound is worth less."""
LEAST_FLOWS = 10
"""For fewer the network is not built, which takes as long as some of them, and no notice of Ctrl-C."""
SECONDS_PER_ARC = 1e-6
BUILDING = 2
LARGEST = 2**63 - 1
ROUNDING = 1e-12
LARGEST_WHOLE = 2.0**39
"""Microseconds of which 1e-12 is less than one, so that a bound rounded up is not rounded up once more."""


def earliest_finish(graph: CostGraph) -> FloatArray:
    """Return when each op ends at the earliest, on as many devices as it takes, microseconds; shape `(ops,)`."""
    return path_ends(graph.input_order, *graph.predecessors, graph.runtime)


def critical_path(graph: CostGraph) -> float:
    """Return the longest path of the graph in microseconds; no number of devices is faster."""
    return float(earliest_finish(graph).max())


def runtime_bound(problem: Problem) -> float:
    """Return the largest of the critical path, the total runtime shared evenly and `communication_bound`.

    What takes time takes whole multiples of a unit where times are whole microseconds; so does every makespan.
    """
    total = math.fsum(problem.op_times.tolist())
    if problem.devices == 1:
        return total
    bound = max(critical_path(problem.graph), total / problem.devices, communication_bound(problem))
    return whole_units(problem, bound)


def whole_units(problem: Problem, bound: float) -> float:
    """Return a bound on a makespan, microseconds, rounded up to the next one that a schedule can have."""
    unit = _unit_of_times(problem) if problem.is_plain else 0.0
    return math.ceil(bound / unit * (1 - ROUNDING)) * unit if unit else bound


def _unit_of_times(problem: Problem) -> float:
    """Return the largest common divisor of what ops and transfers take, microseconds; 0 if these are not whole."""
    graph = problem.graph
    sending = problem.latency + graph.tensor_size * problem.microseconds_per_byte
    times = np.concatenate((graph.runtime, np.asarray(sending, np.float64)))
    if times.sum() > LARGEST_WHOLE or (times != np.rint(times)).any():
        return 0.0
    return float(np.gcd.reduce(times.astype(np.int64)))


def smallest_along_chain(graph: CostGraph) -> IntArray:
    """Per tensor, the least size along its alias chain, itself included: bytes it needs on any device."""
    least: IntArray = graph.tensor_size.copy()
    alias, aliased = graph.alias_of, graph.alias_of >= 0
    while aliased.any():
        least[aliased] = np.minimum(least[aliased], graph.tensor_size[alias[aliased]])
        alias = np.where(aliased, graph.alias_of[np.maximum(alias, 0)], -1)
        aliased = alias >= 0
    return least


def op_needs(graph: CostGraph, devices: int) -> IntArray:
    """Bytes that each op needs on its device while it runs, shape `(ops,)`, persistent bytes left out.

    That is its outputs that are no alias, its workspace, and its inputs, each buffer once. On one device a
    buffer has its root's size; on several a view may have been sent alone, so a group of inputs that share
    a buffer counts only the largest, over its members, of the least size along that member's alias chain.
    """
    least = smallest_along_chain(graph) if devices > 1 else graph.tensor_size[graph.root]
    pointers, tensors = graph.inputs
    size, made = least[tensors], graph.alias_of < 0
    if not made.all():  # an op may read several tensors that share a buffer
        roots, ops = graph.root[tensors], np.repeat(np.arange(graph.num_ops), np.diff(pointers))
        order = np.lexsort((-size, roots, ops))
        ops, roots = ops[order], roots[order]
        size[order[1:][(ops[1:] == ops[:-1]) & (roots[1:] == roots[:-1])]] = 0
    need = graph.workspace + sum_of_groups(size, pointers)
    np.add.at(need, graph.tensor_producer[made], graph.tensor_size[made])
    return need


def last_step_need(graph: CostGraph, b: Buffers, *, recompute: bool = False) -> int:
    """Return the least bytes of any order's last step on one device, persistent bytes left out.

    Every final buffer is there, and the last op frees whatever else it reads or makes, for nobody reads it later. Where
    ops may run again, one that makes something final can be last, too; a last run that makes nothing final and is not
    its op's only one could be left out. The buffers are the graph's own, or those that `split_buffers` returns.
    """
    need = b.workspace + sum_of_groups(np.where(b.is_final, 0, b.size)[b.used], b.used_ptr)
    np.add.at(need, b.producer[~b.is_final], b.size[~b.is_final])
    can_be_last = np.diff(b.successor_ptr) == 0
    if recompute:
        can_be_last[graph.tensor_producer[graph.is_final]] = True
        can_be_last &= ~graph.runs_once | (np.diff(b.successor_ptr) == 0)
    return int(b.size[b.is_final].sum()) + int(need[can_be_last].min())


def memory_bound(problem: Problem) -> int:
    """Return the bound on peak memory, bytes, that needs no flow.

    One device: the largest op or the last step. Several: the largest op with its persistent bytes, or the last step
    shared evenly, views sent alone where that is less.
    """
    graph = problem.graph
    need = op_needs(graph, problem.devices)
    persistent = int(graph.persistent.sum())
    if problem.devices == 1:
        return persistent + max(int(need.max()), last_step_need(graph, graph.buffers, recompute=problem.recompute))
    last = persistent + last_step_need(graph, split_buffers(graph))
    return max(-(-last // problem.devices), int((need + graph.persistent).max()))


def recomputation_bound(graph: CostGraph) -> tuple[int, int]:
    """Return what no schedule on one device is below even if ops may run again, bytes, and the op that needs it.

    Whenever an op runs, its inputs, outputs and workspace are there, and in the end all that is final is; beside
    persistent bytes nothing else is sure. The op is -1 if what is final is more.
    """
    need, buffers = op_needs(graph, 1), graph.buffers
    final = int(buffers.size[buffers.is_final].sum())
    op = int(need.argmax())
    persistent = int(graph.persistent.sum())
    return (persistent + final, -1) if final > need[op] else (persistent + int(need[op]), op)


class ArrivalCut:
    """The least memory in which any order can arrive at an op: a minimum cut.

    That is the least, over all sets of ops closed under predecessors that hold every ancestor of the op and
    none of its descendants, of the bytes alive after the set.
    """

    def __init__(self, buffers: Buffers) -> None:
        self.buffers = buffers
        self.network = network_of(buffers)
        self.flow = new_flow(self.network)

    def least_resident(self, op: int) -> int:
        """Return the least memory before `op`, bytes, persistent bytes left out."""
        b, label = self.buffers, self.flow.label[: len(self.buffers.own)]
        label[:] = FREE
        label[reachable(b.predecessor_ptr, b.predecessors, op)] = SOURCE
        label[reachable(b.successor_ptr, b.successors, op)] = SINK
        label[op] = SINK
        self.flow.residual[:] = self.network.capacity
        return int(max_flow(self.network, self.flow, LARGEST))


def min_cuts(
    b: Buffers,
    order: NDArray[Any],
    memory: NDArray[Any],
    known: int,
    *,
    work: int = MIN_CUT_WORK,
    stop: Callable[[], bool] = lambda: False,
    has_time_for: Callable[[float], bool] = lambda seconds: True,
) -> Iterator[tuple[int, BoolArray]]:
    """Yield for op after op what no order's step of it is below, and the smallest set with which it is met.

    That is what the op allocates and its workspace, plus the least memory in which any order can arrive at it
    (`docs/concepts/bounds.md`). An op's term never exceeds the memory of its step in a known order, so ops are
    tried by that, the largest first, until it is no more than the largest term.

    Parameters
    ----------
    b
        The buffers; bytes resident throughout are left out everywhere.
    order, memory
        A known order, shape `(ops,)`, and its memory at each step in bytes.
    known
        A bound known already.
    work
        Arcs that all flows together may have; keeps the result repeatable and the time short.
    stop, has_time_for
        Asked before each flow: whether to end, and whether there are the seconds that it will take.
    """
    arcs = 2 * (len(b.size) + len(b.users) + len(b.predecessors))
    if work < LEAST_FLOWS * arcs or stop() or not has_time_for(BUILDING * arcs * SECONDS_PER_ARC):
        return
    cut = ArrivalCut(b)
    side = np.empty(len(cut.flow.label), bool)
    for step in np.argsort(-memory, kind="stable"):
        if memory[step] <= known or work < arcs or stop() or not has_time_for(arcs * SECONDS_PER_ARC):
            return
        work -= arcs
        op = int(order[step])
        term = int(b.own[op] + b.workspace[op]) + cut.least_resident(op)
        known = max(known, term)
        smallest_source_side(cut.network, cut.flow, side)
        yield term, side[: len(order)].copy()


def min_cut_bound(problem: Problem, order: NDArray[Any], known: int = 0, **limits: Any) -> int:
    """Return the min-cut bound on the peak, bytes, or what is known if that is more; given any order of the ops.

    On one device it is the largest of `min_cuts` with the persistent bytes. Several share that evenly, views sent alone
    where that is less. What limits the work is as there.
    """
    graph, devices = problem.graph, problem.devices
    persistent = int(graph.persistent.sum())
    b = graph.buffers if devices == 1 else split_buffers(graph)
    limits = {"work": MIN_CUT_WORK if devices == 1 else MIN_CUT_WORK_SHARED} | limits
    cuts = min_cuts(b, order, memory_of_steps(b, order), devices * known - persistent, **limits)
    return max([known, *(-(-(persistent + term) // devices) for term, _ in cuts)])


def lower_bound(problem: Problem) -> float:
    """Return the bound that needs no search: bytes for the memory task, microseconds for runtime."""
    if not problem.is_plain:
        if problem.task == "runtime":
            return machine_runtime_bound(problem)
        return machine_memory_bound(problem, op_needs(model_of(problem.graph), 2))
    return memory_bound(problem) if problem.task == "memory" else runtime_bound(problem)


def is_met(value: float, bound: float) -> bool:
    """Whether a value equals its bound: bytes exactly, microseconds but for the rounding of their sums."""
    if isinstance(value, int) and isinstance(bound, int):
        return value <= bound
    return value <= bound * (1 + 1e-12)
