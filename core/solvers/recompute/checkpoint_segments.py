"""Checkpointing of segments of the forward pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").

The forward pass is cut into segments of about as many bytes each. Tensors between two are kept; all else that the
backward pass reads runs again, segment by segment, before it is read first (section 4.1), perhaps cut once more (4.2).
The paper takes the square root of the layers for the number of segments; here all that matter are tried.
"""

from bisect import bisect_left
from contextlib import suppress
from itertools import pairwise

import numpy as np

from ...base.arrays import BoolArray
from ...model.timeline import holdings_of
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search.parameters import Parameters
from ...search.search import Cancelled, Search

MOST_SEGMENTS = 40
SECOND_LEVELS = (1, 2, 3, 4, 6, 8)  # parts of a segment that runs again


def solve(search: Search, parameters: Parameters) -> None:
    """Offer the input order, and that with each number of segments on one level and on two."""
    graph = search.problem.graph
    search.offer_order(graph.input_order)
    tried = set()
    with suppress(Cancelled):
        segments = _Segments(search)
        for second in SECOND_LEVELS:
            for first in range(2, min(len(segments.forward) // second, MOST_SEGMENTS) + 1):
                order = segments.order(first, second)
                if tuple(order) not in tried:
                    tried.add(tuple(order))
                    search.offer_order(np.array(order))


class _Segments:
    """The passes of a graph, and the repeated ops of the backward pass of a segment."""

    def __init__(self, search: Search) -> None:
        self.graph, self.heed = (graph := search.problem.graph), search.cancellable
        self.input_order = graph.input_order.tolist()
        is_forward = forward_ops(search)
        self.forward = [op for op in self.input_order if is_forward[op]]
        self.place = {op: at for at, op in enumerate(self.input_order)}
        self.reads: list[set[int]] = [set() for _ in range(graph.num_ops)]
        self.readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
        readers, read = np.repeat(np.arange(graph.num_ops), np.diff(graph.inputs[0])), graph.inputs[1]
        is_data = ~graph.is_control[read]
        makers = graph.tensor_producer[read[is_data]].tolist()
        for op, maker in self.heed(zip(readers[is_data].tolist(), makers, strict=True)):
            self.reads[op].add(maker)
            self.readers[maker].add(op)
        self.is_forward = is_forward
        self.runs_once = graph.runs_once.copy()
        self.runs_once[graph.tensor_producer[graph.is_control]] = True  # another op waits for all its runs
        made = np.zeros(graph.num_ops)
        np.add.at(made, graph.tensor_producer, np.where(graph.alias_of < 0, graph.tensor_size, 0))
        self.bytes_until = np.cumsum(made[self.forward])

    def order(self, first: int, second: int) -> list[int]:
        """Return the input order with so many segments, each cut again into so many when it runs again."""
        again: dict[int, list[int]] = {}
        bounds = self._cut(0, len(self.forward), first)
        for start, end in self.heed(pairwise(bounds)):
            if end < len(self.forward):
                self._rerun(start, end, again)
            if second > 1:
                inner = self._cut(start, end, second)
                for inner_start, inner_end in pairwise(inner[:-1]):
                    self._rerun(inner_start, inner_end, again)
        return self._pruned([op for later in self.input_order for op in (*again.get(later, ()), later)])

    def _cut(self, start: int, end: int, count: int) -> list[int]:
        """Cut a stretch of the forward pass into parts of about as many bytes."""
        before = self.bytes_until[start - 1] if start else 0.0
        total = self.bytes_until[end - 1] - before
        wanted = (before + total * k / count for k in range(1, count))
        cuts = {bisect_left(self.bytes_until, bytes_) + 1 for bytes_ in wanted}
        return [start, *sorted(cut for cut in cuts if start < cut < end), end]

    def _rerun(self, start: int, end: int, again: dict[int, list[int]]) -> None:
        """Let the backward pass's tensors of a segment run again before they are read first."""
        segment = self.forward[start:end]
        inside = set(segment)
        leaves = {op for op in segment if any(self.is_forward[r] and r not in inside for r in self.readers[op])}
        kept = leaves.union(op for op in segment if self.runs_once[op])
        needed: set[int] = set()
        for op in reversed(segment):
            is_read = any(not self.is_forward[reader] or reader in needed for reader in self.readers[op])
            if op not in kept and is_read:
                needed.add(op)
        behind = [r for op in needed for r in self.readers[op] if not self.is_forward[r]]
        if behind:
            first = min(behind, key=self.place.__getitem__)
            again.setdefault(first, []).extend(op for op in segment if op in needed)

    def _pruned(self, order: list[int]) -> list[int]:
        """Leave out runs that nothing reads before their op runs again."""
        is_read = [False] * len(order)
        final = set(self.graph.tensor_producer[self.graph.is_final].tolist())
        last = {op: step for step, op in enumerate(order)}
        read_by: list[list[int]] = []
        latest: dict[int, int] = {}
        for step, op in self.heed(enumerate(order)):
            read_by.append([latest[producer] for producer in self.reads[op]])
            latest[op] = step
        for step in range(len(order) - 1, -1, -1):
            op = order[step]
            if is_read[step] or (last[op] == step and (op in final or not self.readers[op])):
                is_read[step] = True
                for source in read_by[step]:
                    is_read[source] = True
        return [op for step, op in enumerate(order) if is_read[step]]


def forward_ops(search: Search) -> BoolArray:
    """Return which ops are of the forward pass, shape `(ops,)`."""
    # By the annotations; else up to the step of the input order after which most is kept, in training the loss.
    graph = search.problem.graph
    phases = graph.annotations.phases
    if "forward" in phases and "backward" in phases:
        is_forward = np.array([phase in ("forward", "") for phase in phases])
        turn = max(at for at, op in enumerate(graph.input_order.tolist()) if phases[op] == "forward")
    else:
        change = np.zeros(graph.num_ops + 1, np.int64)
        for holding in holdings_of(Problem(graph), Schedule.single_device(graph.input_order)):
            change[holding.first] += holding.size
            change[holding.last] -= holding.size
        turn = int(np.argmax(np.cumsum(change[:-1])))
        search.note(
            f"{graph.name} does not mark its backward pass, which is taken to begin after "
            f"'{graph.op_names[graph.input_order[turn]]}', where most bytes are kept for later"
        )
        is_forward = np.ones(graph.num_ops, bool)
    is_forward[graph.input_order[turn + 1 :]] = False
    return is_forward
