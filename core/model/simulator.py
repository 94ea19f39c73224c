"""Price a schedule with the fast kernels (REGAL A.4; Topoformer eq. 1-3 and 15 on one device)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import FloatArray, IndexArray, IntArray
from ..base.errors import ScheduleError
from ..graph.graph import CostGraph
from ..kernels.cost_model import Steps, find_receivers, new_state, step_through, strike_out_sent
from ..kernels.graph_arrays import graph_arrays
from ..kernels.links import links_of
from ..problem.problem import Problem
from ..problem.residents import GraphWithHomes, model_of
from ..problem.schedule import Schedule
from .machine_simulator import run_on_machine
from .unrolled import unrolled


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a schedule costs.

    Parameters
    ----------
    peak_per_device
        Shape `(devices,)`: bytes.
    runtime
        The latest clock, microseconds.
    clock_per_device
        Shape `(devices,)`: microseconds.
    step_memory
        Shape `(steps,)`: bytes on the step's device (a transfer's target) while it runs.
    step_end
        Shape `(steps,)`: microseconds, that device's clock after the step.
    step_start
        Shape `(steps,)`: microseconds; None where devices are identical, for it follows from the ends.
    """

    peak_per_device: IntArray
    clock_per_device: FloatArray
    step_memory: IntArray
    step_end: FloatArray
    step_start: FloatArray | None = None

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


def needed_receivers(graph: CostGraph, placement: IndexArray, *, replicate: bool = False) -> NDArray[np.uint64]:
    """Return per tensor the devices that a placement has it sent to, as bits; shape `(tensors,)`."""
    receivers = np.empty(graph.num_tensors, np.uint64)
    find_receivers(*graph.consumers, graph.tensor_producer, placement.astype(np.int32), receivers)
    if replicate and isinstance(graph, GraphWithHomes):
        receivers[graph.model.num_tensors :][~graph.is_written] = 0
    return receivers


def simulate(problem: Problem, schedule: Schedule) -> Simulation:
    """Step through a schedule.

    Raises
    ------
    ScheduleError
        If it does not run each op once, on its inputs, with exactly the transfers that it needs.
    """
    if problem.recompute:
        return _simulate_runs(problem, schedule)
    graph = problem.graph
    ops = schedule.items >= 0
    times = np.bincount(schedule.items[ops], minlength=graph.num_ops)
    if len(times) > graph.num_ops or not np.all(times == 1):
        raise ScheduleError(f"{graph.name}: the schedule does not run each op exactly once")
    if not np.all((schedule.targets >= 0) & (schedule.targets < problem.devices)):
        raise ScheduleError(f"{graph.name}: the schedule uses devices outside 0 to {problem.devices - 1}")
    placement = schedule.placement(graph)
    receivers = needed_receivers(graph, placement, replicate=problem.replicate)
    if not strike_out_sent(schedule.items, schedule.targets, receivers) or receivers.any():
        raise ScheduleError(f"{graph.name}: the schedule's transfers are not those its placement needs")
    if not problem.is_plain:
        costs = run_on_machine(problem, schedule)
        return Simulation(
            costs.peak_per_device, costs.clock_per_device, costs.step_memory, costs.step_end, costs.step_start
        )
    used = int(schedule.targets.max()) + 1  # the others stay empty, and there may be many
    arrays = graph_arrays(graph, used)
    state = new_state(arrays, used, True)
    state.placement[:] = placement
    step_memory = np.empty(len(schedule), np.int64)
    step_end = np.empty(len(schedule))
    steps = Steps(schedule.items, schedule.targets)
    wrong = step_through(arrays, state, steps, links_of(problem)._replace(devices=used), step_memory, step_end)
    if wrong >= 0:
        raise ScheduleError(f"{graph.name}: step {wrong} runs before its inputs are on its device")
    empty = (0, problem.devices - used)
    return Simulation(np.pad(state.peak, empty), np.pad(state.clock, empty), step_memory, step_end)


def _simulate_runs(problem: Problem, schedule: Schedule) -> Simulation:
    """Step through runs of ops, as the ops of a larger graph."""
    name, ops = problem.graph.name, problem.graph.num_ops
    if np.any((schedule.items < 0) | (schedule.items >= ops) | (schedule.sources != 0) | (schedule.targets != 0)):
        raise ScheduleError(f"{name}: a schedule with repeated ops runs ops alone, on device 0")
    graph = unrolled(problem.graph, schedule.items.tolist())
    return simulate(Problem(graph), Schedule.single_device(graph.input_order))


def step_starts(problem: Problem, schedule: Schedule, simulation: Simulation) -> FloatArray:
    """Return when each step starts, shape `(steps,)`: when its device, of a transfer both, ended the step before."""
    if simulation.step_start is not None:
        return simulation.step_start
    clock = [0.0] * problem.devices
    starts = np.empty(len(schedule))
    columns = zip(schedule.sources.tolist(), schedule.targets.tolist(), simulation.step_end.tolist(), strict=True)
    for step, (source, target, end) in enumerate(columns):
        starts[step] = max(clock[source], clock[target])
        clock[source] = clock[target] = end
    return starts
