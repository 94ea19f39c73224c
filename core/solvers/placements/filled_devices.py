"""Starts under a memory limit: devices are filled one after another along the input order.

As m-TOPO of Baechi (Jeon et al. 2020, section 3), but that an op follows what is dear to send, so that a backward pass
runs where the activations are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ...base.arrays import IndexArray, frozen
from ...problem.problem import Problem

SHARES = (0.95, 0.85, 0.75, 0.65, 0.55, 0.45, 0.35)


def filled_placements(problem: Problem) -> Iterator[IndexArray]:
    """Yield a placement, shape `(ops,)`, for each of some shares of the memory limit up to which devices are filled."""
    limit = problem.memory_limits[0]
    assert limit is not None
    for share in SHARES:
        yield _fill(problem, share * limit)


def _fill(problem: Problem, most: float) -> IndexArray:
    """Place op after op where its inputs cost least to send, of the devices that have room; else on the emptiest."""
    graph = problem.graph
    inputs = _slices(*graph.inputs)
    size, producer = graph.tensor_size.tolist(), graph.tensor_producer.tolist()
    cost = (problem.latency + graph.tensor_size * problem.microseconds_per_byte).tolist()
    left = (np.diff(graph.consumers[0]) + graph.is_final).tolist()
    fixed, workspace = graph.persistent.tolist(), graph.workspace.tolist()
    placement = [0] * graph.num_ops
    resident = [0.0] * problem.devices
    present = 0
    for op in graph.input_order.tolist():
        made = sum(size[t] for t in graph.outputs(op)) + fixed[op]
        home = [(placement[producer[t]], cost[t], size[t]) for t in inputs[op]]
        ranks = []
        for device in range(problem.devices):
            brought = sum(bytes_ for where, _, bytes_ in home if where != device)
            paid = sum(price for where, price, _ in home if where != device)
            reached = resident[device] + made + brought + workspace[op]
            lacks = max(0.0, reached - most)
            ranks.append((lacks, paid, device != present, resident[device], device))
        present = placement[op] = min(ranks)[-1]
        resident[present] += made
        for tensor in inputs[op]:
            left[tensor] -= 1
            if left[tensor] == 0:
                resident[placement[producer[tensor]]] -= size[tensor]
        resident[present] -= sum(size[t] for t in graph.outputs(op) if left[t] == 0)
    return frozen(np.array(placement), np.int32)


def _slices(pointers: IndexArray, values: IndexArray) -> list[list[int]]:
    flat = values.tolist()
    return [flat[a:b] for a, b in pairwise(pointers.tolist())]
