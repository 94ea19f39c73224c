"""A schedule step by step: the times of each step, the bytes of each device, their holders and lifetimes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..base.arrays import INT64_MAX, BoolArray, FloatArray, IndexArray, IntArray, csr, gathered
from ..base.errors import UsageError
from ..base.names import one_line
from ..kernels.cost_model import replicated
from ..problem.problem import Problem
from ..problem.residents import model_of
from ..problem.schedule import Addresses, Schedule
from .simulator import Simulation, needed_receivers, simulate
from .unrolled import of_runs


class Holding(NamedTuple):
    """Bytes on a device that a tensor, and its views there, keep from one step to another."""

    tensor: int  # the tensor that the bytes are named after; on a device that received it, the copy
    device: int  # where, and how many bytes
    size: int
    first: int  # the steps that produce it, and after which it is freed; both hold it
    last: int
    is_final: bool  # whether it is a result, which stays after the last step
    # the steps that read it or a view of it there, transfers to other devices included, in order
    readers: tuple[int, ...]
    members: tuple[int, ...]  # the tensors that share the bytes: itself, then its views, as they are produced


def holdings_of(problem: Problem, schedule: Schedule) -> tuple[Holding, ...]:
    """Return the bytes on devices besides persistent ones, by first step; control tensors are left out."""
    graph, count = problem.graph, len(schedule)
    steps, ops, is_sent = np.arange(count), np.maximum(schedule.items, 0), schedule.items < 0

    def of_steps(pointers: IndexArray, tensors: IndexArray) -> tuple[IntArray, IntArray]:
        """Return the tensors that each step reads or makes, those of its op or the one it sends, and the step."""
        sent = len(tensors) + steps
        first, last = np.where(is_sent, sent, pointers[ops]), np.where(is_sent, sent + 1, pointers[ops + 1])
        return gathered(np.concatenate([tensors, ~schedule.items], dtype=np.int64), first, last)

    made, at = of_steps(graph.output_ptr, np.arange(graph.num_tensors, dtype=np.int32))
    has_bytes = ~graph.is_control[made] & (is_sent[at] | (made < model_of(graph).num_tensors))
    made, at = made[has_bytes], at[has_bytes]
    keys = np.append((made * problem.devices + schedule.targets[at]) * count + at, INT64_MAX)
    in_turn = np.argsort(keys)

    def made_before(tensors: IntArray, devices: IndexArray, step: IntArray) -> IntArray:
        """Return the places in `made` of tensors on devices as they are before a step; the last, if resident there."""
        wanted = tensors * problem.devices + devices
        found = in_turn[np.searchsorted(keys, wanted * count + step, sorter=in_turn) - 1]
        return np.where(keys[found] // count == wanted, found, len(made))

    base = np.where(is_sent[at], -1, graph.alias_of[made]).astype(np.int64)
    of = np.where(base < 0, np.arange(len(made)), made_before(base, schedule.targets[at], at))
    of = np.append(of, len(made))  # what is resident has no bytes here, nor have its views
    while not np.array_equal(of, of[of]):
        of = of[of]
    read, reader = of_steps(*graph.inputs)
    pairs = np.sort(of[made_before(read, schedule.sources[reader], reader)] * count + reader)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    (read_at, readers), (made_at, members) = (
        [column.tolist() for column in csr(rows, columns, len(of))]
        for rows, columns in ((pairs // count, pairs % count), (of[:-1], made))
    )
    used, is_final = np.zeros(len(of), np.int64), np.zeros(len(of), bool)
    np.maximum.at(used, of[:-1], at)
    np.maximum.at(used, pairs // count, pairs % count)
    is_final[of[:-1][graph.is_final[made] & ~is_sent[at]]] = True
    used[is_final] = count - 1
    is_own = (of[:-1] == np.arange(len(made))).tolist()
    columns = (made, schedule.targets[at], graph.tensor_size[made], at, used[:-1], is_final[:-1])
    return tuple(
        Holding._make((*own, tuple(readers[slice(*read_at[b : b + 2])]), tuple(members[slice(*made_at[b : b + 2])])))
        for b, own in enumerate(zip(*(column.tolist() for column in columns), strict=True))
        if is_own[b]
    )


def freed_after(problem: Problem, schedule: Schedule) -> list[list[int]]:
    """Return for each step the tensors that it is the last to need on its device, views with their base."""
    if problem.recompute:
        (runs, order), outputs = of_runs(problem, schedule), problem.graph.outputs
        made = (sorted(outputs(op), key=problem.graph.is_control.item) for op in schedule.items.tolist())  # data first
        tensors = [t for step, own in enumerate(made) for t in own[: len(runs.graph.outputs(step))]]
        return [sorted({tensors[tensor] for tensor in freed}) for freed in freed_after(runs, order)]
    freed: list[list[int]] = [[] for _ in range(len(schedule))]
    for holding in holdings_of(problem, schedule):
        if not holding.is_final:
            freed[holding.last].extend(holding.members)
    return [sorted(tensors) for tensors in freed]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A schedule with its costs, and the tensors alive at each step."""

    label: str  # what to call the schedule
    problem: Problem  # what was solved, the steps, and what they cost by the simulator
    schedule: Schedule
    simulation: Simulation
    persistent: IntArray  # shape `(devices,)`: bytes that each device holds throughout
    holdings: tuple[Holding, ...]  # everything else that a device holds, by first step
    addresses: Addresses | None = None  # where each step puts what it makes; None where that is not known
    reserved: IntArray | None = None  # bytes that an allocator has reserved at each step; None where that is not known

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
        """The names of the devices."""
        return [device.name for device in self.problem.machine.devices]

    @property
    def fullest_device(self) -> int:
        """The device of the peak."""
        return int(self.schedule.targets[self.peak_step])

    @cached_property
    def times(self) -> tuple[FloatArray, FloatArray]:
        """When each step starts and ends: microseconds, or its number where no step takes any time."""
        if self.simulation.runtime > 0:
            return self.simulation.step_start, self.simulation.step_end
        numbers = np.arange(self.steps, dtype=np.float64)
        return numbers, numbers + 1

    def step_name(self, step: int) -> str:
        """Return the op that runs, or the tensor that is transferred."""
        item, graph = int(self.schedule.items[step]), self.problem.graph
        return graph.op_names[item] if item >= 0 else graph.tensor_name(~item)

    def step_label(self, step: int) -> str:
        """Return the text of `step_name`, and in parentheses the op's module and line, if known."""
        item, name = int(self.schedule.items[step]), self.step_name(step)
        source = self.problem.graph.annotations.source_of(item) if item >= 0 else ""
        return one_line(f"{name} ({source})" if source else name)

    def involves(self, device: int) -> BoolArray:
        """Whether each step runs on a device, or transfers to or from it, shape `(steps,)`."""
        involved: BoolArray = (self.schedule.sources == device) | (self.schedule.targets == device)
        return involved

    def alive(self, step: int, device: int) -> list[Holding]:
        """Return the tensors on a device while a step runs, largest first; beside transfers, when it starts."""
        if self.problem.machine.is_beside:
            starts = self.simulation.step_start
            now, here = starts[step], (h for h in self.holdings if h.device == device)
            held = [h for h in here if starts[h.first] <= now and (h.is_final or now < self._end(h))]
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
        """Return `memory_over_time` where steps overlap: by when each holding begins and ends."""
        changes: list[tuple[float, bool, int]] = []
        starts, ends = self.simulation.step_start, self.simulation.step_end
        for holding in self.holdings:
            if holding.device == device:
                changes.append((float(starts[holding.first]), True, holding.size))
                if not holding.is_final:
                    changes.append((self._end(holding), False, -holding.size))
        for step in np.flatnonzero((self.schedule.items >= 0) & (self.schedule.targets == device)).tolist():
            workspace = int(self.problem.graph.workspace[self.schedule.items[step]])
            changes.append((float(starts[step]), True, workspace))
            changes.append((float(ends[step]), False, -workspace))
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
    """Step through a schedule and record lifetimes; where ops run several times, of the graph of the runs."""
    problem, schedule = of_runs(problem, schedule)
    simulation = simulate(problem, schedule)
    persistent = np.zeros(problem.devices, np.int64)
    np.add.at(persistent, schedule.placement(problem.graph), problem.graph.persistent)
    persistent += replicas(problem, schedule.placement(problem.graph))
    return Timeline(label, problem, schedule, simulation, persistent, holdings_of(problem, schedule), addresses)


def beside_weights(timeline: Timeline) -> Timeline:
    """Return the timeline of the same steps without persistent bytes, and without the limits that count them."""
    problem = timeline.problem
    if not problem.machine.is_anonymous or problem.replicate:
        raise UsageError("on a machine weights have a home and may move, so their bytes cannot be left out")
    graph = replace(problem.graph, persistent=np.zeros_like(problem.graph.persistent))
    label = f"{timeline.label}, without weights"
    return timeline_of(label, replace(problem, graph=graph, memory_limit=None), timeline.schedule)


def replicas(problem: Problem, placement: IndexArray) -> IntArray:
    """Return the bytes of each device's replicas of residents that have their home elsewhere, shape `(devices,)`."""
    there = needed_receivers(problem.graph, placement, problem.devices)[replicated(problem)]
    return np.asarray(problem.graph.tensor_size[replicated(problem)] @ there, np.int64)
