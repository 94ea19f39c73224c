"""Lower bounds on peak memory and makespan: no schedule can be better (DESIGN, Lower bounds)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .buffers import Buffers
from .graph import CostGraph, IntArray
from .kernels.reach import reachable
from .problem import Problem

MIN_CUT_WORK = 20_000_000
SECONDS_PER_ARC = 5e-7


def critical_path(graph: CostGraph) -> float:
    """Return the longest path of the graph in microseconds; no number of devices is faster."""
    finish = graph.runtime.tolist()
    pointers, predecessors = (a.tolist() for a in graph.predecessors)
    for op in graph.input_order.tolist():
        before = predecessors[pointers[op] : pointers[op + 1]]
        finish[op] += max((finish[p] for p in before), default=0.0)
    return float(max(finish))


def runtime_bound(problem: Problem) -> float:
    """Return the larger of the critical path and the total runtime shared evenly, microseconds."""
    total = math.fsum(problem.graph.runtime.tolist())
    return max(critical_path(problem.graph), total / problem.devices)


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
    ops = np.repeat(np.arange(graph.num_ops), np.diff(pointers))
    order = np.lexsort((-least[tensors], graph.root[tensors], ops))
    ops, tensors = ops[order], tensors[order]
    roots = graph.root[tensors]
    first = np.ones(len(ops), bool)
    first[1:] = (ops[1:] != ops[:-1]) | (roots[1:] != roots[:-1])
    need: IntArray = graph.workspace.copy()
    np.add.at(need, ops[first], least[tensors[first]])
    made = graph.alias_of < 0
    np.add.at(need, graph.tensor_producer[made], graph.tensor_size[made])
    return need


def memory_bound(problem: Problem) -> int:
    """Return the bound on peak memory, bytes, that needs no flow: the largest op, and persistent bytes shared."""
    graph = problem.graph
    need = op_needs(graph, problem.devices)
    persistent = int(graph.persistent.sum())
    if problem.devices == 1:
        return persistent + int(need.max())
    return max(-(-persistent // problem.devices), int((need + graph.persistent).max()))


class ArrivalCut:
    """The least memory in which any order can arrive at an op: a minimum cut.

    That is the least, over all sets of ops closed under predecessors that hold every ancestor of the op and
    none of its descendants, of the bytes alive after the set. Ops are nodes; a buffer is a hyperedge from its
    producer to its users: an arc of its size into a node of its own, from there unlimited arcs. Final buffers
    stay, so their arcs lead to the sink. Unlimited arcs to predecessors keep the set closed.
    """

    def __init__(self, buffers: Buffers) -> None:
        ops, count = len(buffers.own), len(buffers.size)
        self.buffers = buffers
        self.source, self.sink = ops + count, ops + count + 1
        buffer_of_user = np.repeat(np.arange(count), np.diff(buffers.user_ptr))
        waiter = np.repeat(np.arange(ops), np.diff(buffers.predecessor_ptr))
        into = np.where(buffers.is_final, self.sink, np.arange(count) + ops)
        self.tails = np.concatenate((buffers.producer, buffer_of_user + ops, waiter))
        self.heads = np.concatenate((into, buffers.users, buffers.predecessors))
        # All bytes together: no cut of buffers alone is larger, and one byte more could overflow.
        unlimited = np.full(len(buffer_of_user) + len(waiter), buffers.size.sum(), np.int64)
        self.capacities = np.concatenate((buffers.size, unlimited))

    def least_resident(self, op: int) -> int:
        """Return the least memory before `op`, bytes, persistent bytes left out."""
        from ortools.graph.python.max_flow import SimpleMaxFlow

        b = self.buffers
        node = np.arange(self.sink + 1)
        node[: len(b.own)][reachable(b.predecessor_ptr, b.predecessors, op)] = self.source
        node[: len(b.own)][reachable(b.successor_ptr, b.successors, op)] = self.sink
        node[op] = self.sink
        tails, heads = node[self.tails], node[self.heads]
        # Arcs into the source, out of the sink and of no size change no cut.
        useful = (heads != self.source) & (tails != self.sink) & (tails != heads) & (self.capacities > 0)
        tails, heads = tails[useful], heads[useful]
        touched = np.zeros(len(node), bool)
        touched[tails] = touched[heads] = touched[self.source] = touched[self.sink] = True
        number = np.cumsum(touched) - 1
        flow = SimpleMaxFlow()
        flow.add_arcs_with_capacity(number[tails], number[heads], self.capacities[useful])
        status = flow.solve(int(number[self.source]), int(number[self.sink]))
        return int(flow.optimal_flow()) if status == flow.OPTIMAL else 0


def min_cut_bound(
    graph: CostGraph,
    order: NDArray[Any],
    step_memory: NDArray[Any],
    known: int = 0,
    *,
    work: int = MIN_CUT_WORK,
    stop: Callable[[], bool] = lambda: False,
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> int:
    """Return the min-cut bound on one device's peak memory, bytes (FINDINGS, Min-cut bound).

    For each op: what it allocates and its workspace, plus the least memory in which any order can arrive at
    it. The largest over the ops is valid for every order. An op's term never exceeds the memory of its step
    in a known order, so ops are tried by that, the largest first, until it is no more than the bound.

    Parameters
    ----------
    graph
        The graph.
    order, step_memory
        A known order, shape `(ops,)`, and its memory at each step in bytes.
    known
        A bound known already.
    work
        Arcs that all flows together may have; keeps the result repeatable and the time short.
    stop, seconds_left
        Asked before each flow: whether to end, and whether the flow will fit; the bound so far is valid.
    """
    buffers = graph.buffers
    persistent = int(graph.persistent.sum())
    cut = ArrivalCut(buffers)
    bound = known
    for step in np.argsort(-step_memory, kind="stable"):
        if step_memory[step] <= bound or work < len(cut.tails) or stop():
            break
        if seconds_left() < len(cut.tails) * SECONDS_PER_ARC:
            break
        work -= len(cut.tails)
        op = int(order[step])
        term = persistent + int(buffers.own[op] + buffers.workspace[op]) + cut.least_resident(op)
        bound = max(bound, term)
    return bound


def lower_bound(problem: Problem) -> float:
    """Return the bound that needs no search: bytes for the memory task, microseconds for runtime."""
    return memory_bound(problem) if problem.task == "memory" else runtime_bound(problem)


def is_met(value: float, bound: float) -> bool:
    """Whether a value equals its bound: bytes exactly, microseconds but for the rounding of their sums."""
    if isinstance(value, int) and isinstance(bound, int):
        return value <= bound
    return value <= bound * (1 + 1e-12)
