"""`torch.compile(model, backend="schedopt")`: AOTAutograd's graphs, with their ops in an order of less peak memory."""

from __future__ import annotations

import inspect
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import fx

from ...base.errors import GraphError, ProgramError, UsageError
from ...base.options import fixed, options_in
from ...base.units import format_bytes
from ...model.simulator import input_peak
from ...search.method_spec import MethodSpec
from ...search.registry import DEFAULT_METHOD
from ...solve.solve import solve
from ..options import OptimizeOptions
from .aot_importer import SAVED, aot_graph
from .dynamo_internals import (
    BoxedCodeGen,
    ShortenTraceback,
    TracingContext,
    aot_autograd,
    boxed,
    get_aot_graph_name,
    min_cut_rematerialization_partition,
)
from .node_order import OrderedGraph, in_order, order_method
from .torch_internals import storage_id

Boxed = Callable[[list[Any]], Any]
SECONDS = {"default": 1.0, "max-autotune": 10.0}
"""Most seconds of search per graph, by mode."""
log = logging.getLogger("schedopt.torch_compile")


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo; what `torch.compile(model, backend="schedopt")` calls.

    The forward and backward graphs are those of `backend="aot_eager"`, with the same partition between them (minimum
    cut), and so are the results, bit for bit: only the order of ops differs, and only where that lowers the peak that
    is counted. Sizes are known without a run, so an op's own workspace is not counted. A graph that cannot be scheduled
    keeps its order, with a warning. The logger `schedopt.torch_compile` is told each `OrderedGraph`.

    Parameters
    ----------
    module, inputs
        The graph, and a tensor or number for each of its inputs.
    mode
        `default`: at most a second of search per graph; `max-autotune`: at most 10. A search ends when no order can
        need less.
    options
        `time_limit` (as "2s"), `evaluations`, `method` and `seed`: how each graph is searched, as in `schedopt.solve`;
        `memory_limit` (as "2GiB" or "80%"): warn of each graph for which no order was found that needs no more.

    Raises
    ------
    UsageError
        If a mode or an option is unknown, or a value is not understood.
    """
    try:
        read, method = _read(mode, options or {})
    except UsageError as error:
        raise _shown(error) from None
    compiler = _Compiler(read, method)
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=partial(compiler.compile, kind="forward"),
        bw_compiler=partial(compiler.compile, kind="backward"),
        inference_compiler=partial(compiler.compile, kind="inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)
    return compiled


def _shown(error: UsageError) -> Exception:
    """Return an error that TorchDynamo passes on as it is, from our caller on, where its version has such errors."""
    if ShortenTraceback is None:
        return error
    frame = inspect.currentframe()
    kind = type("UsageError", (UsageError, ShortenTraceback), {"__module__": UsageError.__module__})
    return cast(Exception, kind(str(error), first_useful_frame=frame.f_back if frame else None))


@dataclass(frozen=True)
class BackendOptions(OptimizeOptions):
    """What `options` may hold besides `method`; see `backend`."""

    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)


def _read(mode: str | None, given: Mapping[str, Any]) -> tuple[BackendOptions, MethodSpec]:
    """Return the options of each graph's problem and search, and the method."""
    known = ["method", *(field.name for field in options_in(BackendOptions))]
    for name in given:
        if name not in known:
            raise UsageError(f"backend 'schedopt' has no option '{name}'; it has {', '.join(known)}")
    if mode is not None and mode not in SECONDS:
        raise UsageError(f"backend 'schedopt' has no mode '{mode}'; it has {', '.join(SECONDS)}")
    options = BackendOptions.picked(given)
    if options.time_limit is None and options.evaluations is None:
        options = replace(options, time_limit=SECONDS[mode or "default"])
    return options, order_method(given.get("method", DEFAULT_METHOD), options.evaluations)


class _Compiler:
    """Puts the graphs of one compilation in order, the forward graph before the backward one."""

    def __init__(self, options: BackendOptions, method: MethodSpec) -> None:
        self.options, self.method = options, method
        self.callers: list[torch.UntypedStorage] = []

    def compile(self, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> Boxed:
        """Return the graph as a function that takes its arguments in a list, which it empties.

        In the backward pass saved tensors and incoming gradients are freed after their last reader.
        """
        name = get_aot_graph_name()
        try:
            return _boxed(self._ordered(name, module, inputs, kind))
        except (GraphError, ProgramError) as error:
            warnings.warn(f"schedopt leaves a graph in its own order: {error}", stacklevel=2)
        return _boxed(module)

    def _ordered(self, name: str, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> fx.GraphModule:
        start = time.monotonic()
        graph = aot_graph(name, module, inputs, self._kept(module, inputs, kind))
        if graph.num_ops < 2:
            return module
        problem = self.options.problem(graph)
        before = input_peak(graph)
        result = solve(problem, self.method, **self.options.budget)
        seconds = time.monotonic() - start
        peak, bound = int(result.peak_memory), int(result.lower_bound)
        ops = graph.num_ops - graph.op_names.count(SAVED)
        log.info("%s", OrderedGraph(name, ops, before, min(before, peak), bound, seconds))
        if not result.is_feasible:
            assert problem.memory_limit is not None
            warnings.warn(
                f"schedopt found no order of {name} that needs less than {format_bytes(result.peak_memory)}, "
                f"and the memory limit is {format_bytes(problem.memory_limit)}",
                stacklevel=2,
            )
        if result.peak_memory >= before:
            return module
        names = (graph.op_names[op] for op in result.schedule.op_order().tolist())
        return in_order(module, [op for op in names if op != SAVED])

    def _kept(self, module: fx.GraphModule, inputs: Sequence[Any], kind: str) -> list[bool]:
        """Return for each input whether the caller keeps it, by its storage; note what the caller has."""
        if kind == "backward":
            held = {storage_id(storage) for storage in self.callers}
            return [not isinstance(v, torch.Tensor) or storage_id(v.untyped_storage()) in held for v in inputs]
        context = TracingContext.try_get()
        metadata = context.fw_metadata if context else None
        results: Any = module.graph.output_node().args[0]  # the model's, then those saved for the backward graph
        returned = [node.meta.get("val") for node in results[: getattr(metadata, "num_forward_returns", 0)] if node]
        values = (*inputs, *returned)
        self.callers = [value.untyped_storage() for value in values if isinstance(value, torch.Tensor)]
        return [True] * len(inputs)


def _boxed(module: fx.GraphModule) -> Boxed:
    """Return a function that takes its arguments in a list and empties it, so that each is freed after its last use."""
    if BoxedCodeGen is None:
        run: Boxed = fx.Interpreter(module).boxed_run
    else:
        module.graph.set_codegen(BoxedCodeGen())
        module.recompile()
        run = module.forward
    return boxed(lambda arguments: run(arguments))
