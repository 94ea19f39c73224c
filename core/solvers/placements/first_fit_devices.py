"""Starts under memory limits: devices are filled along the input order, each op where it has room and costs least.

As m-TOPO of Baechi (Jeon et al. 2020, section 3), but that an op follows inputs that are dear to send: so a
backward pass runs where the activations are, as fast as can be. Residents have their home where they are read first.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from ...base.arrays import BoolArray, FloatArray, IndexArray
from ...bounds.bounds import Heed
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...search.search import Cancelled

SHARES = (0.95, 0.85, 0.75, 0.65, 0.55, 0.45, 0.35)


def filled_placements(problem: Problem, heed: Heed = iter) -> Iterator[IndexArray]:
    """Yield a placement, shape `(ops,)`, for each of some shares of the limits up to which devices are filled."""
    limits = [np.inf if limit is None else float(limit) for limit in problem.memory_limits]
    with suppress(Cancelled):
        for share in SHARES:
            yield _Filling(problem, share * np.array(limits)).placement(heed)


class _Filling:
    """Devices that are filled op by op: the bytes of each, and the places of tensors."""

    def __init__(self, problem: Problem, most: FloatArray) -> None:
        self.problem, self.graph, self.most = problem, problem.graph, most
        self.own = first_home(problem.graph)
        self.resident, self.present = np.zeros(problem.devices), 0
        self.where = np.full(self.graph.num_ops, -1)
        self.of_group: dict[int, int] = {}
        self.left = (np.diff(self.graph.consumers[0]) + self.graph.is_final).tolist()

    def placement(self, heed: Heed) -> IndexArray:
        """Place all ops along the input order, then the residents that nothing reads."""
        for op in heed(self.graph.input_order.tolist()):
            if op < self.own:
                self._place(op)
        for op in np.flatnonzero(self.where < 0).tolist():
            self._settle(op, int(self._allowed(op).argmax()))
        return np.asarray(self.where, np.int32)

    def _allowed(self, op: int) -> BoolArray:
        chosen = self.of_group.get(int(self.problem.rules.group[op]))
        allowed: BoolArray = self.problem.rules.allowed[op]
        return allowed if chosen is None else allowed & (np.arange(len(allowed)) == chosen)

    def _settle(self, op: int, device: int) -> None:
        self.where[op] = self.of_group[int(self.problem.rules.group[op])] = device
        self.resident[device] += float(self.graph.persistent[op])

    def _place(self, op: int) -> None:
        graph, machine = self.graph, self.problem.machine
        pointers, tensors = graph.inputs
        read = tensors[pointers[op] : pointers[op + 1]].tolist()
        made = sum(int(graph.tensor_size[t]) for t in graph.outputs(op))
        needs = np.full(len(self.most), float(made + graph.workspace[op] + graph.persistent[op]))
        paid = np.zeros(len(self.most))
        for tensor in read:
            size, source = int(graph.tensor_size[tensor]), int(self.where[graph.tensor_producer[tensor]])
            if source < 0:
                needs += size
                continue
            elsewhere = np.arange(len(needs)) != source
            needs[elsewhere] += size
            per_byte = np.where(machine.has_link[source], machine.microseconds_per_byte[source], 0.0)
            paid[elsewhere] += (machine.latencies[source] + size * per_byte)[elsewhere]  # infinite without a link
        allowed, elsewhere = self._allowed(op), np.arange(len(needs)) != self.present
        paid += np.where(allowed, self.problem.rules.times[op], np.inf)
        lacks = np.where(np.isfinite(paid), np.maximum(0.0, self.resident + needs - self.most), np.inf)
        ranks = self.resident, elsewhere, paid, lacks, ~allowed  # without links, any that is allowed
        self.present = device = int(np.lexsort(ranks)[0])
        self._settle(op, device)
        self.resident[device] += made
        for tensor in read:
            maker = int(graph.tensor_producer[tensor])
            if self.where[maker] < 0:
                self._settle(maker, device if self._allowed(maker)[device] else int(self._allowed(maker).argmax()))
            self.left[tensor] -= 1
            if self.left[tensor] == 0 and maker < self.own:
                self.resident[self.where[maker]] -= int(graph.tensor_size[tensor])
        for tensor in graph.outputs(op):
            if self.left[tensor] == 0:
                self.resident[device] -= int(graph.tensor_size[tensor])
