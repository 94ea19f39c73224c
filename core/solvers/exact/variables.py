"""The variables of the CP-SAT model: devices of ops, starts of steps, lives of buffers, and the peak.

Steps are ops, and optional transfers of a tensor to a device. Steps on one device, where a transfer is on both of its
own, do not overlap; that and the precedences are all that the cost model asks of time, and the memory of a device
changes by the steps on it alone, so no total order of all steps is needed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...bounds.bounds import op_needs
from ...problem.schedule import Schedule
from ...search.search import Search
from .hint import HintedTimes
from .units import Units, bytes_of_devices


class OutOfTimeError(Exception):
    """Time ended while the model was built."""


def is_over(search: Search) -> bool:
    """Whether time has run out or Ctrl-C was pressed; the solver sees by itself when the bound is met."""
    search.exhausted()
    return search.timed_out or search.interrupt.is_set()


class Step(NamedTuple):
    """When a step runs: its start (a variable) and its duration."""

    start: Any
    duration: int

    @property
    def end(self) -> Any:
        """When it ends, as an expression."""
        return self.start + self.duration


class Buffer(NamedTuple):
    """A buffer on a device: since which step, whether it exists there, and its end."""

    since: Step
    present: Any
    end: Any


class Model:
    """What every model has: OR-Tools' `CpModel`, the graph as lists, and how variables are made and hinted."""

    def __init__(self, search: Search) -> None:
        from ortools.sat.python import cp_model

        self.search, self.problem, self.graph = search, search.problem, search.problem.graph
        self.devices = range(self.problem.devices)
        self.producer = self.graph.tensor_producer.tolist()
        pointers, readers = (a.tolist() for a in self.graph.consumers)
        self.readers = [readers[a:b] for a, b in pairwise(pointers)]
        pointers, tensors = (a.tolist() for a in self.graph.inputs)
        self.reads = [tensors[a:b] for a, b in pairwise(pointers)]
        self.model = cp_model.CpModel()

    def check_time(self) -> None:
        """Raise OutOfTimeError if the run is over; asked often, since a large model takes long to build."""
        if is_over(self.search):
            raise OutOfTimeError

    def literal(self, hint: bool | None) -> Any:
        """Add a literal, hinted unless the hint is None."""
        variable = self.model.new_bool_var("")
        if hint is not None:
            self.model.add_hint(variable, hint)
        return variable

    def number(self, low: int, high: int, hint: int) -> Any:
        """Add a whole number from `low` to `high`, and hint the one nearest to `hint`."""
        variable = self.model.new_int_var(low, high, "")
        self.model.add_hint(variable, min(max(low, hint), high))
        return variable

    def both(self, one: Any, other: Any, hint: bool | None = None) -> Any:
        """Return a literal that holds if and only if two others do."""
        both = self.literal(hint)
        self.model.add_bool_or([~one, ~other, both])
        self.model.add_implication(both, one)
        self.model.add_implication(both, other)
        return both


class Variables(Model):
    """A CP-SAT model's variables, each hinted with the best schedule known.

    Parameters
    ----------
    search
        The run, which has a schedule to hint.
    units
        How bytes and microseconds become whole numbers.

    Attributes
    ----------
    model
        OR-Tools' `CpModel`.
    on
        Per op and device: whether the op runs there.
    ops
        Per op: its step.
    ranked
        The ops, by which alike devices are numbered.
    busy
        By transfer and device: whether it takes place and is on the device, at either end.
    sent, transfers
        By tensor and device: whether it is sent there, and that step. Empty on one device.
    peak, most
        Units of bytes of the fullest device, and more than any device can hold; once `add_memory` was called.
    buffers
        By whether it is a copy that was sent, tensor, device; once `add_memory` was called.
    """

    def __init__(self, search: Search, units: Units) -> None:
        super().__init__(search)
        self.units = units
        assert search.best is not None
        self.hint = HintedTimes(search.best, self.graph.num_ops, self.problem.devices, units)
        self.ranked = self._rank()
        self.hint.number_devices(self.ranked)
        self.busy: dict[tuple[tuple[int, int], int], Any] = {}
        self._add_placement()
        self._add_ops()
        self._add_transfers()

    def _rank(self) -> list[int]:
        """Return the ops, the one that stays on device 0 first, then those of the longest runtime or most memory."""
        graph = self.graph
        weight = graph.runtime if self.problem.task == "runtime" else op_needs(graph, self.problem.devices)
        first = self.problem.fixed_op
        return [first, *(op for op in np.argsort(-weight, kind="stable").tolist() if op != first)]

    def _add_placement(self) -> None:
        """Each op is on some device."""
        self.on: list[list[Any]] = []
        for op in range(self.graph.num_ops):
            self.check_time()
            self.on.append([self.literal(self.hint.device[op] == device) for device in self.devices])

    def _add_ops(self) -> None:
        """Each op has a start."""
        horizon = self.units.horizon
        self.ops = [
            Step(self.number(0, horizon - duration, self.hint.op_start[op]), duration)
            for op, duration in enumerate(self.units.op)
        ]

    def _add_transfers(self) -> None:
        """Each tensor that is read may be sent to each device, at some start."""
        self.sent: dict[tuple[int, int], Any] = {}
        self.transfers: dict[tuple[int, int], Step] = {}
        if len(self.devices) == 1:
            return
        for tensor, readers in enumerate(self.readers):
            self.check_time()
            duration = self.units.transfer[tensor]
            for device in self.devices if readers else ():
                start = self.hint.transfer_start.get((tensor, device))
                self.sent[tensor, device] = self.literal(start is not None)
                start = self.number(0, self.units.horizon - duration, start or 0)
                self.transfers[tensor, device] = Step(start, duration)

    def add_memory(self, limit: int | None) -> None:
        """Add the peak, which is one number for all devices and within the limit in bytes, and the buffers."""
        unit = self.units.bytes
        self.most = bytes_of_devices(self.problem, unit)
        high = self.most if limit is None else min(limit // unit, self.most)
        assert self.search.best_simulation is not None
        self.peak = self.number(0, high, self.search.best_simulation.peak // unit)
        self.size = (self.graph.tensor_size // unit).tolist()
        self._add_buffers()

    def _add_buffers(self) -> None:
        """Start a buffer for each tensor that is no view where it is produced, and for any where it is sent."""
        self.buffers: dict[tuple[bool, int, int], Buffer] = {}
        for tensor, producer in enumerate(self.producer):
            self.check_time()
            if self.size[tensor] == 0:
                continue
            for device in self.devices:
                if self.graph.alias_of[tensor] < 0:
                    self._add_buffer(False, tensor, device, self.ops[producer], self.on[producer][device])
                if (tensor, device) in self.sent:
                    step = self.transfers[tensor, device]
                    self._add_buffer(True, tensor, device, step, self.sent[tensor, device])

    def _add_buffer(self, is_copy: bool, tensor: int, device: int, since: Step, present: Any) -> None:
        end = self.model.new_int_var(0, self.units.horizon, "")
        self.buffers[is_copy, tensor, device] = Buffer(since, present, end)

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution: steps by their start; none that wait for each other start together."""
        device = [next(d for d in self.devices if value(on[d])) for on in self.on]
        steps = [(value(step.start), op, device[op], device[op]) for op, step in enumerate(self.ops)]
        for (tensor, target), step in self.transfers.items():
            if value(self.sent[tensor, target]):
                steps.append((value(step.start), ~tensor, device[self.producer[tensor]], target))
        steps.sort()
        return Schedule.from_steps(*zip(*(step[1:] for step in steps), strict=True))
