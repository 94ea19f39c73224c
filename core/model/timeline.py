"""A schedule step by step: when each step runs, what each device holds, who holds it and until when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..base.arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..base.errors import UsageError
from ..graph.graph import CostGraph
from ..kernels.cost_model import replicated
from ..problem.addresses import Addresses
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Schedule
from .lifetimes import Holding, holdings_of
from .simulator import Simulation, needed_receivers, simulate
from .unrolled import unrolled

INPUT = "input"  # what the graph's own order is called


@dataclass(frozen=True, eq=False)
class Timeline:
    """A schedule with its costs, and what is alive at each step."""

    label: str  # what to call the schedule
    # problem, schedule, simulation: what was solved, the steps, and what they cost by the simulator
    problem: Problem
    schedule: Schedule
    simulation: Simulation
    persistent: IntArray  # shape `(devices,)`: bytes that each device holds throughout
    holdings: tuple[Holding, ...]  # everything else that a device holds, by first step
    addresses: Addresses | None = None  # where each step puts what it makes; None where that is not known

    @property
    def step_start(self) -> FloatArray:
        """When each step starts, microseconds, shape `(steps,)`; its end is `simulation.step_end`."""
        return self.simulation.step_start

    @property
    def steps(self) -> int:
        """Number of steps, transfers included."""
        return len(self.schedule)

    @cached_property
    def peak_step(self) -> int:
        """The first step that takes the most memory on any device."""
        return int(np.argmax(self.simulation.step_memory))

    @property
    def device_names(self) -> list[str]:
        """What the devices are called."""
        return [device.name for device in self.problem.machine.devices]

    @property
    def fullest_device(self) -> int:
        """The device of the peak."""
        return int(self.schedule.targets[self.peak_step])

    @cached_property
    def times(self) -> tuple[FloatArray, FloatArray]:
        """When each step starts and ends: microseconds, or its number where no step takes any time."""
        if self.simulation.runtime > 0:
            return self.step_start, self.simulation.step_end
        numbers = np.arange(self.steps, dtype=np.float64)
        return numbers, numbers + 1

    def step_name(self, step: int) -> str:
        """Return the op that runs, or the tensor that is transferred."""
        item, graph = int(self.schedule.items[step]), self.problem.graph
        return graph.op_names[item] if item >= 0 else graph.tensor_name(~item)

    def step_label(self, step: int) -> str:
        """Return what `step_name` does, and in parentheses the op's module and line, if known."""
        item, name = int(self.schedule.items[step]), self.step_name(step)
        source = self.problem.graph.annotations.source_of(item) if item >= 0 else ""
        return f"{name} ({source})" if source else name

    def involves(self, device: int) -> BoolArray:
        """Whether each step runs on a device, or transfers to or from it, shape `(steps,)`."""
        involved: BoolArray = (self.schedule.sources == device) | (self.schedule.targets == device)
        return involved

    def alive(self, step: int, device: int) -> list[Holding]:
        """Return what a device holds while a step runs, largest first; beside transfers, when it starts."""
        if self.problem.machine.is_beside:
            now = self.step_start[step]
            held = [
                h
                for h in self.holdings
                if h.device == device and self.step_start[h.first] <= now and (h.is_final or now < self._end(h))
            ]
        else:
            held = [h for h in self.holdings if h.device == device and h.first <= step <= h.last]
        return sorted(held, key=lambda holding: (-holding.size, holding.first))

    def offset_of(self, holding: Holding) -> int:
        """Return where in its device's arena a holding is; -1 where that is not known."""
        if self.addresses is None:
            return -1
        item = int(self.schedule.items[holding.first])
        output = holding.tensor - int(self.problem.graph.output_ptr[item]) if item >= 0 else 0
        return self.addresses.made[holding.first][output]

    def memory(self, device: int) -> IntArray:
        """Return the bytes on a device while each step runs, shape `(steps,)`."""
        memory = self._held(device, after=False)
        own = self.schedule.targets == device
        memory[own] = self.simulation.step_memory[own]
        return memory

    def memory_after(self, device: int) -> IntArray:
        """Return the bytes on a device after each step, shape `(steps,)`."""
        return self._held(device, after=True)

    def memory_over_time(self, device: int) -> tuple[FloatArray, IntArray]:
        """Return when a device's memory changes, by `times`, and the bytes from then on."""
        if self.problem.machine.is_beside and self.simulation.runtime > 0:
            return self._memory_beside(device)
        own = np.flatnonzero(self.involves(device))
        starts, ends = self.times
        moments = np.concatenate(([0.0], np.column_stack((starts[own], ends[own])).ravel()))
        values = np.column_stack((self.memory(device)[own], self.memory_after(device)[own])).ravel()
        values = np.concatenate(([self.persistent[device]], values))
        first = np.flatnonzero(np.diff(moments, prepend=-1.0))
        last = np.append(first[1:], len(moments)) - 1
        kept = np.column_stack((np.maximum.reduceat(values, first), values[last])).ravel()
        return np.repeat(moments[first], 2), kept

    def _end(self, holding: Holding) -> float:
        """Return when the last step ends that needs a holding, microseconds."""
        return float(self.simulation.step_end[[holding.last, *holding.readers]].max())

    def _memory_beside(self, device: int) -> tuple[FloatArray, IntArray]:
        """Do what `memory_over_time` does where steps overlap: by when each holding begins and ends."""
        changes: list[tuple[float, bool, int]] = []
        for holding in self.holdings:
            if holding.device == device:
                changes.append((float(self.step_start[holding.first]), True, holding.size))
                if not holding.is_final:
                    changes.append((self._end(holding), False, -holding.size))
        for step in np.flatnonzero((self.schedule.items >= 0) & (self.schedule.targets == device)).tolist():
            workspace = int(self.problem.graph.workspace[self.schedule.items[step]])
            changes.append((float(self.step_start[step]), True, workspace))
            changes.append((float(self.simulation.step_end[step]), False, -workspace))
        changes.sort()  # what ends at a moment makes room for what begins
        moments = np.array([0.0, *(moment for moment, _, _ in changes)])
        sizes = np.array([self.persistent[device], *(size for _, _, size in changes)], np.int64)
        return moments, np.cumsum(sizes)

    def _held(self, device: int, after: bool) -> IntArray:
        change = np.zeros(self.steps + 1, np.int64)
        for holding in self.holdings:
            if holding.device == device:
                change[holding.first] += holding.size
                if not holding.is_final:
                    change[holding.last + (not after)] -= holding.size
        held: IntArray = self.persistent[device] + np.cumsum(change[:-1])
        return held


def timeline_of(label: str, problem: Problem, schedule: Schedule, addresses: Addresses | None = None) -> Timeline:
    """Step through a schedule and record what is alive when; where ops run several times, of the graph of the runs."""
    if problem.recompute:
        graph = unrolled(problem.graph, schedule.items.tolist())
        problem, schedule = Problem(graph, memory_limit=problem.memory_limit), Schedule.single_device(graph.input_order)
    simulation = simulate(problem, schedule)
    persistent = np.zeros(problem.devices, np.int64)
    np.add.at(persistent, schedule.placement(problem.graph), problem.graph.persistent)
    persistent += replicas(problem, schedule.placement(problem.graph))
    return Timeline(label, problem, schedule, simulation, persistent, holdings_of(problem, schedule), addresses)


def beside_weights(timeline: Timeline) -> Timeline:
    """Return the timeline of the same steps without persistent bytes, and without the limits that count them."""
    problem = timeline.problem
    if not problem.machine.is_anonymous or problem.replicate:
        raise UsageError("weights have a home on a machine and are part of what moves; they cannot be left out there")
    graph = replace(problem.graph, persistent=np.zeros_like(problem.graph.persistent))
    label = f"{timeline.label}, without weights"
    return timeline_of(label, replace(problem, graph=graph, memory_limit=None), timeline.schedule)


def replicas(problem: Problem, placement: IndexArray) -> IntArray:
    """Return the bytes of each device's replicas of residents that have their home elsewhere, shape `(devices,)`."""
    graph, there = problem.graph, needed_receivers(problem.graph, placement)
    there[~replicated(problem)] = 0
    devices = np.arange(problem.devices, dtype=np.uint64)
    return np.array([graph.tensor_size[there >> device & np.uint64(1) != 0].sum() for device in devices])


def input_timeline(graph: CostGraph) -> Timeline:
    """Record the input order, on one device."""
    model = model_of(graph)
    return timeline_of(INPUT, Problem(model), Schedule.single_device(model.input_order))
