"""The independent verifier on machines: when each step runs and what each device holds, in plain Python.

It shares no code with the kernels, nor with what finds where ops may run: every rule is read off the machine and the
graph again. Memory is counted by intervals, each from the step that takes the bytes to the last that needs them.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..base.errors import ScheduleError
from ..problem.problem import Problem
from ..problem.residents import GraphWithHomes
from ..problem.schedule import Schedule

Moment = tuple[float, int, bool]
"""A time, the step that starts or ends then, and whether it ends: what comes first of equal times."""


@dataclass
class Holding:
    """Bytes on a device, the steps that make, send, read or view them, and whether they stay to the end."""

    device: int
    size: int
    steps: list[int]
    is_kept: bool = False


class MachineReplay:
    """A schedule on a machine, step by step.

    Parameters
    ----------
    problem, schedule
        What is replayed; items and devices are known to exist, and each op to run once.
    placement
        The device of each op.
    """

    def __init__(self, problem: Problem, schedule: Schedule, placement: dict[int, int]) -> None:
        self.problem, self.schedule, self.placement = problem, schedule, placement
        self.graph, self.machine = problem.graph, problem.hardware
        self.homes = self.graph if isinstance(self.graph, GraphWithHomes) else None
        own = self.homes.model if self.homes else self.graph
        self.own_ops, self.own_tensors = len(own.op_names), len(own.tensor_size)
        flat, pointers = self.graph.read_tensor.tolist(), self.graph.read_ptr.tolist()
        self.reads = [set(flat[pointers[op] : pointers[op + 1]]) for op in range(len(self.graph.op_names))]
        self.producer = [
            op for op, n in enumerate(self.graph.output_ptr[1:].tolist()) for _ in range(self._made(op, n))
        ]
        self.start: list[float] = []
        self.end: list[float] = []
        self.there: dict[tuple[int, int], float] = {}
        self.clock = [0.0] * problem.devices
        self.link: dict[tuple[int, int], float] = {}

    def _made(self, op: int, beyond: int) -> int:
        return beyond - int(self.graph.output_ptr[op])

    def home(self, tensor: int) -> int:
        """Return the device where a tensor is made, or has its home."""
        return self.placement[self.producer[tensor]]

    def is_replicated(self, tensor: int) -> bool:
        """Whether a resident is on every device that reads it."""
        number = tensor - self.own_tensors
        return self.homes is not None and number >= 0 and self.problem.replicate and not self.homes.held[number].writers

    def run(self) -> None:
        """Check where everything is, and find when every step runs.

        Raises
        ------
        ScheduleError
            Naming the first broken rule.
        """
        self._check_places()
        self._check_transfers()
        columns = (self.schedule.items.tolist(), self.schedule.sources.tolist(), self.schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            if item >= self.own_ops:
                start = end = self._hold(item, target)
            elif item >= 0:
                start, end = self._run_op(item, target)
            else:
                start, end = self._send(~item, source, target)
            self.start.append(start)
            self.end.append(end)

    def _hold(self, op: int, device: int) -> float:
        tensor = self.own_tensors + op - self.own_ops
        others = {self.placement[reader] for reader in range(self.own_ops) if tensor in self.reads[reader]}
        for where in {device} | (others if self.is_replicated(tensor) else set()):
            self.there[tensor, where] = 0.0
        return 0.0

    def _run_op(self, op: int, device: int) -> tuple[float, float]:
        for tensor in self.reads[op]:
            if (tensor, device) not in self.there:
                raise ScheduleError(
                    f"{self.graph.name}: op {self.graph.op_label(op)} runs on '{self._name(device)}' "
                    f"without its input '{self.graph.tensor_name(tensor)}'"
                )
        start = max([self.clock[device], *(self.there[tensor, device] for tensor in self.reads[op])])
        end = start + self.duration(op, device)
        self.clock[device] = end
        for tensor in range(int(self.graph.output_ptr[op]), int(self.graph.output_ptr[op + 1])):
            self.there[tensor, device] = end
        return start, end

    def _send(self, tensor: int, source: int, target: int) -> tuple[float, float]:
        graph, name = self.graph, self.graph.tensor_name(tensor)
        if (tensor, source) not in self.there:
            raise ScheduleError(f"{graph.name}: '{name}' is sent from '{self._name(source)}' before it is there")
        bandwidth = self.machine.bandwidth[source][target]
        if bandwidth == 0:
            raise ScheduleError(
                f"{graph.name}: '{name}' is sent from '{self._name(source)}' to '{self._name(target)}', "
                "which have no link"
            )
        takes = self.machine.latency[source][target] + int(graph.tensor_size[tensor]) * (1e6 / bandwidth)
        start = max(self.there[tensor, source], self.clock[target])
        if self.machine.transfers == "blocking":
            start = max(start, self.clock[source])
            self.clock[source] = self.clock[target] = start + takes
        elif self.machine.contention:
            start = max(start, self.link.get((source, target), 0.0))
            self.link[source, target] = start + takes
        self.there[tensor, target] = start + takes
        return start, start + takes

    def duration(self, op: int, device: int) -> float:
        """Return what an op takes on a device, microseconds.

        Raises
        ------
        ScheduleError
            If it cannot run there.
        """
        what = self.machine.devices[device]
        runtime: float | None = float(self.graph.runtime[op]) / what.speed if what.speed > 0 else None
        if self.machine.op_times and what.speed > 0:
            runtime = self.machine.op_times[self.graph.op_names[op]].get(what.kind, runtime)
        if runtime is None:
            raise ScheduleError(f"{self.graph.name}: op {self.graph.op_label(op)} cannot run on '{what.name}'")
        return runtime

    def _name(self, device: int) -> str:
        return self.machine.devices[device].name

    def _check_places(self) -> None:
        """Check pins, groups, and that what writes a resident is at its home."""
        graph, machine = self.graph, self.machine
        names = list(enumerate(graph.op_names))
        for pattern, wanted in machine.pins:
            by_name = {at for at, device in enumerate(machine.devices) if device.name == wanted}
            allowed = by_name or {at for at, device in enumerate(machine.devices) if device.kind == wanted}
            for op, name in names:
                if fnmatch.fnmatchcase(name, pattern) and self.placement[op] not in allowed:
                    raise ScheduleError(
                        f"{graph.name}: op {graph.op_label(op)} is pinned to '{wanted}', but runs on "
                        f"'{self._name(self.placement[op])}'"
                    )
        for patterns in machine.together:
            members = [op for op, name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
            self._check_same(members, "are to be together")
        for number, resident in enumerate(self.homes.held if self.homes else ()):
            home = self.own_ops + number
            if resident.writers:
                late = [op for op in resident.readers if not self._may_read_a_copy(op, number)]
                self._check_same([home, *resident.writers, *late], f"are to be at the home of '{resident.name}'")

    def _may_read_a_copy(self, op: int, number: int) -> bool:
        """Whether a reader comes before all that writes a resident, or reads what the last one before it left.

        That one writes nothing else, all others come before it or after the reader, and that reads no other state.
        """
        assert self.homes is not None
        writers = set(self.homes.held[number].writers)
        if op in writers:
            return False
        left = [writer for writer in writers if not self._precedes(op, writer)]
        states = {self.producer[t] for t in self.reads[op] if self.graph.alias_of[t] == self.own_tensors + number}
        if len(states) != 1:
            return not left
        (last,) = states
        is_last = last in left and all(writer == last or self._precedes(writer, last) for writer in left)
        return is_last and self._precedes(last, op) and self._written[last] == 1

    def _check_same(self, ops: Iterable[int], what: str) -> None:
        first, *others = ops
        for op in others:
            if self.placement[op] != self.placement[first]:
                labels = f"{self.graph.op_label(first)} and {self.graph.op_label(op)}"
                raise ScheduleError(f"{self.graph.name}: {labels} {what}, but run on different devices")

    def _precedes(self, one: int, other: int) -> bool:
        """Whether an op, which uses a resident that is written, must end before another begins, by what each reads."""
        return bool(self._earlier[other] >> self._bit[one] & 1)

    @cached_property
    def _written(self) -> Counter[int]:
        """How many residents each op writes."""
        return Counter(op for resident in (self.homes.held if self.homes else ()) for op in {*resident.writers})

    @cached_property
    def _bit(self) -> dict[int, int]:
        """A number for each op that uses a resident that is written."""
        held = self.homes.held if self.homes else ()
        users = sorted({op for r in held if r.writers for op in (*r.readers, *r.writers)})
        return {op: at for at, op in enumerate(users)}

    @cached_property
    def _earlier(self) -> list[int]:
        """Per op, those that must end before it begins, as bits."""
        earlier = [0] * len(self.reads)
        for op in self.graph.input_order.tolist():
            for maker in {self.producer[tensor] for tensor in self.reads[op]}:
                earlier[op] |= earlier[maker] | (1 << self._bit[maker] if maker in self._bit else 0)
        return earlier

    def _check_transfers(self) -> None:
        """Check that what is sent is what is read elsewhere, once to each device, from where it is made."""
        graph = self.graph
        needed = {
            (tensor, self.placement[op])
            for op, tensors in enumerate(self.reads)
            for tensor in tensors
            if self.placement[op] != self.home(tensor) and not self.is_replicated(tensor)
        }
        sent: set[tuple[int, int]] = set()
        columns = (self.schedule.items.tolist(), self.schedule.sources.tolist(), self.schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            if item >= 0:
                continue
            where = f"{graph.name}: '{graph.tensor_name(~item)}' is sent"
            if source != self.home(~item):
                raise ScheduleError(f"{where} from '{self._name(source)}', where it is neither made nor at home")
            if (~item, target) not in needed:
                raise ScheduleError(f"{where} to '{self._name(target)}', where no op reads it")
            if (~item, target) in sent:
                raise ScheduleError(f"{where} to '{self._name(target)}' twice")
            sent.add((~item, target))
        for tensor, target in sorted(needed - sent):
            raise ScheduleError(
                f"{graph.name}: '{graph.tensor_name(tensor)}' is read on '{self._name(target)}', but not sent there"
            )

    def peaks(self) -> list[int]:
        """Return the most bytes that each device holds at a time; call it after `run`."""
        changes: dict[Moment, list[tuple[int, int]]] = {}
        for holding in self._holdings():
            first = min((self.start[step], step, False) for step in holding.steps)
            changes.setdefault(first, []).append((holding.device, holding.size))
            if not holding.is_kept:
                last = max((self.end[step], step, True) for step in holding.steps)
                changes.setdefault(last, []).append((holding.device, -holding.size))
        held = self._throughout()
        peaks = list(held)
        for moment in sorted(changes):
            for device, size in changes[moment]:
                held[device] += size
            peaks = [max(pair) for pair in zip(peaks, held, strict=True)]
        return peaks

    def _holdings(self) -> list[Holding]:
        """Return what devices hold for a time: outputs with their views, copies, workspace."""
        graph = self.graph
        at: dict[tuple[int, int], Holding] = {}
        found: list[Holding] = []

        def hold(device: int, size: int, step: int) -> Holding:
            found.append(Holding(device, size, [step]))
            return found[-1]

        columns = (self.schedule.items.tolist(), self.schedule.sources.tolist(), self.schedule.targets.tolist())
        for step, (item, source, target) in enumerate(zip(*columns, strict=True)):
            if item >= self.own_ops:
                continue
            if item < 0:
                if not graph.is_control[~item]:
                    if (~item, source) in at:
                        at[~item, source].steps.append(step)
                    at[~item, target] = hold(target, int(graph.tensor_size[~item]), step)
                continue
            hold(target, int(graph.workspace[item]), step)
            for tensor in self.reads[item]:
                if (tensor, target) in at:
                    at[tensor, target].steps.append(step)
            for tensor in range(int(graph.output_ptr[item]), int(graph.output_ptr[item + 1])):
                if graph.is_control[tensor]:
                    continue
                alias = int(graph.alias_of[tensor])
                if alias >= 0 and (alias, target) not in at:
                    continue  # of a resident at its home
                holding = at[alias, target] if alias >= 0 else hold(target, int(graph.tensor_size[tensor]), step)
                holding.steps.append(step)
                holding.is_kept |= bool(graph.is_final[tensor])
                at[tensor, target] = holding
        return found

    def _throughout(self) -> list[int]:
        """Return what each device holds from the first step to the last."""
        held = [0] * self.problem.devices
        for op, device in self.placement.items():
            held[device] += int(self.graph.persistent[op])
        for tensor in range(self.own_tensors, len(self.producer)):
            if self.is_replicated(tensor):
                readers = {self.placement[op] for op, tensors in enumerate(self.reads) if tensor in tensors}
                for device in readers - {self.home(tensor)}:
                    held[device] += int(self.graph.tensor_size[tensor])
        return held
