"""A graph, the task to minimise, the devices and the limits; which ops may run where."""

from __future__ import annotations

import fnmatch
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import chain, pairwise
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from ..base.arrays import INT64_MAX, BoolArray, FloatArray, IndexArray, frozen
from ..base.errors import UsageError
from ..base.names import unknown
from ..base.options import json_name
from ..base.units import MAX_DEVICES, format_bytes, format_microseconds, format_runs, shares_alike
from ..graph.graph import CostGraph
from .machine import Machine
from .residents import GraphWithHomes, first_home, model_of, with_homes

Task = Literal["memory", "runtime"]
RUNTIME_TOLERANCE = 1e-12  # sums of runtimes in another order differ in their last bits
_UNSAID = {"task": "memory", "devices": 1, "latency": 0.0, "recompute": False, "replicate": False}  # by `repr`


@dataclass(frozen=True, init=False, repr=False)
class Problem:
    """A graph to be scheduled on the devices of a machine: `devices` equal ones, or those of a `Machine`.

    `devices`, `bandwidth` and `latency` are those of the problem's `machine`; `dataclasses.replace` takes them, too.

    Parameters
    ----------
    graph
        The computation graph. On several devices residents that several ops use have a home, on a machine all of them:
        they are ops of their own at the end of the graph, a `GraphWithHomes`.
    task
        `memory`: the peak of the fullest device, bytes, its share if all have a memory; `runtime`: the makespan, us.
    devices
        1 to 64, 1 by default; with a machine, as many as it has.
    memory_limit
        Bytes per device, or None; on a machine the smaller of this and the memory of each device counts.
    bandwidth
        Bytes per second between two devices, `math.inf` by default.
    latency
        Microseconds that every transfer adds, control transfers included; 0 by default.
    recompute
        Whether a schedule may run an op several times, on one device.
    runtime_limit
        Microseconds that a schedule may take, or None; with `recompute` alone, for nothing else adds time. Runs, where
        no op of the graph has a runtime.
    machine
        Devices and their links; by default `Machine.equal(devices, bandwidth, latency)`. Beside a machine of different
        devices those three are left out; beside one that `Machine.equal` made, those that are given replace its own.
    replicate
        Whether residents that no op writes are on every device that reads them from the start, instead of being sent
        there; False by default.

    Raises
    ------
    UsageError
        If a value is of the wrong type or out of range, or the bytes of all devices together overflow.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("one")
    >>> op = builder.add_op("op", outputs=[1024])
    >>> schedopt.Problem(builder.build(), "runtime", devices=2, bandwidth=1e9)
    Problem(CostGraph('one': 1 ops, 1 tensors), task='runtime', devices=2, bandwidth=1000000000.0)
    """

    graph: CostGraph
    task: Task
    memory_limit: int | None
    recompute: bool
    runtime_limit: float | None
    machine: Machine
    replicate: bool

    def __init__(
        self,
        graph: CostGraph,
        task: Task = "memory",
        devices: int | None = None,
        memory_limit: int | None = None,
        bandwidth: float | None = None,
        latency: float | None = None,
        recompute: bool = False,
        runtime_limit: float | None = None,
        machine: Machine | None = None,
        replicate: bool = False,
    ) -> None:
        if not isinstance(graph, CostGraph):
            raise UsageError(f"the graph of a Problem is a CostGraph, not {type(graph).__name__}")
        for name, value in (("replicate", replicate), ("recompute", recompute)):
            if not isinstance(value, bool):
                raise UsageError(f"the {name} of a Problem is true or false, not {value!r}")
        if task not in get_args(Task):
            raise unknown("task", task, get_args(Task))
        memory_limit = _number("memory_limit", memory_limit, Integral, "a whole number of bytes or None")
        if memory_limit is not None and not 0 < memory_limit <= INT64_MAX:
            raise UsageError(f"the memory limit must be from 1 to 2^63 - 1 bytes, not {memory_limit}")
        runtime_limit = _number("runtime_limit", runtime_limit, Real, "a number of microseconds or None")
        machine = _with_links(Machine.equal(1) if machine is None else machine, devices, bandwidth, latency)
        values = (graph, task, memory_limit, recompute, runtime_limit, machine, replicate)
        for field, given in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, given)
        self._check_recompute()
        graph = with_homes(graph, holds_all=not machine.is_equal) if self.devices > 1 else model_of(graph)
        object.__setattr__(self, "graph", graph)
        self._check_transfers()
        total = sum(int(a.sum()) for a in (graph.tensor_size, graph.workspace, graph.persistent))
        if total * self.devices > INT64_MAX:
            raise UsageError(f"{graph.name}: all bytes times {self.devices} devices exceed 2^63 - 1")
        if not machine.is_equal:
            _ = self.rules  # what cannot be placed is refused at once

    def _check_transfers(self) -> None:
        """Refuse times that no clock adds up: each tensor may go to each device."""
        graph, machine = self.graph, self.machine
        bandwidths = np.array(machine.bandwidth)
        bandwidth = float(bandwidths[bandwidths > 0].min())
        latency = float(np.array(machine.latency)[bandwidths > 0].max())
        sending = 1e6 / bandwidth * float(graph.tensor_size.sum())
        if self.devices * (latency * graph.num_tensors + sending) <= INT64_MAX:
            return
        if not machine.is_anonymous:
            raise UsageError(
                f"{machine.place('links')}{graph.name}: over the slowest link all transfers could take more than "
                "2^63 - 1 us; give less latency or more bandwidth"
            )
        rate = "an infinite bandwidth" if math.isinf(bandwidth) else f"a bandwidth of {bandwidth} bytes per second"
        raise UsageError(
            f"{graph.name}: with a latency of {latency:.4g} us and {rate} "
            "all transfers could take more than 2^63 - 1 us; give less of the one or more of the other"
        )

    def _check_recompute(self) -> None:
        if self.recompute and not self.machine.is_anonymous:
            raise UsageError("recomputation is decided for one device without a machine")
        if self.recompute and self.devices > 1:
            raise UsageError(f"recomputation is decided for one device, not for {self.devices}")
        weights = int(self.graph.persistent.sum())
        if self.recompute and self.memory_limit is not None and self.memory_limit < weights:
            raise UsageError(
                f"{self.graph.name}: the memory limit of {format_bytes(self.memory_limit)} is below the "
                f"{format_bytes(weights)} of weights and other persistent bytes, which no recomputation frees"
            )
        if self.runtime_limit is None:
            return
        if not self.recompute:
            raise UsageError("runtime_limit needs recompute=True; without it all orders take the same time")
        total = float(self.op_times.sum())
        if not total * (1 - RUNTIME_TOLERANCE) <= self.runtime_limit <= sys.float_info.max:
            raise UsageError(f"the limit of the runtime must be at least the {self.format_time(total)} of all ops")

    def _given(self) -> dict[str, Any]:
        """Return the parameters but for the graph; a machine has its devices and links, or they have none."""
        hidden = {"machine": None} if self.machine.is_anonymous else {"bandwidth": None, "latency": 0.0}
        return {name: getattr(self, name) for name in parameter_types()} | hidden

    def __repr__(self) -> str:
        given = [f", {name}={v!r}" for name, v in self._given().items() if v not in (None, _UNSAID.get(name))]
        return f"Problem({self.graph!r}{''.join(given)})"

    def document(self) -> dict[str, Any]:
        """Return all but the graph as plain values, by the names of a schedule file."""
        given = self._given()
        given["machine"] = given["machine"] and self.machine.document()
        return {
            json_name(name): value
            for name, value in given.items()
            if name in ("memory_limit", "bandwidth") or (value is not None and value is not False)
        }

    @property
    def devices(self) -> int:
        """How many devices the machine has."""
        return len(self.machine.devices)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second between two devices; None for infinite, for one device, and for links that differ."""
        return self.machine.common_link[0]

    @property
    def latency(self) -> float:
        """Microseconds that every transfer adds; 0 for one device, and for links that differ."""
        return self.machine.common_link[1]

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether devices can be exchanged: they are equal, and no resident has a home on one."""
        return self.machine.is_equal and not isinstance(self.graph, GraphWithHomes)

    @cached_property
    def rules(self) -> PlacementRules:
        """The time of each op on each device, and the devices where it may run."""
        return placement_rules(self.graph, self.machine)

    @cached_property
    def memory_limits(self) -> tuple[int | None, ...]:
        """Bytes that each device may hold, None for no limit."""
        return tuple(
            min((limit for limit in (self.memory_limit, device.memory) if limit is not None), default=None)
            for device in self.machine.devices
        )

    @cached_property
    def is_limited(self) -> bool:
        """Whether any device has a memory limit."""
        return any(limit is not None for limit in self.memory_limits)

    @property
    def transfers_take_time(self) -> bool:
        """Whether some transfer between devices takes time."""
        return bool(self.machine.latencies.any() or self.machine.microseconds_per_byte.any())

    @property
    def transfers_cost(self) -> bool:
        """Whether transfers between devices cost time or, under a memory limit, room."""
        return self.memory_limit is not None or self.transfers_take_time

    @property
    def counts_runs(self) -> bool:
        """Whether every run counts alike: with `recompute`, where no op of the graph has a runtime."""
        return self.recompute and not self.graph.runtime.any()

    @cached_property
    def op_times(self) -> FloatArray:
        """The count of a run of each op, shape `(ops,)`: microseconds, or 1 where every run counts alike."""
        return frozen(np.ones(self.graph.num_ops), np.float64) if self.counts_runs else self.graph.runtime

    def time_of(self, runs: int, runtime: float) -> float:
        """Return the time of a schedule of so many runs and microseconds: the latter, unless every run counts alike."""
        return float(runs) if self.counts_runs else runtime

    @cached_property
    def fixed_op(self) -> int:
        """The op that stays on device 0 (REGAL A.2): of most runtime, or of most inputs, outputs and workspace."""
        graph = self.graph
        if self.task == "runtime":
            return int(np.argmax(graph.runtime))
        pointers, tensors = graph.inputs
        need = graph.workspace.astype(np.float64)
        np.add.at(need, np.repeat(np.arange(graph.num_ops), np.diff(pointers)), graph.tensor_size[tensors])
        np.add.at(need, graph.tensor_producer, graph.tensor_size)
        return int(np.argmax(need))

    @property
    def counts_shares(self) -> bool:
        """Whether the task minimises the largest share of a device's memory."""
        return self.task == "memory" and self.machine.counts_shares

    @cached_property
    def memories(self) -> tuple[int, ...]:
        """The bytes of each device of which shares count; 1 each where bytes count."""
        return tuple((device.memory or 1) if self.counts_shares else 1 for device in self.machine.devices)

    @cached_property
    def whole(self) -> int:
        """The value of a full device where shares count: its bytes if all have the same, else a power of two."""
        return max(self.memories) if self.counts_alike else 1 << (max(self.memories) - 1).bit_length()

    @property
    def counts_alike(self) -> bool:
        """Whether a byte counts 1 in a value on whichever device it is."""
        return len({*self.memories}) == 1

    @cached_property
    def byte_weights(self) -> FloatArray:
        """What a byte of each device counts in a value, at least 1; shape `(devices,)`."""
        return frozen(self.whole / np.array(self.memories, np.float64), np.float64)

    def value(self, peak: float, runtime: float) -> float:
        """Return the objective by which schedules are compared, of the two; `peak` is a `counted_peak`."""
        return peak if self.task == "memory" else runtime

    def counted_peak(self, peaks: Sequence[int]) -> float:
        """Return the peak of the fullest device, given the bytes of each: where shares count, that of `whole`."""
        # A quotient is rounded to the nearest float, so that no larger share is below a smaller one.
        if self.counts_alike:
            return max(peaks)
        return max(peak * self.whole / memory for peak, memory in zip(peaks, self.memories, strict=True))

    def shown(self, value: float) -> float:
        """Return a value as results have it: a share, 1 for a full device, in place of its part of `whole`."""
        return value / self.whole if self.counts_shares else value

    def is_feasible(self, peaks: Sequence[int], runtime: float = 0.0) -> bool:
        """Whether the peak of every device keeps its memory limit, and a runtime its own."""
        return self.fitness(peaks, runtime)[0] == 0

    def fitness(self, peaks: Sequence[int], runtime: float) -> tuple[int, float]:
        """Return `(excess, value)`: feasible schedules rank first, then by excess.

        Parameters
        ----------
        peaks
            Bytes of each device.
        runtime
            Microseconds, or runs where every run counts alike.

        Returns
        -------
        tuple
            Bytes above the limit of the worst device, or microseconds above that of the runtime, rounded up, if that
            is more; and the objective of the task.
        """
        limited = zip(peaks, self.memory_limits, strict=False) if self.is_limited else ()
        excess = max((peak - limit for peak, limit in limited if limit is not None), default=0)
        if self.runtime_limit is not None and runtime > self.runtime_limit * (1 + RUNTIME_TOLERANCE):
            excess = max(excess, math.ceil(runtime - self.runtime_limit))
        return max(0, excess), self.value(self.counted_peak(peaks), runtime)

    def format_value(self, value: float) -> str:
        """Write a value as results have it with its unit."""
        if self.counts_shares:
            return shares_alike([value])(value)
        return format_bytes(value) if self.task == "memory" else self.format_time(value)

    def format_time(self, value: float) -> str:
        """Write microseconds with their unit, or runs where every run counts alike."""
        if self.counts_runs:
            return format_runs(value)
        return format_microseconds(value)


@cache
def parameter_types() -> dict[str, Any]:
    """Return the type of each parameter of a problem but for its graph."""
    types = get_type_hints(Problem.__init__).items()
    return {name: kind for name, kind in types if name not in ("graph", "return")}


def _with_links(machine: Any, devices: Any, bandwidth: Any, latency: Any) -> Machine:
    """Return a machine; the links of equal devices replace its own."""
    if not isinstance(machine, Machine):
        raise UsageError(f"the machine of a Problem is a Machine, not {type(machine).__name__}")
    devices = _number("devices", devices, Integral, "a whole number")
    bandwidth = _number("bandwidth", bandwidth, Real, "a number of bytes per second or None")
    latency = _number("latency", latency, Real, "a number of microseconds")
    if devices is not None and not 1 <= devices <= MAX_DEVICES:
        raise UsageError(f"devices must be from 1 to {MAX_DEVICES}, not {devices}")
    if bandwidth not in (None, math.inf) and not 0 < bandwidth <= sys.float_info.max:
        raise UsageError(f"the bandwidth must be positive, not {bandwidth} bytes per second")
    if latency is not None and not 0 <= latency <= sys.float_info.max:
        raise UsageError(f"the latency must not be negative, not {latency} us")
    count, link = len(machine.devices), machine.common_link
    if bandwidth is None or bandwidth == math.inf:
        bandwidth = link[0] if bandwidth is None else None
    asked = bandwidth, link[1] if latency is None else latency
    if machine.is_anonymous:
        return Machine.equal(devices or count, *asked)
    if devices not in (None, count):
        raise UsageError(f"the machine has {count} devices, not {devices}; with a machine leave devices out")
    if asked != link:
        raise UsageError("a machine says its own bandwidths and latencies; leave bandwidth and latency out")
    return machine


def _number(name: str, value: Any, kind: type[Any], wanted: str) -> Any:
    """Return a number of Python for one of NumPy or a fraction, which JSON cannot hold; None for None."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise UsageError(f"the {name} of a Problem is {wanted}, not {value!r}; solve reads texts with units")
    if value is None or type(value) in (int, float):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


@dataclass(frozen=True, eq=False)
class PlacementRules:
    """The time of each op on each device, and the devices where it may run."""

    times: FloatArray  # shape `(ops, devices)`: microseconds, infinite where an op cannot run
    allowed: BoolArray  # shape `(ops, devices)`: whether an op, and all that is on one device with it, may be there
    group: IndexArray  # shape `(ops,)`: the first op of those that are on one device with it, itself if there are none

    @property
    def groups(self) -> dict[int, list[int]]:
        """The ops of each group of more than one, by the first."""
        members: dict[int, list[int]] = {}
        for op, first in enumerate(self.group.tolist()):
            members.setdefault(first, []).append(op)
        return {first: ops for first, ops in members.items() if len(ops) > 1}

    def kept(self, placement: IndexArray) -> IndexArray:
        """Return a placement that keeps the rules: each group is where its first op is, or where it may be."""
        placement = placement[self.group]
        is_there = self.allowed[np.arange(len(placement)), placement]
        kept: IndexArray = np.where(is_there, placement, self.allowed.argmax(axis=1)).astype(np.int32)
        return kept

    def drawn(self, rng: np.random.Generator) -> IndexArray:
        """Return a random placement that keeps the rules."""
        best = np.where(self.allowed, rng.random(self.allowed.shape), -1.0).argmax(axis=1)
        drawn: IndexArray = best[self.group].astype(np.int32)
        return drawn


def placement_rules(graph: CostGraph, machine: Machine) -> PlacementRules:
    """Return the rules of placement."""
    times = _times(graph, machine)
    allowed = np.isfinite(times)
    _check_runnable(graph, machine, allowed)
    for number, (pattern, name) in enumerate(machine.pins):
        devices = np.zeros(len(machine.devices), bool)
        devices[machine.named(name)] = True
        where = machine.place(f"pin {pattern}")
        ops = _matching(graph, pattern, f"{where}{graph.name}: pin '{pattern}'")
        allowed[ops] &= devices
        if len(wrong := [op for op in ops if not allowed[op].any()]):
            what = f"{where}{graph.name}: op {graph.op_label(wrong[0])} is pinned to '{name}'"
            raise UsageError(f"{what}, {_pin_conflict(graph, machine, wrong[0], number, times[wrong[0]][devices])}")
    groups = _Groups(graph, allowed)
    for number, patterns in enumerate(machine.together):
        where = machine.place(f"together {number}")
        found = [_matching(graph, pattern, f"{where}{graph.name}: '{pattern}' of together") for pattern in patterns]
        groups.join(sorted(chain(*found)), where, "this group, joined with those that it overlaps, is on one device")
    if isinstance(graph, GraphWithHomes):
        for resident in np.flatnonzero(graph.is_written).tolist():
            kept = [*graph.states[resident].at_home, first_home(graph) + resident]
            why = f"ops that write '{graph.held[resident].name}' in place, and readers in between, run at its home"
            groups.join(kept, _first_pin(graph, machine, kept), why)
    group = groups.first()
    return PlacementRules(frozen(times, np.float64), frozen(groups.shared[group], np.bool_), frozen(group, np.int32))


class _Groups:
    """Ops that are to be on one device, and where they may be; groups with an op in common are one."""

    def __init__(self, graph: CostGraph, allowed: BoolArray) -> None:
        self.graph = graph
        self.shared = allowed.copy()
        self.parent: dict[int, int] = {}  # ops that are alone are left out

    def first(self) -> IndexArray:
        """Return the smallest op of the group of each op."""
        first: IndexArray = np.arange(self.graph.num_ops, dtype=np.int32)
        for op in self.parent:
            first[op] = self._find(op)
        return first

    def join(self, ops: list[int], where: str, why: str) -> None:
        """Make one group of ops and of all that is with any of them."""
        for one, two in pairwise(ops):
            first, second = sorted((self._find(one), self._find(two)))
            both = self.shared[first] & self.shared[second]
            if not both.any():
                one, two = sorted((one, two))
                label = self.graph.op_label
                raise UsageError(
                    f"{where}{self.graph.name}: {why}, but {label(one)} and {label(two)}, each with its group, can "
                    "share none: pins, op times and groups contradict each other"
                )
            self.parent[second] = first
            self.shared[first] = both

    def _find(self, op: int) -> int:
        while (parent := self.parent.get(op, op)) != op:
            self.parent[op] = self.parent.get(parent, parent)
            op = self.parent[op]
        return op


def _times(graph: CostGraph, machine: Machine) -> FloatArray:
    speeds = np.array([device.speed for device in machine.devices])
    times = np.full((graph.num_ops, len(speeds)), np.inf)
    computes = speeds > 0
    times[:, computes] = graph.runtime[:, None] / speeds[computes]
    own = first_home(graph)
    if machine.op_times:
        if missing := next((name for name in graph.op_names[:own] if name not in machine.op_times), None):
            raise UsageError(f"{machine.place('op_times')}{graph.name}: the op times have none for op '{missing}'")
        for op, name in enumerate(graph.op_names[:own]):
            by_kind = machine.op_times[name]
            for device, what in enumerate(machine.devices):
                if what.kind in by_kind and what.speed > 0:
                    time = by_kind[what.kind]
                    times[op, device] = np.inf if time is None else time
    times[own:] = 0.0
    return times


def _check_runnable(graph: CostGraph, machine: Machine, allowed: BoolArray) -> None:
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck):
        computes = any(device.speed > 0 for device in machine.devices)
        why = "it has no time on any device that computes" if computes else "every device has speed 0"
        where = machine.place("op_times" if computes else "devices")
        raise UsageError(f"{where}{graph.name}: op {graph.op_label(int(stuck[0]))} can run on no device: {why}")


def _pin_conflict(graph: CostGraph, machine: Machine, op: int, pin: int, times: FloatArray) -> str:
    """Return why an op is not where a pin wants it, given its time there: it cannot run, or an earlier pin."""
    if not np.isfinite(times).any():
        return "where it cannot run: speed 0, or no op time"
    earlier = (pair for pair in machine.pins[:pin] if fnmatch.fnmatchcase(graph.op_names[op], pair[0]))
    return "but also " + " and ".join(f"by '{pattern}' to '{name}'" for pattern, name in earlier)


def _first_pin(graph: CostGraph, machine: Machine, ops: list[int]) -> str:
    """Return file and line of the first pin of any of some ops, nothing without one."""
    names = [graph.op_names[op] for op in ops]
    pins = (pattern for pattern, _ in machine.pins if fnmatch.filter(names, pattern))
    return next((machine.place(f"pin {pattern}") for pattern in pins), "")


def _matching(graph: CostGraph, pattern: str, what: str) -> list[int]:
    found = [op for op, name in enumerate(graph.op_names) if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise UsageError(f"{what} matches no op and no resident tensor")
    return found
