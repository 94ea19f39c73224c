"""`torch.compile(model, backend="schedopt")`: AOTAutograd's graphs, with their ops in an order of less peak memory."""

from __future__ import annotations

import inspect
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from ...base.errors import GraphError, ProgramError, UsageError
from ...base.options import fixed, options_in
from ...base.units import format_bytes
from ...graph.graph import CostGraph
from ...model.simulator import input_peak
from ...search.method_spec import MethodSpec
from ...search.registry import DEFAULT_METHOD
from ...solve.solve import solve
from ..options import OptimizeOptions
from . import dynamo_internals as internals
from .calls import COLLECTIVES
from .importer import SAVED, Import, graph_of
from .torch_internals import FakeTensorMode, storage_id
from .tracing import OrderedGraph, TorchProgram, check_flat, foreign_code, in_order, is_number, order_method, silent

Boxed = Callable[[list[Any]], Any]
SECONDS = {"default": 1.0, "max-autotune": 10.0}  # most of search per graph, by mode
log = logging.getLogger("schedopt.torch_compile")


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo, for `torch.compile(model, backend="schedopt")`.

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
        if internals.ShortenTraceback is None:
            raise
        kind = type("UsageError", (UsageError, internals.ShortenTraceback), {"__module__": UsageError.__module__})
        raise kind(str(error), first_useful_frame=inspect.currentframe()) from None  # passed on as it is
    compiler = _Compiler(read, method)
    compiled: Callable[..., Any] = internals.aot_autograd(
        fw_compiler=partial(compiler.compile, kind="forward"),
        bw_compiler=partial(compiler.compile, kind="backward"),
        inference_compiler=partial(compiler.compile, kind="inference"),
        partition_fn=internals.min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)
    return compiled


@dataclass(frozen=True)
class BackendOptions(OptimizeOptions):
    """The entries of `options` besides `method`; see `backend`."""

    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)
    allocator: Any = fixed(None)


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
        """Return the graph as a function that takes its arguments in a list, and frees each after its last use."""
        try:
            module = self._ordered(internals.get_aot_graph_name(), module, inputs, kind)
        except (GraphError, ProgramError) as error:
            warnings.warn(f"schedopt leaves a graph in its own order: {error}", stacklevel=2)
        module.graph.set_codegen(internals.BoxedCodeGen())
        module.recompile()
        return internals.boxed(lambda arguments: module.forward(arguments))

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
        """Return for each input whether the caller keeps it, by its storage; note the caller's storages."""
        if kind == "backward":
            held = {storage_id(storage) for storage in self.callers}
            return [not isinstance(v, torch.Tensor) or storage_id(v.untyped_storage()) in held for v in inputs]
        context = internals.TracingContext.try_get()
        metadata = context.fw_metadata if context else None
        results: Any = module.graph.output_node().args[0]  # the model's, then those saved for the backward graph
        returned = [node.meta.get("val") for node in results[: getattr(metadata, "num_forward_returns", 0)] if node]
        values = (*inputs, *returned)
        self.callers = [value.untyped_storage() for value in values if isinstance(value, torch.Tensor)]
        return [True] * len(inputs)


def aot_graph(name: str, module: fx.GraphModule, inputs: Sequence[Any], kept: Sequence[bool]) -> CostGraph:
    """Return a graph of AOTAutograd as a `CostGraph`; its ops are named after the nodes."""
    check_flat(module.graph, name)
    with foreign_code(name, "the graph cannot be imported"), silent():
        roles = tuple("input" if keeps else "saved" for keeps in kept)
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        fakes = _concrete(inputs, FakeTensorMode(allow_fallback_kernels=False))
        program = TorchProgram(name, module, tuple(fakes), roles, tuple(names), ())
        return graph_of(program, walk=_AotImport)


def _concrete(values: Sequence[Any], mode: FakeTensorMode) -> list[Any]:
    """Return fakes of the tensors' hinted sizes, sharing storages as they do, and hints of the numbers."""
    storages: dict[int, torch.Tensor] = {}
    arguments = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            arguments.append(_hint(value))
            continue
        if value.layout is not torch.strided:
            raise ProgramError(f"an input has the layout {value.layout}; only strided tensors are supported")
        storage, size = value.untyped_storage(), value.element_size()
        with mode:
            items = -(-_hint(storage.nbytes()) // size)
            new = torch.empty(items, dtype=value.dtype, device=value.device)
            base = storages.setdefault(storage_id(storage), new).view(value.dtype)
            shape, strides = [_hint(size) for size in value.shape], [_hint(step) for step in value.stride()]
            arguments.append(base.as_strided(shape, strides, _hint(value.storage_offset())))
    return arguments


def _hint(value: Any) -> Any:
    """Return the number that a symbolic one stood for when it was traced."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    if value.node.hint is None:
        raise ProgramError(f"the size {value} depends on the values of tensors")
    return value.node.hint


class _AotImport(Import):
    """A walk that lets saved tensors go, computes numbers and keeps collective ops in order; its arguments are fake."""

    is_fake = True

    def __init__(self, program: TorchProgram, *costs: Any) -> None:
        super().__init__(program, *costs)
        self.numbers: dict[fx.Node, set[int]] = {}
        self.last_collective: int | None = None

    def _add(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            constant = _concrete([getattr(self.program.module, str(node.target))], self.mode)[0]
            self._hold(node, constant, str(node.target), "constant")
        elif is_number(node):  # what uses it waits for the ops whose results it is computed from
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
            self.values[node], self.ports[node] = node.target(*args, **kwargs), []  # type: ignore[operator]
            producers = {op for source in node.all_input_nodes for op, _ in self.ports[source]}
            self.numbers[node] = producers | self._awaited(node)
        else:
            super()._add(node)

    def _awaited(self, node: fx.Node) -> set[int]:
        """Return the ops that the numbers among the arguments of a node are computed from."""
        return {op for source in node.all_input_nodes for op in self.numbers.get(source, ())}

    def _call(self, node: fx.Node) -> None:
        super()._call(node)
        number, op = len(self.ops) - 1, self.ops[-1]
        op["control"] |= self._awaited(node)
        if getattr(node.target, "namespace", "") in COLLECTIVES:
            if self.last_collective is not None:
                op["control"].add(self.last_collective)
            self.last_collective = number
        op["control"] -= {producer for producer, _ in op["inputs"]}
