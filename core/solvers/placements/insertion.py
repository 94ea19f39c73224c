"""A schedule that grows op by op, in gaps, too: the insertion of HEFT (Topcuoglu, Hariri and Wu 2002, 4.1)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

import numpy as np

from ...base.arrays import FloatArray, IndexArray
from ...bounds.bounds import EdgeCosts, possible_times
from ...problem.problem import Problem
from ...problem.residents import first_home


class InsertionSchedule:
    """A schedule that grows op by op, each in the first gap of a device that is long enough."""

    def __init__(self, problem: Problem, edges: EdgeCosts) -> None:
        self.problem, self.edges = problem, edges
        graph = problem.graph
        self.times, self.rules = possible_times(problem), problem.rules
        self.entering = edges.grouped(edges.targets, graph.num_ops)
        self.busy: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
        self.stretches: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]
        self.end = np.zeros(graph.num_ops)
        self.start = np.zeros(graph.num_ops)
        self.device = np.full(graph.num_ops, -1)
        self.group: dict[int, int] = {}

    def earliest(self, op: int) -> tuple[FloatArray, FloatArray]:
        """Return when an op can start and end on each device, infinite where it cannot; shape `(devices,)` each."""
        ready = np.zeros(self.problem.devices)
        for e in self.entering[op]:
            source = int(self.edges.sources[e])
            sent = self.edges.between(e, int(self.device[source]))
            np.maximum(ready, self.end[source] + sent, out=ready)
        start = np.full(self.problem.devices, np.inf)
        settled = self.group.get(int(self.rules.group[op]))
        for device in np.flatnonzero(np.isfinite(self.times[op]) & np.isfinite(ready)).tolist():
            if settled in (None, device):
                start[device] = self.first_gap(device, float(ready[device]), float(self.times[op, device]))
        return start, start + self.times[op]

    def first_gap(self, device: int, ready: float, takes: float) -> float:
        """Return the first moment, not before `ready`, from which a device is free for so long."""
        busy = self.stretches[device] if takes else self.busy[device]
        start = ready
        for at in range(max(0, bisect_left(busy, (ready, ready)) - 1), len(busy)):
            begin, end = busy[at]
            if begin - start >= takes and begin >= ready:
                return start
            start = max(start, end)
        return start

    def put(self, op: int, device: int, start: float) -> None:
        """Run an op on a device from a moment on."""
        self.device[op], self.start[op], self.end[op] = device, start, start + self.times[op, device]
        self.group.setdefault(int(self.rules.group[op]), device)
        if self.times[op, device] > 0:
            insort(self.busy[device], (start, float(self.end[op])))
            _lengthen(self.stretches[device], start, float(self.end[op]))

    def order(self) -> IndexArray:
        """Return the model's own ops by when they start, those that wait for each other in turn."""
        own = first_home(self.problem.graph)
        place = np.argsort(self.problem.graph.input_order)
        by_start = np.lexsort((place[:own], self.end[:own], self.start[:own]))
        return by_start.astype(np.int32)


def _lengthen(stretches: list[tuple[float, float]], start: float, end: float) -> None:
    """Add the time of an op to stretches without a gap: only what takes no time fits between two ops of one."""
    at = beyond = bisect_left(stretches, (start, end))
    if at and stretches[at - 1][1] == start:
        at -= 1
        start = stretches[at][0]
    if beyond < len(stretches) and stretches[beyond][0] == end:
        end = stretches[beyond][1]
        beyond += 1
    stretches[at:beyond] = [(start, end)]


def place_in_order(made: InsertionSchedule, order: Iterable[int], ahead: FloatArray) -> bool:
    """Put each op where its end and `ahead` are least together; False if one can be nowhere."""
    for op in order:
        start, end = made.earliest(op)
        wanted = end + ahead[op]
        device = int((wanted if np.isfinite(wanted).any() else end).argmin())
        if not np.isfinite(end[device]):
            return False
        made.put(op, device, float(start[device]))
    return True
