"""`schedopt.inductor`: an order of less peak memory for the kernels of PyTorch Inductor, after fusion."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name
from torch._inductor import config, custom_graph_pass, memory
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from ....version import VERSION
from ...costs.simulator import input_peak
from ...errors import FormatError, GraphError, UsageError
from ...graph import CostGraph
from ...problem import Problem
from ...schedule import Schedule
from ...search.registry import DEFAULT_METHOD
from ...solve import solve
from ...units import format_bytes, parse_seconds
from ..graph_files.inductor import buffer_graph
from .order_method import order_method

HOOK = "_post_fusion_custom_pass"
LEAST_SECONDS, SECONDS_PER_NODE = 0.02, 1.5e-4
"""What a search takes at most, by default."""
log = logging.getLogger("schedopt.inductor")
_SchedulerPass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", object)  # without one nothing is cached


@dataclass(frozen=True)
class InductorGraph:
    """What became of a graph that Inductor compiled.

    Parameters
    ----------
    name
        Of the graph, as PyTorch calls it.
    nodes
        Kernels, after fusion.
    stock_peak
        Bytes at the peak by Inductor's own estimate, in the order that Inductor would have taken.
    peak
        Bytes at the peak in the order that it was given; never more.
    bound
        Bytes that no order needs less than.
    seconds
        What this took, Inductor's own heuristics included, which run twice.
    """

    name: str
    nodes: int
    stock_peak: int
    peak: int
    bound: int
    seconds: float


class PeakMemoryOrder(_SchedulerPass):  # type: ignore[misc]
    """The pass: takes Inductor's kernels after fusion and returns them in the order they shall run.

    Parameters
    ----------
    method, seconds
        How to search; and for how long; None for `SECONDS_PER_NODE`, but at least `LEAST_SECONDS`.
    graphs
        Takes the records.
    """

    def __init__(self, method: str, seconds: float | None, graphs: list[InductorGraph]) -> None:
        self.method, self.seconds, self.graphs = method, seconds, graphs

    def uuid(self) -> Any:
        """Return what Inductor's caches know the pass by: a graph compiled with another one is not taken."""
        return ("schedopt", VERSION, self.method, self.seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.method, self.seconds, [])

    def __call__(self, nodes: list[Any]) -> list[Any]:
        """Return the nodes in a better order, or as they are where Inductor's own is as good."""
        start = time.monotonic()
        kernels = _Kernels(nodes)
        order, bound = nodes, 0
        try:
            order, bound = kernels.improved(
                self.method, self.seconds or max(LEAST_SECONDS, SECONDS_PER_NODE * len(nodes))
            )
        except (FormatError, GraphError) as error:
            log.warning("%s keeps its order: %s", kernels.name, error)
        peak = min(kernels.estimate(order), kernels.stock_peak)
        record = InductorGraph(kernels.name, len(nodes), kernels.stock_peak, peak, bound, time.monotonic() - start)
        self.graphs.append(record)
        log.info(
            "%s: %d kernels, peak %s by Inductor, %s now, no order needs less than %s, %.2f s",
            *(record.name, record.nodes, format_bytes(record.stock_peak), format_bytes(record.peak)),
            *(format_bytes(record.bound), record.seconds),
        )
        return order


class _Kernels:
    """The kernels of a graph, the order that Inductor would take, and what it estimates."""

    def __init__(self, nodes: list[Any]) -> None:
        scheduler = V.graph.scheduler
        inputs = OrderedSet(V.graph.graph_inputs.keys())
        self.nodes, self.outputs = nodes, OrderedSet(V.graph.get_output_names())
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

    def improved(self, method: str, seconds: float) -> tuple[list[Any], int]:
        """Return an order whose peak is below that of Inductor's, or else the given one, and the bound on any."""
        graph = self._graph()
        if input_peak(graph) != self.estimate(self.nodes):
            raise GraphError("its buffers are counted otherwise than this version of schedopt knows")
        by_name = {node.get_name(): node for node in self.nodes}
        number = {name: op for op, name in enumerate(graph.op_names)}
        first = [0] if graph.num_ops > len(self.nodes) else []
        spec = order_method(method)
        initial = Schedule.single_device(np.array([*first, *(number[node.get_name()] for node in self.stock)]))
        result = solve(Problem(graph), spec, time_limit=seconds, initial=initial if spec.method.searches else None)
        names = [graph.op_names[op] for op in result.schedule.op_order().tolist()]
        order = [by_name[name] for name in names if name in by_name]
        is_better = self.estimate(order) < self.stock_peak
        return order if is_better else self.nodes, int(result.lower_bound)

    def _graph(self) -> CostGraph:
        buffers = [
            _described(each, each.mpi_buffer.size_free, True, self.outputs, ()) for each in self.freeable.values()
        ]
        after = {}
        for node in self.nodes:
            reads = [buffer.get_name() for buffer in node.mpi_node.pred_buffers]
            after[node.get_name()] = [earlier.get_name() for earlier in node.mpi_node.pred_nodes]
            for made in node.get_outputs():
                buffers.append(_described(made, made.mpi_buffer.size_alloc, False, self.outputs, reads))
        nodes = [{"name": node.get_name(), "buffer_names": list(node.get_buffer_names())} for node in self.nodes]
        return buffer_graph({"nodes": nodes, "buffers": buffers}, self.name, self.name, after)


def _described(
    buffer: Any, allocated: int, is_input: bool, outputs: Collection[str], reads: Sequence[str]
) -> dict[str, Any]:
    """Return a buffer as `buffer_graph` reads it."""
    return {
        "name": buffer.get_name(),
        "size_alloc": allocated,
        "size_free": buffer.mpi_buffer.size_free,
        "is_input": is_input,
        "is_output": buffer.get_name() in outputs,
        "deps": reads,
    }


class Installation:
    """What `inductor` returns: a context manager that gives the records, and restores the hook when it ends."""

    def __init__(self, previous: Any, graphs: list[InductorGraph]) -> None:
        self._previous, self.graphs = previous, graphs

    def __enter__(self) -> list[InductorGraph]:
        return self.graphs

    def __exit__(self, *exception: object) -> None:
        setattr(config, HOOK, self._previous)


def inductor(
    enabled: bool = True, *, method: str = DEFAULT_METHOD, time_limit: float | str | None = None
) -> Installation:
    """Let PyTorch Inductor (`torch.compile` as it is) run its kernels in an order of less peak memory.

    Installed as `torch._inductor.config._post_fusion_custom_pass`, which is called after fusion and before Inductor's
    own three heuristics. An order is taken if its peak, by Inductor's own estimate, is below that of the order that
    Inductor would take; else all stays as it is. Which kernels there are does not change, and neither do the results.
    Each graph is logged by the logger `schedopt.inductor`. A graph that Inductor finds in its cache was put in order
    when it was compiled, and is not reported again.

    Parameters
    ----------
    enabled
        Whether to install the hook (default), from now on or, in a `with` statement, for its block; False removes it.
    method
        How to search for an order, as in `schedopt.solve`.
    time_limit
        Of the search per graph, as "2s"; by default 0.15 ms per kernel, and 20 ms for less than 134 of them.

    Returns
    -------
    Installation
        For a `with` statement, which binds a list that fills with an `InductorGraph` per graph compiled.

    Raises
    ------
    UsageError
        If this version of PyTorch has no such hook, or another program has installed its own pass there.

    Examples
    --------
    >>> import torch
    >>> model = torch.compile(torch.nn.Linear(8, 4))
    >>> with schedopt.inductor() as graphs:
    ...     pass  # call the model here: what is compiled within is put in order
    """
    _check_version()
    previous = getattr(config, HOOK)
    if previous is not None and not isinstance(previous, PeakMemoryOrder):
        raise UsageError(f"torch._inductor.config.{HOOK} is taken by {previous!r}; set it to None first")
    order_method(method)
    graphs: list[InductorGraph] = []
    order = PeakMemoryOrder(method, None if time_limit is None else parse_seconds(time_limit), graphs)
    setattr(config, HOOK, order if enabled else None)
    return Installation(previous, graphs)


def _check_version() -> None:
    wanted = ("reorder_for_peak_memory", "get_freeable_input_buf", "estimate_peak_memory")
    if not hasattr(config, HOOK) or not all(hasattr(memory, name) for name in wanted):
        raise UsageError(
            f"PyTorch {torch.__version__} does not let its Inductor's kernels be put in order after fusion; "
            "use a later version"
        )
