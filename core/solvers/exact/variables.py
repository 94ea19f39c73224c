"""The variables of the CP-SAT model: devices of ops, starts of steps, lives of buffers.

Steps are ops, and optional transfers of a tensor to a device; those on one device, or on a contended link, do not
overlap. With blocking transfers the memory of a device changes by its own steps alone: no total order is needed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...base.arrays import FloatArray
from ...bounds.bounds import op_needs
from ...bounds.machine_bounds import possible_times
from ...kernels.cost_model import replicated
from ...problem.problem import Problem
from ...problem.residents import first_home
from ...problem.schedule import Schedule
from ...search.search import Search
from .units import bytes_of_devices, units_of

HOLDS = -1  # when what holds a resident runs: before all steps
MOST_TRANSFERS = 1_000_000  # tensors times pairs of devices; more take gigabytes


class OutOfTimeError(Exception):
    """Time ended while the model was built."""


def is_over(search: Search) -> bool:
    """Whether time has run out or Ctrl-C was pressed; the solver sees by itself when the bound is met."""
    search.exhausted()
    return search.timed_out or search.interrupt.is_set()


def is_too_large(problem: Problem) -> bool:
    """Whether a model of the problem would not fit into memory."""
    return problem.graph.num_tensors * problem.devices**2 > MOST_TRANSFERS


class Step(NamedTuple):
    """When a step runs: its start, a variable, and its end, as an expression."""

    start: Any
    end: Any


class Buffer(NamedTuple):
    """A buffer on a device: since which step, whether it exists there, and its end."""

    since: Step
    present: Any
    end: Any


class Model:
    """What every model has: OR-Tools' `CpModel`, the graph as lists, and how variables are made and hinted."""

    symmetry_level = 2  # how much OR-Tools looks for symmetries

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

    def number(self, low: int, high: int, hint: int | None) -> Any:
        """Add a whole number from `low` to `high`, and hint the one nearest to `hint`, unless that is None."""
        variable = self.model.new_int_var(low, high, "")
        if hint is not None:
            self.model.add_hint(variable, min(max(low, hint), high))
        return variable

    def both(self, one: Any, other: Any, hint: bool | None = None) -> Any:
        """Return a literal that holds if and only if two others do."""
        both = self.literal(hint)
        self.model.add_bool_or([~one, ~other, both])
        self.model.add_implication(both, one)
        self.model.add_implication(both, other)
        return both


class HintedTimes:
    """Device of each op, and times of each step, of a schedule whose steps run as early as they can."""

    def __init__(self, devices: list[int]) -> None:
        self.device = devices
        self.times: dict[int | tuple[int, int], tuple[int, int]] = {}  # by op, and by tensor and target
        self.clock: dict[int | tuple[int, int], int] = {}

    @property
    def makespan(self) -> int:
        """The latest end."""
        return max((end for _, end in self.times.values()), default=0)

    def run(self, step: int | tuple[int, int], ready: int, duration: int, places: list[int | tuple[int, int]]) -> None:
        """Run a step once it is ready and the devices or the link that it occupies are free."""
        start = max([ready, *(self.clock.get(place, 0) for place in places)])
        self.times[step] = start, start + duration
        self.clock |= dict.fromkeys(places, start + duration)

    def number_devices(self, ranked: list[int]) -> None:
        """Give the devices numbers, in the order in which the ops of a list use them first."""
        used = list(dict.fromkeys(self.device[op] for op in ranked))
        new = {device: number for number, device in enumerate(used)}
        self.device = [new[device] for device in self.device]
        self.times = {
            step if isinstance(step, int) else (step[0], new[step[1]]): times for step, times in self.times.items()
        }


class Variables(Model):
    """A CP-SAT model's variables, each hinted with the best schedule known; without `counts_time` only order counts."""

    def __init__(self, search: Search, *, counts_time: bool) -> None:
        super().__init__(search)
        self.machine, self.own = self.problem.hardware, first_home(self.graph)
        self.is_everywhere = replicated(self.problem)
        # Else OR-Tools 9.15 fails on residents without room.
        self.symmetry_level = 2 if self.problem.is_symmetric else 0
        self.units = units_of(search, counts_time=counts_time)
        self.most = bytes_of_devices(self.problem, self.units.bytes)
        self.size = (self.graph.tensor_size // self.units.bytes).tolist()
        self._op_times = self.units.whole(possible_times(self.problem))
        self.hint = self._hinted()
        self.ranked = self._rank()  # the ops, by which equal devices are numbered
        if self.problem.is_symmetric:
            self.hint.number_devices(self.ranked)
        self._add_placement()
        self._add_ops()
        self._add_transfers()

    def _sending(self, tensor: int) -> list[list[int]]:
        """Return what a tensor takes from each device to each, -1 without a link."""
        with np.errstate(invalid="ignore"):
            takes: FloatArray = (
                self.machine.latencies + int(self.graph.tensor_size[tensor]) * self.machine.microseconds_per_byte
            )
        return self.units.whole(np.where(self.machine.has_link, takes, np.inf))

    def places(self, source: int, target: int) -> list[int | tuple[int, int]]:
        """Return what a transfer occupies: both devices, or their link if that has one transfer at a time."""
        if not self.machine.is_beside:
            return [source, target]
        return [(source, target)] if self.machine.contention else []

    def _hinted(self) -> HintedTimes:
        """Return when each step of the best schedule known runs."""
        schedule = self.search.best
        assert schedule is not None
        hint = HintedTimes(schedule.placement(self.graph).tolist())
        there: dict[tuple[int, int], int] = {}
        columns = (schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist())
        for item, source, target in zip(*columns, strict=True):
            if item >= self.own:
                continue
            if item >= 0:
                ready = max((there.get((tensor, target), 0) for tensor in self.reads[item]), default=0)
                hint.run(item, ready, max(1, self._op_times[item][target]), [target])
                there |= {(tensor, target): hint.times[item][1] for tensor in self.graph.outputs(item)}
            else:
                ready, lasts = there.get((~item, source), 0), max(1, self._sending(~item)[source][target])
                hint.run((~item, target), ready, lasts, self.places(source, target))
                there[~item, target] = hint.times[~item, target][1]
        return hint

    def _rank(self) -> list[int]:
        """Return the ops, the one that stays on device 0 first, then those of the longest runtime or most memory."""
        graph = self.graph
        weight = graph.runtime if self.problem.task == "runtime" else op_needs(graph, self.problem.devices)
        first = self.problem.fixed_op
        return [first, *(op for op in np.argsort(-weight, kind="stable").tolist() if op != first)]

    def _add_placement(self) -> None:
        """Each op is on some device where it and all that is together with it may be."""
        self.on: list[dict[int, Any]] = []  # per op, by device; ops that are together share it
        groups = self.problem.rules.groups
        for op, first in enumerate(self.problem.rules.group.tolist()):
            self.check_time()
            if first < op:
                self.on.append(self.on[first])
                continue
            times = [self._op_times[member] for member in groups.get(op, [op])]
            able = [device for device in self.devices if all(row[device] >= 0 for row in times)]
            self.on.append({device: self.literal(self.hint.device[op] == device) for device in able})

    def _step(self, key: int | tuple[int, int], durations: list[int]) -> Step:
        """Add a step that lasts one of some durations."""
        begun, ended = self.hint.times.get(key, (0, 0))
        start = self.number(0, self.units.horizon - min(durations, default=0), begun)
        is_fixed = len({*durations}) == 1
        return Step(start, start + durations[0] if is_fixed else self.number(0, self.units.horizon, ended))

    def _add_ops(self) -> None:
        """Each op has a start, and lasts what it takes on its device."""
        self.takes = [{d: self._op_times[op][d] for d in self.on[op]} for op in range(self.own)]
        self.ops = [self._step(op, [*takes.values()]) for op, takes in enumerate(self.takes)]

    def _add_transfers(self) -> None:
        """Each tensor that is read may be sent to each device where a reader may be, at some start."""
        # By tensor and device: whether it has to be there and is made elsewhere; the step that sends it, but for
        # replicas; and by source whether it comes from there, with what it takes.
        self.sent: dict[tuple[int, int], Any] = {}
        self.transfers: dict[tuple[int, int], Step] = {}
        self.links: dict[tuple[int, int], dict[int, tuple[Any, int]]] = {}
        for tensor, readers in enumerate(self.readers):
            self.check_time()
            sending = self._sending(tensor) if readers and len(self.devices) > 1 else []
            for device in self.devices if sending else ():
                if any(device in self.on[reader] for reader in readers):
                    self._add_transfer(tensor, device, [row[device] for row in sending])

    def _add_transfer(self, tensor: int, device: int, sending: list[int]) -> None:
        made_on, hinted = self.on[self.producer[tensor]], self.hint.device
        home, sources = hinted[self.producer[tensor]], [source for source in made_on if source != device]
        is_sent = home != device and any(hinted[reader] == device for reader in self.readers[tensor])
        sent = self.sent[tensor, device] = self.literal(is_sent)
        if self.is_everywhere[tensor]:
            return
        links = self.links[tensor, device] = {}
        for source in sources:
            is_only = len(sources) == 1
            if sending[source] >= 0:
                literal = sent if is_only else self.both(sent, made_on[source], is_sent and home == source)
                links[source] = literal, sending[source]
        self.transfers[tensor, device] = self._step((tensor, device), [lasts for _, lasts in links.values()])

    def add_buffers(self) -> None:
        """Start a buffer for each tensor that is no view where an op makes it, and for any where it is sent."""
        self.buffers: dict[tuple[bool, int, int], Buffer] = {}  # by whether it is a copy that was sent, tensor, device
        for tensor, producer in enumerate(self.producer):
            self.check_time()
            if self.size[tensor] and self.graph.alias_of[tensor] < 0 and producer < self.own:
                for device, present in self.on[producer].items():
                    self._add_buffer(False, tensor, device, self.ops[producer], present)
        for (tensor, device), step in self.transfers.items():
            if self.size[tensor]:
                self._add_buffer(True, tensor, device, step, self.sent[tensor, device])

    def _add_buffer(self, is_copy: bool, tensor: int, device: int, since: Step, present: Any) -> None:
        end = self.model.new_int_var(0, self.units.horizon, "")
        self.buffers[is_copy, tensor, device] = Buffer(since, present, end)

    def schedule(self, value: Any) -> Schedule:
        """Return the schedule of a solution: ops by their end and transfers by their start, residents first."""
        device = [next(d for d, literal in on.items() if value(literal)) for on in self.on]
        steps = [(HOLDS, False, op, device[op], device[op]) for op in range(self.own, self.graph.num_ops)]
        steps += [(value(step.end), False, op, device[op], device[op]) for op, step in enumerate(self.ops)]
        for (tensor, target), step in self.transfers.items():
            if value(self.sent[tensor, target]):
                steps.append((value(step.start), True, ~tensor, device[self.producer[tensor]], target))
        steps.sort()
        return Schedule.from_steps(*zip(*(step[2:] for step in steps), strict=True))
