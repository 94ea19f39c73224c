"""A graph, the task to minimise, the devices and the limits."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args

import numpy as np

from ..base.arrays import INT64_MAX, FloatArray, frozen
from ..base.errors import UsageError
from ..base.names import unknown
from ..base.units import format_bytes, format_microseconds, format_runs
from ..graph.graph import CostGraph
from .machine import MAX_DEVICES, Machine
from .residents import GraphWithHomes, model_of, with_homes
from .rules import PlacementRules, placement_rules

Task = Literal["memory", "runtime"]
RUNTIME_TOLERANCE = 1e-12  # sums of runtimes in another order differ in their last bits
_KINDS: dict[str, tuple[Any, str]] = {
    "devices": (Integral, "a whole number"),
    "memory_limit": ((Integral, NoneType), "a whole number of bytes or None"),
    "bandwidth": ((Real, NoneType), "a number of bytes per second or None"),
    "latency": (Real, "a number of microseconds"),
}


@dataclass(frozen=True, repr=False)
class Problem:
    """A graph to be scheduled on identical devices, or on those of a machine.

    Parameters
    ----------
    graph
        The computation graph. On several devices residents that several ops use have a home, on a machine all of them:
        they are ops of their own at the end of the graph, a `GraphWithHomes`.
    task
        `memory`: the peak of the fullest device, in bytes; `runtime`: the makespan, in microseconds.
    devices
        1 to 64; with a machine, as many as it has.
    memory_limit
        Bytes per device, or None; on a machine the smaller of this and the memory of each device counts.
    bandwidth
        Bytes per second between two devices, or None for infinite.
    latency
        Microseconds that every transfer adds, control transfers included.
    recompute
        Whether a schedule may run an op several times, on one device.
    runtime_limit
        Microseconds that a schedule may take, or None; with `recompute` alone, for nothing else adds time. Runs, where
        no op of the graph has a runtime.
    machine
        Different devices and their links, with the bandwidths and latencies in place of those above; None by default.
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
    task: Task = "memory"
    devices: int = 1
    memory_limit: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    recompute: bool = False
    runtime_limit: float | None = None
    machine: Machine | None = None
    replicate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.graph, CostGraph):
            raise UsageError(f"the graph of a Problem is a CostGraph, not {type(self.graph).__name__}")
        self._check_machine()
        for name, (kind, what) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise UsageError(f"the {name} of a Problem is {what}, not {value!r}; solve reads texts with units")
            if value is not None and type(value) not in (int, float):  # of NumPy, or a fraction, which JSON cannot hold
                object.__setattr__(self, name, int(value) if isinstance(value, Integral) else float(value))
        if self.task not in get_args(Task):
            raise unknown("task", self.task, get_args(Task))
        if not 1 <= self.devices <= MAX_DEVICES:
            raise UsageError(f"devices must be from 1 to {MAX_DEVICES}, not {self.devices}")
        if self.memory_limit is not None and not 0 < self.memory_limit <= INT64_MAX:
            raise UsageError(f"the memory limit must be from 1 to 2^63 - 1 bytes, not {self.memory_limit}")
        if self.bandwidth is not None and not 0 < self.bandwidth <= sys.float_info.max:
            raise UsageError(f"the bandwidth must be positive, not {self.bandwidth} bytes per second")
        if not 0 <= self.latency <= sys.float_info.max:
            raise UsageError(f"the latency must not be negative, not {self.latency} us")
        self._check_recompute()
        is_several = self.devices > 1
        graph = with_homes(self.graph, holds_all=not self.hardware.is_equal) if is_several else model_of(self.graph)
        object.__setattr__(self, "graph", graph)
        self._check_transfers()
        total = sum(int(a.sum()) for a in (graph.tensor_size, graph.workspace, graph.persistent))
        if total * self.devices > INT64_MAX:
            raise UsageError(f"{graph.name}: all bytes times {self.devices} devices exceed 2^63 - 1")
        if not self.hardware.is_equal:
            _ = self.rules  # what cannot be placed is refused at once

    def _check_machine(self) -> None:
        if not isinstance(self.replicate, bool):
            raise UsageError(f"the replicate of a Problem is true or false, not {self.replicate!r}")
        if self.machine is None:
            return
        if not isinstance(self.machine, Machine):
            raise UsageError(f"the machine of a Problem is a Machine, not {type(self.machine).__name__}")
        count = len(self.machine.devices)
        if self.devices not in (1, count):
            raise UsageError(f"the machine has {count} devices, not {self.devices}; leave devices out beside a machine")
        own = (self.machine.bandwidth[0][-1], self.machine.latency[0][-1]) if self.machine.is_equal else (math.inf, 0.0)
        own_links = None if math.isinf(own[0]) else own[0], own[1]
        if (self.bandwidth, self.latency) not in ((None, 0.0), own_links):
            raise UsageError("a machine says its own bandwidths and latencies; leave bandwidth and latency out")
        if self.recompute:
            raise UsageError("recomputation is decided for one device without a machine")
        for name, value in zip(("devices", "bandwidth", "latency"), (count, *own_links), strict=True):
            object.__setattr__(self, name, value)

    def _check_transfers(self) -> None:
        """Refuse times that no clock adds up: each tensor may go to each device."""
        graph, machine = self.graph, self.hardware
        bandwidth = np.array(machine.bandwidth)
        latency = float(np.array(machine.latency)[bandwidth > 0].max())
        sending = 1e6 / float(bandwidth[bandwidth > 0].min()) * float(graph.tensor_size.sum())
        if not self.devices * (latency * graph.num_tensors + sending) <= INT64_MAX:
            if self.machine is not None:
                raise UsageError(
                    f"{machine.place('links')}{graph.name}: over the slowest link all transfers could take more than "
                    "2^63 - 1 us; give less latency or more bandwidth"
                )
            rate = "an infinite bandwidth"
            if self.bandwidth is not None:
                rate = f"a bandwidth of {self.bandwidth} bytes per second"
            raise UsageError(
                f"{graph.name}: with a latency of {self.latency:.4g} us and {rate} "
                "all transfers could take more than 2^63 - 1 us; give less of the one or more of the other"
            )

    def _check_recompute(self) -> None:
        if not isinstance(self.recompute, bool):
            raise UsageError(f"the recompute of a Problem is true or false, not {self.recompute!r}")
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
            raise UsageError("a limit of the runtime is for recomputation alone; without it one device takes the same")
        total = float(self.op_times.sum())
        if (
            not isinstance(self.runtime_limit, Real)
            or not total * (1 - RUNTIME_TOLERANCE) <= self.runtime_limit <= sys.float_info.max
        ):
            raise UsageError(f"the limit of the runtime must be at least the {self.format_time(total)} of all ops")

    def __repr__(self) -> str:
        settings = [field for field in fields(self) if field.name != "graph"]
        given = [f", {f.name}={value!r}" for f in settings if (value := getattr(self, f.name)) != f.default]
        return f"Problem({self.graph!r}{''.join(given)})"

    @property
    def has_homes(self) -> bool:
        """Whether residents have a home of their own."""
        return isinstance(self.graph, GraphWithHomes)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether devices can be exchanged: they are equal, and no resident has a home on one."""
        return self.hardware.is_equal and not self.has_homes

    @cached_property
    def hardware(self) -> Machine:
        """The machine, or as many equal devices as there are."""
        return self.machine or Machine.equal(self.devices, self.bandwidth, float(self.latency))

    @cached_property
    def rules(self) -> PlacementRules:
        """What each op takes where, and where it may run."""
        return placement_rules(self.graph, self.hardware)

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        """The names of the devices: `device 0` and so on without a machine."""
        return tuple(device.name for device in self.hardware.devices)

    @cached_property
    def memory_limits(self) -> tuple[int | None, ...]:
        """Bytes that each device may hold, None for no limit."""
        return tuple(
            min((limit for limit in (self.memory_limit, device.memory) if limit is not None), default=None)
            for device in self.hardware.devices
        )

    @cached_property
    def is_limited(self) -> bool:
        """Whether any device has a memory limit."""
        return any(limit is not None for limit in self.memory_limits)

    @property
    def microseconds_per_byte(self) -> float:
        """What a transferred byte costs: 0 for infinite bandwidth."""
        return 1e6 / self.bandwidth if self.bandwidth else 0.0

    @property
    def transfers_take_time(self) -> bool:
        """Whether some transfer between devices takes time."""
        return bool(self.hardware.latencies.any() or self.hardware.microseconds_per_byte.any())

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
        """What a run of each op counts, shape `(ops,)`: microseconds, or 1 where every run counts alike."""
        return frozen(np.ones(self.graph.num_ops), np.float64) if self.counts_runs else self.graph.runtime

    def time_of(self, runs: int, runtime: float) -> float:
        """Return what a schedule takes of so many runs and microseconds: the latter, unless every run counts alike."""
        return float(runs) if self.counts_runs else runtime

    @cached_property
    def fixed_op(self) -> int:
        """The op that stays on device 0 to break the symmetry (REGAL A.2): largest memory, or runtime.

        Its memory is its inputs, outputs and workspace.
        """
        graph = self.graph
        if self.task == "runtime":
            return int(np.argmax(graph.runtime))
        pointers, tensors = graph.inputs
        need = graph.workspace.astype(np.float64)
        reads = graph.tensor_size[tensors]
        np.add.at(need, np.repeat(np.arange(graph.num_ops), np.diff(pointers)), reads)
        np.add.at(need, graph.tensor_producer, graph.tensor_size)
        return int(np.argmax(need))

    def value(self, peak: int, runtime: float) -> float:
        """Return what the task minimises, of the two."""
        return peak if self.task == "memory" else runtime

    def is_feasible(self, peaks: Sequence[int], runtime: float = 0.0) -> bool:
        """Whether the peak of every device keeps its memory limit, and a runtime its own."""
        return self.fitness(peaks, runtime)[0] == 0

    def fitness(self, peaks: Sequence[int], runtime: float) -> tuple[int, float]:
        """Return `(excess, value)`: feasible schedules rank first, then by excess.

        Parameters
        ----------
        peaks
            Bytes of each device; where limits are equal, those of the fullest alone do.
        runtime
            Microseconds, or runs where every run counts alike.

        Returns
        -------
        tuple
            Bytes above the limit of the worst device, or microseconds above that of the runtime, rounded up, if that
            is more; and what the task minimises.
        """
        limited = zip(peaks, self.memory_limits, strict=False) if self.is_limited else ()
        excess = max((peak - limit for peak, limit in limited if limit is not None), default=0)
        if self.runtime_limit is not None and runtime > self.runtime_limit * (1 + RUNTIME_TOLERANCE):
            excess = max(excess, math.ceil(runtime - self.runtime_limit))
        return max(0, excess), self.value(max(peaks), runtime)

    def format_value(self, value: float) -> str:
        """Write a value of the task with its unit."""
        return format_bytes(value) if self.task == "memory" else self.format_time(value)

    def format_time(self, value: float) -> str:
        """Write microseconds with their unit, or runs where every run counts alike."""
        if self.counts_runs:
            return format_runs(value)
        return format_microseconds(value)
