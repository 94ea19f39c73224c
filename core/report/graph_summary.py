"""A graph in numbers: counts, bytes, depth, width, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bounds.bounds import critical_path, memory_bound, min_cut_bound
from ..graph.graph import CostGraph
from ..model.simulator import input_peak
from ..problem.problem import Problem


@dataclass(frozen=True)
class GraphSummary:
    """A graph in numbers."""

    # its name; counts of ops, of data tensors, and of distinct op pairs with an edge
    name: str
    ops: int
    tensors: int
    edges: int
    # sums: bytes, bytes, microseconds
    tensor_bytes: int
    persistent_bytes: int
    total_runtime: float
    # ops on the longest path; the most ops of which none depends on another (largest antichain)
    depth: int
    width: int
    # peak bytes of the input order on one device, and what no order can beat there
    input_peak: int
    memory_bound: int
    critical_path: float  # microseconds that no schedule can beat


def totals_of(graph: CostGraph) -> dict[str, Any]:
    """Return the counts and sums that say how large a graph is, and the peak of program order on one device."""
    return {
        "ops": graph.num_ops,
        "tensors": graph.num_data_tensors,
        "tensor_bytes": int(graph.tensor_size[graph.alias_of < 0].sum()),
        "persistent_bytes": int(graph.persistent.sum()),
        "input_peak": input_peak(graph),
        "runtime_us": float(graph.runtime.sum()),
    }


def summarise(graph: CostGraph) -> GraphSummary:
    """Return the graph in numbers."""
    problem, totals = Problem(graph), totals_of(graph)
    bound = min_cut_bound(problem, graph.input_order, memory_bound(problem))
    return GraphSummary(
        name=graph.name,
        edges=len(graph.edges[0]),
        depth=max(levels(graph)),
        width=width(graph),
        memory_bound=bound,
        critical_path=critical_path(graph),
        total_runtime=totals.pop("runtime_us"),
        **totals,
    )


def levels(graph: CostGraph) -> list[int]:
    """Return per op the number of ops on the longest path that ends in it."""
    level = [1] * graph.num_ops
    pointers, predecessors = (a.tolist() for a in graph.predecessors)
    for op in graph.input_order.tolist():
        for before in predecessors[pointers[op] : pointers[op + 1]]:
            level[op] = max(level[op], level[before] + 1)
    return level


def width(graph: CostGraph) -> int:
    """Return the size of the largest antichain (Dilworth: ops less a maximum matching of the closure)."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    ops = np.arange(graph.num_ops)
    leaving, entering = ops, ops + graph.num_ops
    source, sink = 2 * graph.num_ops, 2 * graph.num_ops + 1
    sources, targets = graph.edges
    tails = np.concatenate((np.full(graph.num_ops, source), entering, sources, entering))
    heads = np.concatenate((leaving, np.full(graph.num_ops, sink), targets + graph.num_ops, leaving))
    many = graph.num_ops
    capacities = np.concatenate((np.ones(2 * graph.num_ops, np.int64), np.full(len(sources) + graph.num_ops, many)))
    flow = SimpleMaxFlow()
    flow.add_arcs_with_capacity(tails, heads, capacities)
    flow.solve(source, sink)
    return graph.num_ops - int(flow.optimal_flow())


def log_histogram(values: list[int]) -> list[tuple[int, int, int]]:
    """Count whole numbers in bins that double: `(first, last, count)` per bin, empty ones at the ends left out."""
    bins = [max(0, value).bit_length() for value in values]
    rows = []
    for bits in range(min(bins), max(bins) + 1):
        low = 0 if bits == 0 else 2 ** (bits - 1)
        rows.append((low, 2**bits - 1, bins.count(bits)))
    return rows
