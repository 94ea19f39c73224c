"""Options of a problem and of a search, in the commands and functions that solve something.

The command line reads the fields for its help, so nothing heavy is imported here before a problem is made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from ..base import units
from ..base.errors import UsageError
from ..base.names import unknown
from ..base.options import Options, changed, fixed, option, option_named, spelled
from ..base.units import MAX_DEVICES, parse_bandwidth, parse_microseconds, parse_seconds
from .registry import DEFAULT_METHOD, METHODS, default_devices, listed, methods_where

if TYPE_CHECKING:
    from ..graph.graph import CostGraph
    from ..model.allocators import Allocator
    from ..problem.machine import Machine
    from ..problem.problem import Problem

P = TypeVar("P", bound="ProblemOptions")
Task = Literal["memory", "runtime"]
_DEVICES, _RECOMPUTATION = "Devices and their links", "Recomputation"
"""Panels of the help, after the options that all need."""


class Share(float):
    """A memory limit as a share of the peak of each graph's input order."""

    def __repr__(self) -> str:
        return f"'{100 * self:g}%'"


def _task(given: Any, called: str) -> str:
    if given not in get_args(Task):
        raise unknown("task", str(given), get_args(Task))
    return str(given)


def read_limit(given: Any, called: str) -> int | Share:
    """Return bytes, or the share of a text as `60%`."""
    if isinstance(given, Share):
        return given
    if isinstance(given, str) and given.strip().endswith("%"):
        return Share(units.parse_percent(given, called))
    return units.parse_bytes(given, called)


def _share(given: Any, called: str) -> float:
    if isinstance(given, str):
        return units.parse_percent(given, called)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise UsageError(f"{called} is a share as '10%' or 0.1, not {given!r}")
    return float(given)


def read_allocator(given: Any, called: str) -> Allocator:
    """Return an allocator, read from its name and options."""
    from ..model.allocators import Allocator

    if not isinstance(given, (str, Allocator)):
        raise UsageError(f"{called} is written as 'cuda' or 'cuda:OPTION:VALUE,...', not {given!r}")
    return given if isinstance(given, Allocator) else Allocator.parse(given)


def read_evaluations(given: Any, called: str) -> Any:
    """Return a number of evaluations, of a text as `1e4` if it is one."""
    return units.parse_count(given, called) if isinstance(given, str) else given


def _default_time_limits() -> str:
    """Return the time limits of the methods that have one, as a sentence says them."""
    named: dict[float, list[str]] = {}
    for name, method in METHODS.items():
        if method.default_seconds is not None:
            named.setdefault(method.default_seconds, []).append(name)
    return ", ".join(f"{limit:g}s for {listed(names, 'and')}" for limit, names in named.items())


@dataclass(frozen=True)
class ProblemOptions(Options):
    """The objective, the devices and the limits: the problem that every graph poses."""

    task: Task = option("memory", "Minimise memory (peak) or runtime (makespan)", read=_task)
    devices: int | None = option(
        None,
        "Devices",
        low=1,
        high=MAX_DEVICES,
        short="d",
        shown="1 for memory; 2 for "
        + listed(["runtime", *methods_where(lambda method: method.default_devices == 2)], "and"),
    )
    memory_limit: int | Share | None = option(
        None,
        "Bytes per device, e.g. 16GiB, or a share of the input order's peak, e.g. 60%",
        read=read_limit,
        shown="none",
    )
    recompute: bool = option(
        False,
        "Let ops run again, on one device: the least added time that keeps --memory-limit, or the least peak within "
        "--max-overhead",
        panel=_RECOMPUTATION,
    )
    max_overhead: float | None = option(
        None,
        "With --recompute: how much of the time of all ops may be added for the least peak, e.g. 10%",
        low=0,
        read=_share,
        panel=_RECOMPUTATION,
        shown="none",
    )
    bandwidth: float | None = option(
        None, "Bytes per second between devices, e.g. 10GB/s", read=parse_bandwidth, panel=_DEVICES, shown="infinite"
    )
    latency: float = option(0.0, "Time that each transfer adds, e.g. 5us", read=parse_microseconds, panel=_DEVICES)
    machine: Any = option(
        None,
        "Machine file: devices that differ, their memory and links",
        panel=_DEVICES,
        metavar="FILE",
        shown="equal devices",
    )
    op_times: str | os.PathLike[str] | None = option(
        None,
        "With --machine: CSV of op, then a time per kind of device; empty: cannot run there",
        panel=_DEVICES,
        metavar="FILE",
        shown="runtime / speed",
        json="",
    )
    pins: Literal["from-graph"] | None = option(
        None,
        "Where ops are pinned; from-graph: to the devices that the graph names",
        panel=_DEVICES,
        shown="none",
        json="pins_from_graph",
    )
    replicate: bool = option(
        False, "Weights that no op writes are on each device that reads them, instead of being sent", panel=_DEVICES
    )
    allocator: Any = option(
        None,
        "Find the order and the opening block for which PyTorch's caching allocator reserves least on one device: "
        "cuda, or cuda:OPTION:VALUE,... as in PYTORCH_CUDA_ALLOC_CONF",
        read=read_allocator,
        panel="Addresses",
        metavar="NAME",
        shown="none",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        machine = machine_of(self.machine, self.op_times)
        object.__setattr__(self, "machine", machine)
        if machine is not None:
            count = len(machine.devices)
            if self.devices not in (option_named(type(self), "devices").default, count):
                raise UsageError(f"the machine has {count} devices; leave {spelled('devices', self.devices)} out")
            object.__setattr__(self, "devices", count)
        if self.recompute:
            object.__setattr__(self, "devices", self.devices or 1)
            if self.memory_limit is not None and self.max_overhead is None:
                object.__setattr__(self, "task", "runtime")
        self._check_recompute()

    def _check_recompute(self) -> None:
        names = ("recompute", "max_overhead", "memory_limit", "bandwidth", "latency")
        recompute, overhead, limit, bandwidth, latency = map(spelled, names)
        if not self.recompute:
            if self.max_overhead is not None:
                raise UsageError(f"{overhead} limits the time that {spelled('recompute', True)} adds; give that, too")
            return
        if self.devices != 1:
            raise UsageError(f"{recompute} is for one device, not for {spelled('devices', self.devices)}")
        if self.bandwidth is not None or self.latency:
            raise UsageError(f"{bandwidth} and {latency} are of several devices; {recompute} is for one")
        if (self.memory_limit is None) == (self.max_overhead is None):
            raise UsageError(
                f"{recompute} needs one limit: {limit} for the least added time that keeps it, or {overhead} for the "
                "least peak with so much added time"
            )
        if self.max_overhead is not None and self.task != "memory":
            raise UsageError(f"{overhead} is for the least peak; leave {spelled('task', self.task)} out")

    @property
    def memory_name(self) -> str:
        """What a memory limit is about, as titles name it."""
        return "peak memory" if self.allocator is None else f"memory reserved by {self.allocator}"

    @property
    def memory_limit_share(self) -> float | None:
        """The memory limit as a share of each graph's peak in input order; None if it is in bytes, or there is none."""
        return float(self.memory_limit) if isinstance(self.memory_limit, Share) else None

    def for_methods(self: P, names: Iterable[str]) -> P:
        """Return options that say how many devices there are, by default as many as the methods have."""
        return self if self.devices is not None else replace(self, devices=default_devices(self.task, names))

    def document(self) -> dict[str, Any]:
        """Return the options by their names in JSON."""
        document = {**super().document(), "pins_from_graph": self.pins is not None}
        if document.get("allocator") is not None:
            document["allocator"] = str(self.allocator)
        if "memory_limit" in document:
            share = document["memory_limit_share"] = self.memory_limit_share
            document["memory_limit"] = None if share is not None else self.memory_limit
        return document

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem that a graph poses."""
        from ..problem.problem import Problem

        limit = self.memory_limit
        if isinstance(limit, Share):
            from ..model.simulator import input_peak

            limit = max(1, int(round(limit * input_peak(graph), 6)))
        devices = self.for_methods(()).devices
        assert devices is not None
        machine = self._pinned(graph) if self.pins else self.machine
        link = self.bandwidth, self.latency or None
        problem = Problem(graph, self.task, devices, limit, *link, self.recompute, None, machine, self.replicate)
        if self.max_overhead is None:
            return problem
        return replace(problem, runtime_limit=(1 + self.max_overhead) * float(problem.op_times.sum()))

    def _pinned(self, graph: CostGraph) -> Machine:
        """Return the machine with the devices that a graph's file names for its ops as pins."""
        pins, machine = spelled("pins", self.pins), self.machine
        if machine is None:
            raise UsageError(f"{pins} takes the devices of a machine; give {spelled('machine')}, too")
        named = graph.annotations.devices
        if not any(named):
            raise UsageError(f"{graph.name}: {pins} finds no op with a device in the graph")
        known = {name for device in machine.devices for name in (device.name, device.kind)}
        for op, device in enumerate(named):
            if device and device not in known:
                raise UsageError(
                    f"{graph.name}: op {graph.op_label(op)} has the device '{device}', which the machine does not have"
                )
        patterns = ("".join(f"[{letter}]" if letter in "*?[" else letter for letter in name) for name in graph.op_names)
        found = tuple(pin for pin in zip(patterns, named, strict=True) if pin[1])
        return cast("Machine", replace(machine, pins=(*machine.pins, *found)))


@dataclass(frozen=True)
class Budget(Options):
    """How much a search may do, from which seed, on how many threads."""

    evaluations: int | None = option(
        None,
        "Budget of complete schedules priced, e.g. 5000 or 1e4",
        low=1,
        read=read_evaluations,
        metavar="N",
        shown="the method's",
    )
    time_limit: float | None = option(
        None, "Wall time per run, e.g. 10s", read=parse_seconds, short="t", shown=f"{_default_time_limits()}, else none"
    )
    seed: int = option(0, "Seed of every random choice", low=0)
    jobs: int = option(
        1, "Worker threads; with a time limit alone auto finds more with more of them", low=1, short="j", json=""
    )

    @property
    def budget(self) -> dict[str, Any]:
        """The keyword arguments of `solve`."""
        return {name: getattr(self, name) for name in ("evaluations", "time_limit", "seed", "jobs")}


SEARCH_TIME: Any = changed(
    Budget,
    "time_limit",
    help="Wall time of each search, e.g. 10s",
    shown=f"{METHODS[DEFAULT_METHOD].default_seconds:g}s",
)
"""The time limit where the method is the default one, and searches more than once."""


@dataclass(frozen=True)
class SolveOptions(Budget, ProblemOptions):
    """The problem that a graph poses, the budget of its search, and whether tensors get addresses."""

    addresses: bool = option(
        False,
        "Give every tensor an offset in its device's arena, and choose an order whose arena is small",
        panel="Addresses",
    )
    align: int | None = option(
        None,
        "With --addresses: what offsets are multiples of, e.g. 16 or 4KiB",
        read=units.parse_bytes,
        low=1,
        high=units.LARGEST_ALIGNMENT,
        panel="Addresses",
        shown=str(units.DEFAULT_ALIGNMENT),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align is not None and not self.addresses:
            raise UsageError(f"{spelled('align')} is for {spelled('addresses', True)}; give that, too")
        if self.allocator is not None and self.addresses:
            raise UsageError(f"an allocator gives the addresses; leave {spelled('addresses', True)} out")

    @property
    def alignment(self) -> int | None:
        """The unit of offsets, bytes; None if no addresses are asked for."""
        return (self.align or units.DEFAULT_ALIGNMENT) if self.addresses else None


@dataclass(frozen=True)
class FitOptions(Budget):
    """On which devices a model may run, which size is varied, and the budget of each search."""

    evaluations: None = fixed(None)
    time_limit: float | None = SEARCH_TIME
    devices: int = option(1, "The most devices to try", low=1, high=MAX_DEVICES, short="d")
    machine: Any = changed(ProblemOptions, "machine", panel="", shown="none")
    batch: str | None = option(
        None, "Find the largest that fits: a symbolic dimension, or a keyword argument of the function", metavar="NAME"
    )
    confirm: bool = option(False, "Run what fits on one device in a new process, and measure its peak")
    allocator: Any = changed(
        ProblemOptions, "allocator", help="Ask by what PyTorch's caching allocator reserves: cuda", panel=""
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "machine", machine_of(self.machine))
        for name in ("batch", "confirm", "machine", "devices") if self.allocator is not None else ():
            if getattr(self, name) not in (None, False, 1):
                raise UsageError(f"{spelled('allocator')} is for one device and size; leave {spelled(name)} out")
        if self.machine is None:
            return
        if self.devices != 1:
            raise UsageError(f"the machine has its own devices; leave {spelled('devices', self.devices)} out")
        if self.batch is not None or self.confirm:
            name = "batch" if self.batch is not None else "confirm"
            raise UsageError(f"{spelled(name)} is for equal devices; leave {spelled('machine')} out")


@dataclass(frozen=True)
class PackOptions(Budget):
    """The unit of offsets, and the budget of the search."""

    evaluations: None = fixed(None)
    jobs: int = fixed(1)
    align: int | None = changed(
        SolveOptions,
        "align",
        help="What every offset is a multiple of, e.g. 64",
        panel="",
        shown="the file's alignment, or 1",
    )
    time_limit: float = option("10s", "Wall time, e.g. 2s", read=parse_seconds, short="t")


@dataclass(frozen=True)
class CompareOptions(Budget, ProblemOptions):
    """The problem of each graph, the budget of each run, and the seeds."""

    seeds: int = option(1, "Runs per method and graph, from --seed on", low=1)

    @property
    def kind(self) -> str:
        """Of the values: `runtime`, `memory` for bytes, or `share` of a device's memory."""
        is_share = self.machine is not None and self.machine.counts_shares and self.allocator is None
        return "share" if self.task == "memory" and is_share else self.task


@dataclass(frozen=True)
class GridOptions(CompareOptions):
    """The problem and the budget of each run of a grid search."""

    devices: int = option(2, "Devices", low=1, high=MAX_DEVICES, short="d")
    memory_limit: Any = fixed(None)
    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)
    machine: Any = fixed(None)
    op_times: Any = fixed(None)
    pins: Any = fixed(None)
    replicate: bool = fixed(False)
    allocator: Any = fixed(None)
    evaluations: int = option(5000, "Budget of each run", low=1, read=read_evaluations, metavar="N")
    time_limit: None = fixed(None)
    jobs: int = fixed(1)
    seeds: int = fixed(1)


@dataclass(frozen=True)
class ParetoOptions(Budget, ProblemOptions):
    """How many points a front has, on which devices, and the budget of each search."""

    task: Any = fixed("memory")
    memory_limit: Any = fixed(None)
    recompute: bool = fixed(False)
    max_overhead: Any = fixed(None)
    devices: int = option(1, "1, where ops may run again, or more, where none does", low=1, high=MAX_DEVICES, short="d")
    evaluations: int | None = changed(Budget, "evaluations", shown="no limit")
    time_limit: float | None = SEARCH_TIME
    points: int = option(10, "Points to look for, the ends included", low=2, short="n", json="limits")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices == 1 and (self.bandwidth is not None or self.latency):
            bandwidth, latency = spelled("bandwidth"), spelled("latency")
            raise UsageError(f"{bandwidth} and {latency} are of several devices; give {spelled('devices')}, too")

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem of a graph without a limit; on one device ops may run again."""
        from ..problem.problem import Problem

        if self.devices > 1 and not graph.runtime.any():
            raise UsageError(
                f"{graph.name}: no op has a runtime, so that on {self.devices} devices there is no time to trade; "
                "on one device every run counts alike"
            )
        if self.machine is None and self.devices == 1:
            return Problem(graph, recompute=True)
        return super().problem(graph)


def machine_of(machine: Any, op_times: Any = None) -> Machine | None:
    """Return a machine, read where it is a file, with the op times of a file if that is given."""
    if machine is None:
        if op_times is not None:
            raise UsageError(f"{spelled('op_times')} is by kinds of devices; give {spelled('machine')}, too")
        return None
    from ..files.machine_yaml import read_machine, read_op_times
    from ..problem.machine import Machine

    times = None if op_times is None else os.fspath(op_times)
    if isinstance(machine, Machine):
        return machine if times is None else replace(machine, op_times=read_op_times(times))
    if not isinstance(machine, (str, os.PathLike)):
        raise UsageError(f"a machine is a Machine or the path of its file, not {type(machine).__name__}")
    return read_machine(os.fspath(machine), times)
