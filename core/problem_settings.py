"""From what a user gives, as texts with units or as numbers, to the settings of a problem and of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .errors import UsageError
from .graph import CostGraph
from .names import task_of
from .problem import Problem, Task
from .search.registry import default_devices
from .units import parse_bandwidth, parse_bytes, parse_microseconds, parse_percent, whole_number


class Recompute(NamedTuple):
    """What a user says of recomputation: whether ops may run again, and what share of the time that may add."""

    is_on: bool = False
    max_overhead: str | float | None = None


NO_RECOMPUTE = Recompute()


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
            from .costs.simulator import input_peak  # loads the kernels

            limit = max(1, int(round(self.memory_limit_share * input_peak(graph), 6)))
        problem = Problem(graph, self.task, self.devices, limit, self.bandwidth, self.latency, recompute=self.recompute)
        if self.max_overhead is None:
            return problem
        return replace(problem, runtime_limit=(1 + self.max_overhead) * float(problem.op_times.sum()))


def problem_settings(
    task: str,
    devices: int | None,
    memory_limit: str | int | None,
    bandwidth: str | float | None,
    latency: str | float,
    methods: Sequence[str],
    recompute: Recompute = NO_RECOMPUTE,
) -> dict[str, Any]:
    """Return the keyword arguments of `ProblemSettings`.

    One device is the default for memory, two for the makespan and for methods that place by nature. With recomputation
    it is one device, and a memory limit makes the added time the task.

    Raises
    ------
    UsageError
        If a text is not understood, or a value is of the wrong type.
    """
    task = task_of(task)
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
    }


def _overhead(given: str | float) -> float:
    """Return a share, of `"10%"` or a number."""
    if isinstance(given, str):
        return parse_percent(given, "max overhead")
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise UsageError(f"max overhead is a share as '10%' or 0.1, not {given!r}")
    return float(given)
