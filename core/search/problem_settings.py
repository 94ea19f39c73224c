"""From what a user gives, as texts with units or as numbers, to the settings of a problem and of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..base.errors import UsageError
from ..base.units import parse_bandwidth, parse_bytes, parse_microseconds, parse_percent, whole_number
from ..graph.graph import CostGraph
from ..problem.machine import Machine
from ..problem.problem import Problem, Task
from .registry import default_devices


class Recompute(NamedTuple):
    """What a user says of recomputation: whether ops may run again, and what share of the time that may add."""

    is_on: bool = False
    max_overhead: str | float | None = None


NO_RECOMPUTE = Recompute()


class OnMachine(NamedTuple):
    """What a user says of a machine: itself or its file, the file of op times, and what residents and pins do."""

    machine: Machine | str | os.PathLike[str] | None = None
    op_times: str | os.PathLike[str] | None = None
    pins_from_graph: bool = False
    replicate: bool = False

    def read(self) -> Machine | None:
        """Return the machine, read where it is a file.

        Raises
        ------
        UsageError
            If there are op times without a machine, or what is given is none.
        """
        if self.machine is None:
            if self.op_times is not None:
                raise UsageError("op times are by kinds of devices, which a machine has; give --machine, too")
            return None
        if isinstance(self.machine, Machine):
            if self.op_times is None:
                return self.machine
            from ..files.op_times_csv import read_op_times

            return replace(self.machine, op_times=read_op_times(os.fspath(self.op_times)))
        if not isinstance(self.machine, (str, os.PathLike)):
            raise UsageError(f"a machine is a Machine or the path of its file, not {type(self.machine).__name__}")
        from ..files.machine_yaml import read_machine

        times = None if self.op_times is None else os.fspath(self.op_times)
        return read_machine(os.fspath(self.machine), times)


NO_MACHINE = OnMachine()


def on_machine(machine: Any, op_times: Any, pins: Any, replicate: Any) -> OnMachine:
    """Return what is said of a machine.

    Raises
    ------
    UsageError
        If pins are neither None nor `from-graph`.
    """
    if pins not in (None, "from-graph"):
        raise UsageError(f"pins are 'from-graph' or None, not {pins!r}")
    return OnMachine(machine, op_times, pins is not None, replicate)


@dataclass(frozen=True)
class ProblemSettings:
    """What the problems of several graphs share.

    Parameters
    ----------
    task, devices, memory_limit, bandwidth, latency
        As in `Problem`: bytes, bytes per second, microseconds.
    memory_limit_share
        The limit as a share of each graph's peak in input order on one device, instead of one for all.
    recompute
        Whether ops may run several times.
    max_overhead
        With `recompute`, the share of the time of all ops that may be added, or None.
    machine, replicate
        As in `Problem`.
    pins_from_graph
        Whether ops are pinned to the devices that their graph names.

    Raises
    ------
    UsageError
        If a share is not positive, there are two limits, or recomputation has none.
    """

    task: Task = "memory"
    devices: int = 1
    memory_limit: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    memory_limit_share: float | None = None
    recompute: bool = False
    max_overhead: float | None = None
    machine: Machine | None = None
    replicate: bool = False
    pins_from_graph: bool = False

    def __post_init__(self) -> None:
        if self.memory_limit_share is not None and not self.memory_limit_share > 0:
            raise UsageError(f"memory limit share must be above 0, not {self.memory_limit_share}")
        if self.memory_limit is not None and self.memory_limit_share is not None:
            raise UsageError("the memory limit is given twice, in bytes and as a share")
        self._check_recompute()

    def _check_recompute(self) -> None:
        is_limited = self.memory_limit is not None or self.memory_limit_share is not None
        if self.max_overhead is not None and not self.max_overhead >= 0:
            raise UsageError(f"the time that recomputation may add must be at least 0%, not {self.max_overhead:.4g}")
        if not self.recompute:
            if self.max_overhead is not None:
                raise UsageError("--max-overhead is what --recompute may add; give that, too")
            return
        if self.devices > 1:
            raise UsageError(f"--recompute is for one device, not for --devices {self.devices}")
        if self.bandwidth is not None or self.latency:
            raise UsageError("--bandwidth and --latency are of several devices; --recompute is for one")
        if is_limited == (self.max_overhead is not None):
            raise UsageError(
                "--recompute needs one limit: --memory-limit for the least added time that keeps it, or "
                "--max-overhead for the least peak with so much added time"
            )
        if self.task != ("runtime" if is_limited else "memory"):
            raise UsageError(
                "with --recompute a --memory-limit is kept at the least added time (--task runtime), and a "
                "--max-overhead at the least peak (--task memory)"
            )

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem that a graph poses."""
        limit = self.memory_limit
        if self.memory_limit_share is not None:
            from ..model.simulator import input_peak  # loads the kernels

            limit = max(1, int(round(self.memory_limit_share * input_peak(graph), 6)))
        machine = self._pinned(graph) if self.pins_from_graph else self.machine
        transfers = self.bandwidth, self.latency
        problem = Problem(
            graph, self.task, self.devices, limit, *transfers, self.recompute, None, machine, self.replicate
        )
        if self.max_overhead is None:
            return problem
        return replace(problem, runtime_limit=(1 + self.max_overhead) * float(problem.op_times.sum()))

    def _pinned(self, graph: CostGraph) -> Machine:
        """Return the machine with the devices that a graph's file names for its ops as pins."""
        if self.machine is None:
            raise UsageError("--pins from-graph takes the devices of a machine; give --machine, too")
        named = graph.annotations.devices
        if not any(named):
            raise UsageError(f"{graph.name}: --pins from-graph finds no op with a device in the graph")
        known = {name for device in self.machine.devices for name in (device.name, device.kind)}
        for op, device in enumerate(named):
            if device and device not in known:
                raise UsageError(
                    f"{graph.name}: op {graph.op_label(op)} has the device '{device}', which the machine does not have"
                )
        pins = tuple((_literal(graph.op_names[op]), device) for op, device in enumerate(named) if device)
        return replace(self.machine, pins=(*self.machine.pins, *pins))


def _literal(name: str) -> str:
    """Return a pattern that matches a name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def problem_settings(
    task: str,
    devices: int | None,
    memory_limit: str | int | None,
    bandwidth: str | float | None,
    latency: str | float,
    methods: Sequence[str],
    recompute: Recompute = NO_RECOMPUTE,
    on: OnMachine = NO_MACHINE,
) -> dict[str, Any]:
    """Return the keyword arguments of `ProblemSettings`.

    One device is the default for memory, two for the makespan and for methods that place by nature. With recomputation
    it is one device, and a memory limit makes the added time the task.

    Raises
    ------
    UsageError
        If a text is not understood, or a value is of the wrong type.
    """
    machine = on.read()
    if machine is not None:
        if devices is not None and devices != len(machine.devices):
            raise UsageError(f"the machine has {len(machine.devices)} devices, not {devices}; leave --devices out")
        devices = len(machine.devices)
    if recompute.is_on and devices is None:
        devices = 1
    if devices is None:
        devices = default_devices(task, methods)
    limit = share = None
    if isinstance(memory_limit, str) and memory_limit.strip().endswith("%"):
        share = parse_percent(memory_limit, "memory limit")
    elif memory_limit is not None:
        limit = parse_bytes(memory_limit, "memory limit")
    if recompute.is_on and memory_limit is not None and recompute.max_overhead is None:
        task = "runtime"
    overhead = recompute.max_overhead
    return {
        "task": task,
        "devices": whole_number(devices, "devices"),
        "memory_limit": limit,
        "memory_limit_share": share,
        "bandwidth": None if bandwidth is None else parse_bandwidth(bandwidth),
        "latency": parse_microseconds(latency),
        "recompute": recompute.is_on,
        "max_overhead": None if overhead is None else _overhead(overhead),
        "machine": machine,
        "replicate": on.replicate,
        "pins_from_graph": on.pins_from_graph,
    }


def _overhead(given: str | float) -> float:
    """Return a share, of `"10%"` or a number."""
    if isinstance(given, str):
        return parse_percent(given, "max overhead")
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise UsageError(f"max overhead is a share as '10%' or 0.1, not {given!r}")
    return float(given)
