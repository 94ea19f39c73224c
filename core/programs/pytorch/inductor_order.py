"""The order of Inductor's kernels after fusion: the pass that `schedopt.inductor` installs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import Any

from ....version import VERSION
from ...base.errors import FormatError, GraphError
from ...bounds.bounds import lower_bound
from ...graph.graph import CostGraph
from ...model.simulator import input_peak
from ...problem.problem import Problem
from ...search.method_spec import MethodSpec
from ...search.search import Search
from ...search.warm_up import warm_up
from ...solve.solve import run, strengthen_bound
from ..graphs.inductor import buffer_graph
from .inductor_internals import CustomSchedulerPass, OrderedSet, V, config, get_aot_graph_name, memory
from .order_method import order_method
from .ordered_graph import OrderedGraph

SECONDS_PER_NODE = 2e-4
"""What a graph takes by default, Inductor's heuristics included."""
LEAST_SECONDS, LEAST_PER_NODE = 0.02, 2.5e-5
"""What a search may take whatever the rest took: the larger of the two."""
LEAST_SAVED = 0.001
"""The share of the peak that another order has to save: Inductor may reuse fewer buffers in it."""
log = logging.getLogger("schedopt.inductor")


class PeakMemoryOrder(CustomSchedulerPass):  # type: ignore[misc]
    """The pass: takes Inductor's kernels after fusion and returns them in the order they shall run."""

    def __init__(self, method: str, seconds: float | None, graphs: list[OrderedGraph]) -> None:
        self.method, self.seconds, self.graphs = method, seconds, graphs

    def uuid(self) -> Any:
        """Return what Inductor's caches know the pass by: a graph compiled with another one is not taken."""
        return ("schedopt", VERSION, self.method, self.seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.method, self.seconds, [])

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """Return the nodes in a better order, or as they are where Inductor's own is about as good."""
        start = time.monotonic()
        kernels = _Kernels(nodes)
        order, peak, bound = nodes, kernels.stock_peak, 0
        if self.seconds is None:
            least = max(LEAST_SECONDS, LEAST_PER_NODE * len(nodes))
            deadline = max(start + SECONDS_PER_NODE * len(nodes), time.monotonic() + least)
        else:
            deadline = time.monotonic() + self.seconds
        try:
            better, bound = kernels.found(order_method(self.method), deadline)
        except (FormatError, GraphError) as error:
            log.warning("%s keeps its order: %s", kernels.name, error)
        else:
            estimate = kernels.estimate(better)
            if estimate <= (1 - LEAST_SAVED) * peak and kernels.is_valid(better):
                order, peak = better, estimate
        record = OrderedGraph(kernels.name, len(nodes), kernels.stock_peak, peak, bound, time.monotonic() - start)
        self.graphs.append(record)
        log.info("%s", record)
        return order


class _Kernels:
    """The kernels of a graph, the order that Inductor would take, and what it estimates."""

    def __init__(self, nodes: list[Any]) -> None:
        scheduler = V.graph.scheduler
        inputs = OrderedSet(V.graph.graph_inputs.keys())
        self.outputs = OrderedSet(V.graph.get_output_names())
        self.name = get_aot_graph_name()
        none_if_off: dict[str, Any] = {} if config.reorder_for_peak_memory else {"methods": []}
        with config.patch(reorder_for_peak_memory_debug=False):
            self.stock = memory.reorder_for_peak_memory(
                nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, self.outputs, **none_if_off
            )
        self.freeable = memory.get_freeable_input_buf(nodes, inputs)
        self.stock_peak = self.estimate(self.stock)

    def estimate(self, order: list[Any]) -> int:
        """Return the peak of an order by Inductor's own estimate."""
        return int(memory.estimate_peak_memory(order, self.freeable, self.outputs)[0])

    def is_valid(self, order: list[Any]) -> bool:
        """Whether every kernel is there and comes after those that Inductor has it wait for."""
        place = {node: at for at, node in enumerate(order)}
        return len(place) == len(self.stock) and all(
            place[earlier] < place[node] for node in self.stock for earlier in node.mpi_node.pred_nodes
        )

    def found(self, spec: MethodSpec, deadline: float) -> tuple[list[Any], int]:
        """Return the best order found, from that of Inductor on, and the bytes that none needs less than.

        Inductor's estimate and `is_valid` say whether it is one; the verifier of `solve` takes as long as all else.
        """
        graph = self._graph()
        if input_peak(graph) != self.stock_peak:
            raise GraphError("its buffers are counted otherwise than this version of schedopt knows")
        problem = Problem(graph)
        loading = time.monotonic()
        warm_up(problem, spec)
        deadline += time.monotonic() - loading
        search = Search(problem, deadline=deadline, lower_bound=lower_bound(problem))
        run(search, spec)
        strengthen_bound(search)
        assert search.best is not None
        by_name = {node.get_name(): node for node in self.stock}
        names = [graph.op_names[op] for op in search.best.op_order().tolist()]
        return [by_name[name] for name in names if name in by_name], int(search.lower_bound)

    def _graph(self) -> CostGraph:
        buffers = [
            _described(each, each.mpi_buffer.size_free, True, self.outputs, ()) for each in self.freeable.values()
        ]
        after = {}
        for node in self.stock:
            reads = [buffer.get_name() for buffer in node.mpi_node.pred_buffers]
            after[node.get_name()] = [earlier.get_name() for earlier in node.mpi_node.pred_nodes]
            for made in node.get_outputs():
                buffers.append(_described(made, made.mpi_buffer.size_alloc, False, self.outputs, reads))
        nodes = [{"name": node.get_name(), "buffer_names": list(node.get_buffer_names())} for node in self.stock]
        return buffer_graph({"nodes": nodes, "buffers": buffers}, self.name, self.name, after)


def _described(
    buffer: Any, allocated: int, is_input: bool, outputs: Collection[str], reads: Sequence[str]
) -> dict[str, Any]:
    """Return a buffer as `buffer_graph` reads it."""
    return {
        "name": buffer.get_name(),
        "size_alloc": int(allocated),
        "size_free": int(buffer.mpi_buffer.size_free),
        "is_input": is_input,
        "is_output": buffer.get_name() in outputs,
        "deps": list(reads),
    }
