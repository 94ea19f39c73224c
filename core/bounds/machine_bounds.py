"""What ops and edges between them cost on devices that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import FloatArray, csr, pairs_rise
from ..problem.problem import Problem
from ..problem.residents import first_home


def possible_times(problem: Problem) -> FloatArray:
    """Return what each op takes on each device, microseconds, infinite where it may not be; shape `(ops, devices)`."""
    times: FloatArray = np.where(problem.rules.allowed, problem.rules.times, np.inf)
    return times


class Groups:
    """The edges of each op, made when they are asked for: there may be millions."""

    def __init__(self, by: NDArray[Any], ops: int) -> None:
        self._pointers, self._edges = csr(by, np.arange(len(by)), ops)

    def __getitem__(self, op: int) -> list[int]:
        edges: list[int] = self._edges[self._pointers[op] : self._pointers[op + 1]].tolist()
        return edges


class EdgeCosts:
    """What edges between ops cost in transfers."""

    def __init__(self, problem: Problem) -> None:
        graph, machine = problem.graph, problem.hardware
        pointers, readers = graph.consumers
        makers = np.repeat(graph.tensor_producer, np.diff(pointers))
        size = np.repeat(graph.tensor_size, np.diff(pointers)).astype(np.float64)
        if first_home(graph) < graph.num_ops:
            own = makers < first_home(graph)
            readers, makers, size = readers[own], makers[own], size[own]
        self.sources, self.targets = makers, readers
        self.count: NDArray[Any] = np.ones(len(readers))
        self.bytes: NDArray[Any] = size
        if not pairs_rise(makers, readers):  # an op may read several tensors of another one
            pairs, edge = np.unique(makers.astype(np.int64) * graph.num_ops + readers, return_inverse=True)
            self.sources, self.targets = np.divmod(pairs, graph.num_ops)
            edge, many = edge.ravel(), len(pairs)
            if machine.is_beside and not machine.contention:  # what an edge sends is sent at once
                self.count, self.bytes = np.ones(many), np.zeros(many)
                np.maximum.at(self.bytes, edge, size)
            else:
                self.count = np.bincount(edge, minlength=many).astype(np.float64)
                self.bytes = np.bincount(edge, size, minlength=many)
        self.latency, self.per_byte = machine.latencies, machine.microseconds_per_byte
        latency, per_byte = machine.mean_link
        self.mean = self.count * latency + self.bytes * per_byte

    def between(self, edge: int) -> FloatArray:
        """Return what an edge takes from each device to each, microseconds; shape `(devices, devices)`."""
        cost: FloatArray = self.count[edge] * self.latency
        if self.bytes[edge]:
            cost = cost + self.bytes[edge] * self.per_byte
        np.fill_diagonal(cost, 0.0)
        return cost

    def from_device(self, edge: int, device: int) -> FloatArray:
        """Return what an edge takes from a device to each, microseconds; shape `(devices,)`."""
        cost: FloatArray = self.count[edge] * self.latency[device]
        if self.bytes[edge]:
            cost = cost + self.bytes[edge] * self.per_byte[device]
        cost[device] = 0.0
        return cost

    def grouped(self, by: NDArray[Any], ops: int) -> Groups:
        """Return the edges of each op, by its sources or its targets."""
        return Groups(by, ops)


def optimistic_costs(
    problem: Problem, edges: EdgeCosts, *, mean: bool, heed: Callable[[Iterable[int]], Iterator[int]] = iter
) -> FloatArray:
    """Return the least time from the end of each op on each device to the end of all (PEFT eq. 5); `(ops, devices)`."""
    # Every later op is on its best device. A transfer takes what the mean link does, as in the paper, or its own with
    # `mean` false: no schedule is faster then. `heed` goes through ops and edges, and may raise.
    graph, times = problem.graph, possible_times(problem)
    apart = ~np.eye(problem.devices, dtype=bool)
    cost, leaving = np.zeros((graph.num_ops, problem.devices)), edges.grouped(edges.sources, graph.num_ops)
    for op in heed(graph.input_order[::-1].tolist()):
        for e in heed(leaving[op]):  # one op may be read by all others
            target = edges.targets[e]
            sent = edges.mean[e] * apart if mean else edges.between(e)
            np.maximum(cost[op], (sent + (times[target] + cost[target])[None, :]).min(axis=1), out=cost[op])
    return cost


def earliest_ends(
    problem: Problem, edges: EdgeCosts, heed: Callable[[Iterable[int]], Iterator[int]] = iter
) -> FloatArray:
    """Return the earliest that each op can end on each device, every earlier op on its best; shape `(ops, devices)`."""
    graph = problem.graph
    ends, entering = possible_times(problem).copy(), edges.grouped(edges.targets, graph.num_ops)
    for op in heed(graph.input_order.tolist()):
        ready = np.zeros(problem.devices)
        for e in heed(entering[op]):
            np.maximum(ready, (ends[edges.sources[e]][:, None] + edges.between(e)).min(axis=0), out=ready)
        ends[op] += ready
    return ends
