"""A schedule step by step: when each step runs, what each device holds, who holds it and until when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..graph import BoolArray, CostGraph, FloatArray, IntArray
from ..problem import Problem
from ..schedule import Schedule
from .simulator import Simulation, simulate
from .verifier import Buffer, Replay


class Holding(NamedTuple):
    """Bytes on a device that a tensor, and its views there, keep from one step to another.

    Parameters
    ----------
    tensor
        The tensor that the bytes are named after; on a device that received it, the copy.
    device, size
        Where, and how many bytes.
    first, last
        The steps that produce it, and after which it is freed; both hold it.
    is_final
        Whether it is a result, which stays after the last step.
    readers
        The steps that read it or a view of it there, transfers to other devices included, in order.
    """

    tensor: int
    device: int
    size: int
    first: int
    last: int
    is_final: bool
    readers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A schedule with its costs, and what is alive at each step.

    Parameters
    ----------
    label
        What to call the schedule.
    problem, schedule, simulation
        What was solved, the steps, and what they cost by the simulator.
    step_start
        Shape `(steps,)`: microseconds; a step's end is `simulation.step_end`.
    persistent
        Shape `(devices,)`: bytes that each device holds throughout.
    holdings
        Everything else that a device holds, by first step.
    """

    label: str
    problem: Problem
    schedule: Schedule
    simulation: Simulation
    step_start: FloatArray
    persistent: IntArray
    holdings: tuple[Holding, ...]

    @property
    def steps(self) -> int:
        """Number of steps, transfers included."""
        return len(self.schedule)

    @cached_property
    def peak_step(self) -> int:
        """The first step that takes the most memory on any device."""
        return int(np.argmax(self.simulation.step_memory))

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

    def involves(self, device: int) -> BoolArray:
        """Whether each step runs on a device, or transfers to or from it, shape `(steps,)`."""
        involved: BoolArray = (self.schedule.sources == device) | (self.schedule.targets == device)
        return involved

    def alive(self, step: int, device: int) -> list[Holding]:
        """Return what a device holds while a step runs, largest first."""
        held = [h for h in self.holdings if h.device == device and h.first <= step <= h.last]
        return sorted(held, key=lambda holding: (-holding.size, holding.first))

    def memory(self, device: int) -> IntArray:
        """Return the bytes on a device while each step runs, shape `(steps,)`.

        The simulator's on the steps of the device itself; while others run, what it holds meanwhile.
        """
        memory = self._held(device, after=False)
        own = self.schedule.targets == device
        memory[own] = self.simulation.step_memory[own]
        return memory

    def memory_after(self, device: int) -> IntArray:
        """Return the bytes on a device after each step, shape `(steps,)`."""
        return self._held(device, after=True)

    def memory_over_time(self, device: int) -> tuple[FloatArray, IntArray]:
        """Return when a device's memory changes, by `times`, and the bytes from then on.

        Of all values at one moment the largest and the last are kept, so that a peak of no duration is there.
        """
        own = np.flatnonzero(self.involves(device))
        starts, ends = self.times
        moments = np.concatenate(([0.0], np.column_stack((starts[own], ends[own])).ravel()))
        values = np.column_stack((self.memory(device)[own], self.memory_after(device)[own])).ravel()
        values = np.concatenate(([self.persistent[device]], values))
        first = np.flatnonzero(np.diff(moments, prepend=-1.0))
        last = np.append(first[1:], len(moments)) - 1
        kept = np.column_stack((np.maximum.reduceat(values, first), values[last])).ravel()
        return np.repeat(moments[first], 2), kept

    def _held(self, device: int, after: bool) -> IntArray:
        change = np.zeros(self.steps + 1, np.int64)
        for holding in self.holdings:
            if holding.device == device:
                change[holding.first] += holding.size
                if not holding.is_final:
                    change[holding.last + (not after)] -= holding.size
        held: IntArray = self.persistent[device] + np.cumsum(change[:-1])
        return held


class _Recorder(Replay):
    """A replay that remembers when each buffer came to its device and when it was freed."""

    def __init__(self, problem: Problem, placement: dict[int, int]) -> None:
        super().__init__(problem, placement)
        self.step = 0
        self.began: dict[Buffer, tuple[int, int]] = {}
        self.ended: dict[Buffer, int] = {}

    def add(self, tensor: int, device: int, root: int | None) -> None:
        """Put a tensor on a device."""
        super().add(tensor, device, root)
        self.began.setdefault(self.present[device][tensor], (device, self.step))

    def free(self, tensors: set[int], device: int) -> None:
        """Drop the buffers of these tensors that nobody needs any more."""
        present = self.present[device]
        held = {present[tensor] for tensor in tensors if tensor in present}
        super().free(tensors, device)
        self.ended.update((buffer, self.step) for buffer in held if buffer.root not in present)


def timeline_of(label: str, problem: Problem, schedule: Schedule) -> Timeline:
    """Step through a schedule and record what is alive when.

    Raises
    ------
    ScheduleError
        If it breaks a rule of the cost model.
    """
    simulation = simulate(problem, schedule)
    placement = schedule.placement(problem.graph)
    recorder = _Recorder(problem, dict(enumerate(placement.tolist())))
    columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
    for step, columns_of_step in enumerate(zip(*columns, strict=True)):
        recorder.step = step
        recorder.begin(*columns_of_step)
        recorder.end(*columns_of_step)
    persistent = np.zeros(problem.devices, np.int64)
    np.add.at(persistent, placement, problem.graph.persistent)
    return Timeline(
        label,
        problem,
        schedule,
        simulation,
        _step_starts(problem, schedule, simulation),
        persistent,
        _holdings(problem, schedule, recorder),
    )


def _step_starts(problem: Problem, schedule: Schedule, simulation: Simulation) -> FloatArray:
    """Return when each step starts: when its device, of a transfer both, ended the step before."""
    clock = [0.0] * problem.devices
    starts = np.empty(len(schedule))
    columns = zip(schedule.sources.tolist(), schedule.targets.tolist(), simulation.step_end.tolist(), strict=True)
    for step, (source, target, end) in enumerate(columns):
        starts[step] = max(clock[source], clock[target])
        clock[source] = clock[target] = end
    return starts


def _holdings(problem: Problem, schedule: Schedule, recorder: _Recorder) -> tuple[Holding, ...]:
    graph, last = problem.graph, len(schedule) - 1
    is_op = schedule.items >= 0
    step_of_op = np.empty(graph.num_ops, np.int64)
    step_of_op[schedule.items[is_op]] = np.flatnonzero(is_op)
    sent_at: dict[tuple[int, int], list[int]] = {}
    for step in np.flatnonzero(~is_op).tolist():
        sent_at.setdefault((~int(schedule.items[step]), int(schedule.sources[step])), []).append(step)
    pointers, consumers = graph.consumers
    placement = schedule.placement(graph)
    holdings = []
    for buffer, (device, first) in recorder.began.items():
        if graph.is_control[buffer.root]:
            continue
        readers: set[int] = set()
        for member in buffer.members:
            ops = consumers[pointers[member] : pointers[member + 1]]
            readers.update(step_of_op[ops[placement[ops] == device]].tolist())
            readers.update(sent_at.get((member, device), ()))
        is_final = any(graph.is_final[member] and recorder.home[member] == device for member in buffer.members)
        until = recorder.ended.get(buffer, last)
        holdings.append(Holding(buffer.root, device, buffer.size, first, until, is_final, tuple(sorted(readers))))
    return tuple(holdings)


def input_timeline(graph: CostGraph) -> Timeline:
    """Record the input order, on one device."""
    return timeline_of("input", Problem(graph), Schedule.single_device(graph.input_order))
