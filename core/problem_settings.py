"""From what a user gives, as texts with units or as numbers, to the settings of a problem and of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import UsageError
from .graph import CostGraph
from .problem import Problem, Task
from .search.registry import default_devices
from .units import parse_bandwidth, parse_bytes, parse_microseconds, parse_percent, whole_number


@dataclass(frozen=True)
class ProblemSettings:
    """What the problems of several graphs share.

    Parameters
    ----------
    task, devices, memory_limit, bandwidth, latency
        As in `Problem`: bytes, bytes per second, microseconds.
    memory_limit_share
        The limit as a share of each graph's peak in input order on one device, instead of one for all.

    Raises
    ------
    UsageError
        If a share is not positive, or there are two limits.
    """

    task: Task = "memory"
    devices: int = 1
    memory_limit: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    memory_limit_share: float | None = None

    def __post_init__(self) -> None:
        if self.memory_limit_share is not None and not self.memory_limit_share > 0:
            raise UsageError(f"memory limit share must be above 0, not {self.memory_limit_share}")
        if self.memory_limit is not None and self.memory_limit_share is not None:
            raise UsageError("the memory limit is given twice, in bytes and as a share")

    def problem(self, graph: CostGraph) -> Problem:
        """Return the problem that a graph poses."""
        limit = self.memory_limit
        if self.memory_limit_share is not None:
            from .costs.simulator import input_peak  # loads the kernels

            limit = max(1, int(round(self.memory_limit_share * input_peak(graph), 6)))
        return Problem(graph, self.task, self.devices, limit, self.bandwidth, self.latency)


def problem_settings(
    task: str,
    devices: int | None,
    memory_limit: str | int | None,
    bandwidth: str | float | None,
    latency: str | float,
    methods: Sequence[str],
) -> dict[str, Any]:
    """Return the keyword arguments of `ProblemSettings`.

    One device is the default for memory, two for the makespan and for methods that place by nature.

    Raises
    ------
    UsageError
        If a text is not understood, or a value is of the wrong type.
    """
    if devices is None:
        devices = default_devices(task, methods)
    limit = share = None
    if isinstance(memory_limit, str) and memory_limit.strip().endswith("%"):
        share = parse_percent(memory_limit, "memory limit")
    elif memory_limit is not None:
        limit = parse_bytes(memory_limit, "memory limit")
    return {
        "task": task,
        "devices": whole_number(devices, "devices"),
        "memory_limit": limit,
        "memory_limit_share": share,
        "bandwidth": None if bandwidth is None else parse_bandwidth(bandwidth),
        "latency": parse_microseconds(latency),
    }
