"""Plans: traced programs in a good order: measured, solved, reordered, compared."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from ...base.errors import OtherGraphError, ScheduleError
from ...base.units import format_bytes
from ...graph.graph import CostGraph
from ...model.simulator import input_peak, simulate
from ...problem.schedule import Schedule
from ...report.explanation import layers_again
from ...report.result import Result
from ...solve.solve import solve
from ..options import OptimizeOptions
from ..pipeline import check_limit, limit_sentence
from ..runtime import check_order, problem_of, read_order
from ..system_allocator import return_freed_memory
from .apply import check_module, reorder
from .costs import measured_costs
from .guards import autocast_devices
from .importer import graph_of
from .node_order import OrderedGraph
from .program import TorchProgram

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


def in_order(program: TorchProgram, settings: PlanSettings) -> fx.GraphModule:
    """Return a program in a good order, compared with program order."""
    module = ordered(program, settings)[1]
    if settings.verify:
        check_module(program, module)
    return module


def graph_for(program: TorchProgram, settings: PlanSettings) -> CostGraph:
    """Return the graph of a program, with the workspaces that its ops were seen to take if they may be run."""
    if settings.costs == "roofline":
        return graph_of(program)
    on_cuda = any(isinstance(value, torch.Tensor) and value.is_cuda for value in program.arguments)
    return graph_of(program, measured=measured_costs(program, "cuda" if on_cuda else "cpu", timed_runs=0))


def ordered(program: TorchProgram, settings: PlanSettings) -> tuple[CostGraph, fx.GraphModule]:
    """Measure, solve and reorder a program; the logger `schedopt.optimize` is told its `OrderedGraph`."""
    start = time.monotonic()
    graph = graph_for(program, settings)
    if settings.schedule is not None and (order := _order_in(settings.schedule, graph)) is not None:
        return graph, _as_scheduled(program, graph, order, settings)
    result = solve(settings.options.problem(graph), settings.method, **settings.options.budget)
    check_limit(program.name, result, remedy="let ops run again with recompute=True")
    module = reorder(program, graph, result.schedule.op_order().tolist())
    module.meta["peak"] = result.peak_memory
    if settings.note is not None:
        settings.note(_summary(program.name, result))
    before, peak, bound = int(result.input_value), int(result.value), int(result.lower_bound)
    log.info("%s", OrderedGraph(program.name, graph.num_ops, before, peak, bound, time.monotonic() - start))
    gc.collect(1)  # what planning took goes back before the first step takes its own; older objects take a second
    return_freed_memory()
    return graph, module


def _order_in(path: str, graph: CostGraph) -> list[int] | None:
    """Return the order of a schedule file; None if it is of another graph."""
    try:
        order = read_order(path, graph)
        check_order(graph, order)
    except (OtherGraphError, ScheduleError):
        return None
    return order


def _as_scheduled(
    program: TorchProgram, graph: CostGraph, order: Sequence[int], settings: PlanSettings
) -> fx.GraphModule:
    """Return a program in the order of the schedule file, which keeps the memory limit."""
    problem = problem_of(graph, order)
    before, peak = input_peak(graph), simulate(problem, Schedule.single_device(np.array(order))).peak
    limit = settings.options.problem(graph).memory_limit
    text = f"{program.name}: peak memory {format_bytes(before)} -> {format_bytes(peak)} by {settings.schedule}"
    if limit is not None and peak > limit:
        raise ScheduleError(f"{text}, which does not keep the memory limit of {format_bytes(limit)}")
    if settings.note is not None:
        settings.note(text)
    module = reorder(program, graph, order)
    module.meta.update(peak=peak, scheduled=True)
    return module


def _summary(name: str, result: Result) -> str:
    problem = result.problem
    before = format_bytes(input_peak(problem.graph))
    text = f"{name}: peak memory {before} -> {format_bytes(result.peak_memory)}"
    if problem.recompute:
        return f"{text}. {limit_sentence(result)} {layers_again(problem, result.schedule)}".rstrip()
    about = "optimal" if result.status == "optimal" else f"gap {100 * result.gap:.2f}%"
    text += f" (bound {format_bytes(int(result.lower_bound))}, {about})"
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
