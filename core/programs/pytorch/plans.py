"""Plans: traced programs in a good order: measured, solved, reordered, compared."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...base.errors import OtherGraphError, ScheduleError, UsageError
from ...base.units import format_bytes
from ...bounds.bounds import is_met
from ...graph.graph import CostGraph
from ...model.allocators import Allocator
from ...model.simulator import input_peak
from ...problem.schedule import Reserved
from ...report.explanation import layers_again
from ...report.result import OPENING, Result
from ...search.method_spec import parse_method
from ...solve.placed import solve_and_place
from ..fresh_process import return_freed_memory
from ..options import AUTO, OptimizeOptions
from ..pipeline import check_limit, limit_sentence, reserved_sentence
from ..runtime import check_order, cost_of, read_order
from .importer import graph_of
from .run import measured_costs, reorder
from .torch_internals import pytree
from .tracing import OrderedGraph, TorchProgram

log = logging.getLogger("schedopt.optimize")


@dataclass(frozen=True)
class PlanSettings:
    """How plans are made."""

    options: OptimizeOptions = OptimizeOptions()
    method: str = "auto"
    dynamic: bool | None = None  # False: refuse all but the first kind of call
    plan_limit: int = 8  # plans kept, as `torch._dynamo.config.recompile_limit`
    # compare results, bit for bit: a step's with program order, a model's with those of the model itself
    verify: bool = True
    costs: str = "measured"  # or `roofline`: no op is run to make a plan
    schedule: str | None = None  # file of the schedule that the ops of a step run in which it is of
    # called with a line per plan: peak memory before and after, and its bound
    note: Callable[[str], None] | None = None


def graph_for(program: TorchProgram, settings: PlanSettings) -> CostGraph:
    """Return the graph of a program, with the workspaces that its ops were seen to take if they may be run."""
    if settings.costs == "roofline":
        return graph_of(program)
    is_apart = settings.schedule is None
    return graph_of(program, measured=measured_costs(program, program.device.type, timed_runs=0, apart=is_apart))


# What runs by cuBLAS, which takes a workspace once and keeps it.
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "matmul", "einsum"}
_PRODUCTS |= {"_addmm_activation", "_scaled_mm", "_int_mm", "_transformer_encoder_layer_fwd"}


def allocator_in_use(graph: CostGraph) -> Allocator | None:
    """Return PyTorch's caching allocator with its options, and cuBLAS's workspace if it is used; None for another."""
    is_there = torch.cuda.is_available()  # else a program is planned for a device elsewhere
    if is_there and torch.cuda.get_allocator_backend() != "native":
        return None
    options = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    try:
        allocator = Allocator.of_options(options)
        if _PRODUCTS.isdisjoint(re.sub(r"_?(_\d+)?$", "", name) for name in graph.op_names):
            return allocator
        if is_there and hasattr(torch.backends.cuda, "cublas_workspace_size"):
            return dataclasses.replace(allocator, cublas_workspace=torch.backends.cuda.cublas_workspace_size())
        default = ":4096:8" if is_there and torch.cuda.get_device_capability()[0] >= 9 else "default"
        workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG") or default
        return Allocator.of_options(",".join(filter(None, (options, f"cublas_workspace:{workspace}"))))
    except UsageError as error:
        warnings.warn(f"plans are for live bytes, not for PyTorch's allocator: {error}", stacklevel=2)
        return None


def ordered(
    program: TorchProgram, settings: PlanSettings, places: tuple[bool, ...] = (False,)
) -> tuple[CostGraph, fx.GraphModule]:
    """Measure, solve and reorder a program; the logger `schedopt.optimize` is told its `OrderedGraph`."""
    start = time.monotonic()
    graph = graph_for(program, settings)
    if settings.schedule is not None and (found := _order_in(settings.schedule, graph)) is not None:
        return graph, _as_scheduled(program, graph, *found, settings)
    options, device = settings.options, program.device
    allocator = options.allocator
    if allocator == AUTO:
        allocator = allocator_in_use(graph) if device.type == "cuda" else None
    problem, method = options.problem(graph), parse_method(settings.method)
    result = solve_and_place(problem, method, None, allocator, places, **options.budget)
    check_limit(program.name, result, remedy="let ops run again with recompute=True")
    module = reorder(program, graph, result.schedule.op_order().tolist())
    module.meta.update(peak=result.limited_peak, is_reserved=result.reserved is not None)
    if result.reserved is not None and device.type == "cuda":
        module.meta["opening_block"] = result.reserved.opening_block, device
    if settings.note is not None:
        settings.note(_summary(program.name, result))
    before, peak, bound = int(result.input_value), int(result.value), int(result.lower_bound)
    log.info("%s", OrderedGraph(program.name, graph.num_ops, before, peak, bound, time.monotonic() - start))
    if reserved := reserved_sentence(result):
        log.info("%s: %s", program.name, reserved)
    gc.collect(1)  # what planning took goes back before the first step takes its own; older objects take a second
    return_freed_memory()
    return graph, module


def _order_in(path: str, graph: CostGraph) -> tuple[list[int], Reserved | None] | None:
    """Return the order of a schedule file, and what it reserves; None if it is of another graph."""
    try:
        order, loaded = read_order(path, graph)
        check_order(graph, order)
    except (OtherGraphError, ScheduleError):
        return None
    return order, loaded.reserved


def _as_scheduled(
    program: TorchProgram, graph: CostGraph, order: Sequence[int], reserved: Reserved | None, settings: PlanSettings
) -> fx.GraphModule:
    """Return a program in the order of the schedule file, which keeps the memory limit."""
    before, peak = input_peak(graph), cost_of(graph, order).peak
    limit = settings.options.problem(graph).memory_limit
    text = f"{program.name}: peak memory {format_bytes(before)} -> {format_bytes(peak)} by {settings.schedule}"
    if limit is not None and peak > limit:
        raise ScheduleError(f"{text}, which does not keep the memory limit of {format_bytes(limit)}")
    module = reorder(program, graph, order)
    module.meta.update(peak=peak, scheduled=True, is_reserved=False)
    if reserved is not None and reserved.opening_block:
        if reserved.is_before_weights:  # they are there already
            text += f"; {OPENING}{reserved.opening}"
        elif (device := program.device).type == "cuda":
            module.meta["opening_block"] = reserved.opening_block, device
    if settings.note is not None:
        settings.note(text)
    return module


def _summary(name: str, result: Result) -> str:
    problem = result.problem
    before = format_bytes(input_peak(problem.graph))
    text = f"{name}: peak memory {before} -> {format_bytes(result.peak_memory)}"
    if problem.recompute:
        said = (limit_sentence(result), layers_again(problem, result.schedule), reserved_sentence(result))
        return " ".join(filter(None, (f"{text}.", *said)))
    about = "optimal" if is_met(result.value, result.lower_bound) else f"gap {100 * result.gap:.2f}%"
    text += f" (bound {format_bytes(int(result.lower_bound))}, {about})"
    if reserved := reserved_sentence(result):
        return f"{text}. {reserved}"
    is_full = about == "optimal" and problem.memory_limit is None
    return f"{text}; memory_limit='70%' lets ops run again" if is_full else text


@contextmanager
def as_traced(grad: bool) -> Iterator[None]:
    """Run a traced program: its casts are ops of its own, and so is its backward."""
    with ExitStack() as stack:
        for device in autocast_devices():
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if grad:  # what it updates is no inference tensor
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad))
        yield


Facts = tuple[tuple[str, tuple[str, str]], ...]
"""Names and the properties that a plan depends on, in short and whole, in the order in which errors look at them."""


def input_facts(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Facts:
    """Bind the inputs of a call by name, as Python does, and return the fact of each leaf: `x`, `batch['ids']`."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [str(parameter.replace(annotation=parameter.empty)) for parameter in signature.parameters.values()]
        raise UsageError(f"{error}; the inputs are {', '.join(known) or 'none'}") from None
    bound.apply_defaults()
    found: Any = pytree.tree_flatten_with_path(dict(bound.arguments))[0]
    names = [f"{path[0].key}{pytree.keystr(path[1:])}" for path, _ in found]
    return tuple((name, _fact(name, leaf)) for name, (_, leaf) in zip(names, found, strict=True))


def _fact(name: str, leaf: Any) -> tuple[str, str]:
    """Return an input's properties that a plan depends on: `float32[1, 8]` and its strides, or `3.0` and its type."""
    if not isinstance(leaf, torch.Tensor):
        kind = type(leaf).__qualname__
        if type(leaf).__module__ == "numpy":
            raise UsageError(f"input '{name}' is a NumPy {kind}; give a tensor (torch.from_numpy, torch.as_tensor)")
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            raise UsageError(
                f"input '{name}' is a dataclass that PyTorch does not know as a container; call "
                f"torch.utils._pytree.register_dataclass({kind})"
            )
        return repr(leaf), f"{leaf!r} of type {type(leaf)}"  # 0.0 is not -0.0, and nan is nan
    if leaf.layout is not torch.strided or leaf.is_nested:
        raise UsageError(f"input '{name}' is a tensor of layout {leaf.layout}, which is not supported; give to_dense()")
    empty = leaf.numel() == 0
    strides = [0 if empty or size == 1 else step for size, step in zip(leaf.shape, leaf.stride(), strict=True)]
    text = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    text += f" on {leaf.device}" * (leaf.device.type != "cpu")
    return text, f"{text} of strides {strides}"


def difference(expected: Facts, given: Facts) -> str | None:
    """Return the first difference as `expected x: float32[1, 8], got float32[4, 8]`; None if there is none."""
    wanted, found = dict(expected), dict(given)
    for name, one in wanted.items():
        if name not in found:
            return f"expected {name}: {one[0]}, got nothing"
        other = found[name]
        if one != other:
            whole = one[0] == other[0]
            return f"expected {name}: {one[whole]}, got {other[whole]}"
    return next((f"expected no {name}, got {other[0]}" for name, other in given if name not in wanted), None)


def autocast_devices() -> list[str]:
    """Return the types of devices that have autocast here."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def settings_facts() -> Facts:
    """Return PyTorch's settings that a plan depends on: autocast per type of device, defaults, determinism."""
    facts: dict[str, object] = {}
    for device in autocast_devices():
        on = torch.is_autocast_enabled(device)
        facts[f"autocast on {device}"] = torch.get_autocast_dtype(device) if on else "off"
    facts["default dtype"] = torch.get_default_dtype()
    facts["default device"] = torch.get_default_device()
    facts["deterministic algorithms"] = torch.are_deterministic_algorithms_enabled()
    return tuple((name, (str(fact), str(fact))) for name, fact in facts.items())
