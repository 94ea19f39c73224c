"""`schedopt.inductor`: an order of less peak memory for the kernels of PyTorch Inductor, after fusion."""

from __future__ import annotations

import logging
import time
from typing import Any

from ....version import VERSION
from ...base.errors import FormatError, GraphError, UsageError
from ...base.speed import seconds_for
from ...base.units import parse_seconds
from ...bounds.bounds import lower_bound
from ...graph.graph import CostGraph
from ...model.simulator import input_peak
from ...problem.problem import Problem
from ...search.method_spec import MethodSpec
from ...search.registry import DEFAULT_METHOD
from ...search.search import Search
from ...search.warm_up import warm_up
from ...solve.solve import run, strengthen_bound
from ..graphs.inductor import buffer_graph
from .inductor_internals import HOOK, CustomSchedulerPass, OrderedSet, V, check_hook, config, get_aot_graph_name, memory
from .tracing import OrderedGraph, order_method

PER_NODE = 4_000  # numbers sorted while a graph is ordered, by default, Inductor's heuristics included
LEAST, LEAST_PER_NODE = 400_000, 500  # while a search goes on whatever the rest took: the larger of the two
LEAST_SAVED = 0.001  # share of the peak that another order has to save: Inductor may reuse fewer buffers in it
log = logging.getLogger("schedopt.inductor")


class PeakMemoryOrder(CustomSchedulerPass):  # type: ignore[misc]
    """The pass: takes Inductor's kernels after fusion and returns them in the order they shall run."""

    def __init__(self, method: str, seconds: float | None, graphs: list[OrderedGraph]) -> None:
        self.method, self.seconds, self.graphs = method, seconds, graphs

    def uuid(self) -> Any:
        """Return the key of the pass in Inductor's caches: a graph compiled with another one is not taken."""
        return ("schedopt", VERSION, self.method, self.seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.method, self.seconds, [])

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """Return the nodes in a better order, or as they are where Inductor's own is about as good."""
        start = time.monotonic()
        kernels = _Kernels(nodes)
        order, peak, bound = nodes, kernels.stock_peak, 0
        if self.seconds is None:
            least = seconds_for(max(LEAST, LEAST_PER_NODE * len(nodes)))
            deadline = max(start + seconds_for(PER_NODE * len(nodes)), time.monotonic() + least)
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
    """The kernels of a graph, Inductor's order, and its estimates."""

    def __init__(self, nodes: list[Any]) -> None:
        scheduler = V.graph.scheduler
        inputs = OrderedSet(V.graph.graph_inputs.keys())
        self.outputs = OrderedSet(V.graph.get_output_names())
        self.name = get_aot_graph_name()
        fallback: dict[str, Any] = {} if config.reorder_for_peak_memory else {"methods": []}
        with config.patch(reorder_for_peak_memory_debug=False):
            self.stock = memory.reorder_for_peak_memory(
                nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, self.outputs, **fallback
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
        """Return the best order found, from that of Inductor on, unverified, and bytes that none needs less than."""
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
        def described(buffer: Any, allocated: int, reads: list[str] | None) -> dict[str, Any]:
            name, size = buffer.get_name(), int(buffer.mpi_buffer.size_free)
            shared = {"name": name, "size_alloc": int(allocated), "size_free": size, "deps": reads or []}
            return {**shared, "is_input": reads is None, "is_output": name in self.outputs}

        nodes, after = [], {}
        buffers = [described(one, one.mpi_buffer.size_free, None) for one in self.freeable.values()]
        for node in self.stock:
            nodes.append({"name": node.get_name(), "buffer_names": list(node.get_buffer_names())})
            after[node.get_name()] = [earlier.get_name() for earlier in node.mpi_node.pred_nodes]
            reads = [buffer.get_name() for buffer in node.mpi_node.pred_buffers]
            buffers += [described(made, made.mpi_buffer.size_alloc, reads) for made in node.get_outputs()]
        return buffer_graph({"nodes": nodes, "buffers": buffers}, self.name, self.name, after)


class Installation:
    """The result of `inductor`: a context manager that gives the records, and restores the hook when it ends."""

    def __init__(self, previous: Any, graphs: list[OrderedGraph]) -> None:
        self._previous, self.graphs = previous, graphs

    def __enter__(self) -> list[OrderedGraph]:
        return self.graphs

    def __exit__(self, *exception: object) -> None:
        setattr(config, HOOK, self._previous)


def inductor(
    enabled: bool = True, *, method: str = DEFAULT_METHOD, time_limit: float | str | None = None
) -> Installation:
    """Let PyTorch Inductor (`torch.compile` as it is) run its kernels in an order of less peak memory.

    Installed as `torch._inductor.config._post_fusion_custom_pass`, which is called after fusion and before Inductor's
    own three heuristics. An order is taken if its peak, by Inductor's own estimate, is at least a thousandth below that
    of the order that Inductor would take; else all stays as it is. Which kernels there are does not change, and neither
    do the results. Each graph is logged by the logger `schedopt.inductor`. A graph that Inductor finds in its cache was
    put in order when it was compiled, and is not reported again.

    Parameters
    ----------
    enabled
        Whether to install the hook (default), from now on or, in a `with` statement, for its block; False removes it.
    method
        How to search for an order, as in `schedopt.solve`.
    time_limit
        Of the search per graph, as "2s"; by default all together takes 0.2 ms per kernel, of which a search gets the
        time that Inductor's heuristics leave, and 20 ms at least.

    Returns
    -------
    Installation
        For a `with` statement, which binds a list that fills with an `OrderedGraph` per graph compiled.

    Raises
    ------
    UsageError
        If this version of PyTorch has no such hook, or another program has installed its own pass there.

    Examples
    --------
    >>> import torch
    >>> model = torch.compile(torch.nn.Linear(8, 4))
    >>> with schedopt.inductor() as graphs:
    ...     pass  # call the model here: graphs compiled within are put in order
    """
    check_hook()
    previous = getattr(config, HOOK)
    if previous is not None and not isinstance(previous, PeakMemoryOrder):
        raise UsageError(f"torch._inductor.config.{HOOK} is taken by {previous!r}; set it to None first")
    order_method(method)
    graphs: list[OrderedGraph] = []
    order = PeakMemoryOrder(method, None if time_limit is None else parse_seconds(time_limit), graphs)
    setattr(config, HOOK, order if enabled else None)
    return Installation(previous, graphs)
