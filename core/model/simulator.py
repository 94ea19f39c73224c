"""Price a schedule with the fast kernels (REGAL A.4; Topoformer eq. 1-3 and 15 on one device)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..base.errors import ScheduleError
from ..graph.graph import CostGraph
from ..kernels import cost_model
from ..kernels.graph_arrays import graph_arrays
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Schedule
from .unrolled import of_runs


@dataclass(frozen=True, eq=False)
class Simulation:
    """The cost of a schedule: bytes and microseconds."""

    peak_per_device: IntArray  # shape `(devices,)`
    clock_per_device: FloatArray
    step_memory: IntArray  # shape `(steps,)`: on the step's device (a transfer's target) while it runs
    step_start: FloatArray
    step_end: FloatArray

    @cached_property
    def peak(self) -> int:
        """Bytes on the fullest device."""
        return int(self.peak_per_device.max())

    @cached_property
    def runtime(self) -> float:
        """Makespan in microseconds."""
        return float(self.clock_per_device.max())


def input_peak(graph: CostGraph) -> int:
    """Return the peak of the input order on one device, bytes."""
    model = model_of(graph)
    return simulate(Problem(model), Schedule.single_device(model.input_order)).peak


def needed_receivers(graph: CostGraph, placement: IndexArray, devices: int) -> BoolArray:
    """Return whether a placement has each tensor sent to each of the first devices; shape `(tensors, devices)`."""
    pointers, readers = graph.consumers
    needed, tensors = np.zeros((graph.num_tensors, devices), bool), np.arange(graph.num_tensors)
    needed[np.repeat(tensors, np.diff(pointers)), placement[readers]] = True
    needed[tensors, placement[graph.tensor_producer]] = False
    return needed


def simulate(problem: Problem, schedule: Schedule) -> Simulation:
    """Step through a schedule."""
    graph, items = problem.graph, schedule.items
    if problem.recompute:
        if np.any((items < 0) | (items >= graph.num_ops) | (schedule.sources != 0) | (schedule.targets != 0)):
            raise ScheduleError(f"{graph.name}: a schedule with repeated ops runs ops alone, on device 0")
        if np.array_equal(np.sort(items), np.arange(graph.num_ops)):  # none is repeated
            return simulate(Problem(graph, memory_limit=problem.memory_limit), schedule)
        return simulate(*of_runs(problem, schedule))
    ops = schedule.items >= 0
    times = np.bincount(schedule.items[ops], minlength=graph.num_ops)
    if len(times) > graph.num_ops or not np.all(times == 1):
        raise ScheduleError(f"{graph.name}: the schedule does not run each op exactly once")
    if not np.all((schedule.targets >= 0) & (schedule.targets < problem.devices)):
        raise ScheduleError(f"{graph.name}: the schedule uses devices outside 0 to {problem.devices - 1}")
    placement = schedule.placement(graph)
    used = int(schedule.targets.max()) + 1  # the others stay empty, and there may be many
    needed = needed_receivers(graph, placement, used)
    needed[cost_model.replicated(problem)] = False
    sent = ~schedule.items[~ops].astype(np.int64) * used + schedule.targets[~ops]
    if not np.array_equal(np.sort(sent), np.flatnonzero(needed)):
        raise ScheduleError(f"{graph.name}: the schedule's transfers are not those its placement needs")
    if not problem.is_symmetric:
        allowed, group = problem.rules.allowed[np.arange(graph.num_ops), placement], problem.rules.group
        for op in np.flatnonzero(~allowed | (placement != placement[group])).tolist():
            name, label = problem.machine.devices[placement[op]].name, graph.op_label(op)
            raise ScheduleError(f"{graph.name}: op {label} may not run on '{name}', or not apart from its group")
    arrays, devices = graph_arrays(graph, used), cost_model.device_arrays(problem, used)
    scratch = cost_model.new_scratch(arrays, used)
    scratch.placement[:] = placement
    start, end = np.empty((2, len(schedule)))
    steps = cost_model.TimedSteps(schedule.items.copy(), schedule.targets.copy(), start, end)  # as searches have them
    wrong, reason = cost_model.run_steps(arrays, devices, scratch, steps, True)
    if reason == cost_model.NO_LINK:
        one, two = (problem.machine.devices[ends[wrong]].name for ends in (schedule.sources, schedule.targets))
        raise ScheduleError(f"{graph.name}: step {wrong + 1} sends from '{one}' to '{two}', which have no link")
    if reason != cost_model.FINE:
        raise ScheduleError(f"{graph.name}: step {wrong + 1} runs before its inputs are on its device")
    peak, clock = np.zeros(problem.devices, np.int64), np.zeros(problem.devices)
    peak[:used] = scratch.peak
    for ends in (schedule.sources, schedule.targets):
        np.maximum.at(clock, ends, end)
    return Simulation(peak, clock, scratch.memory[: len(schedule)], start, end)
