"""From what a user gives, as texts with units or as numbers, to the settings of a problem and of a run."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from .errors import UsageError
from .search.registry import default_devices
from .units import parse_bandwidth, parse_bytes, parse_microseconds, parse_percent


def problem_settings(
    task: str,
    devices: int | None,
    memory_limit: str | int | None,
    bandwidth: str | float | None,
    latency: str | float,
    methods: Sequence[str],
) -> dict[str, Any]:
    """Return the keyword arguments of `Settings` that make the problem.

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


def whole_number(given: Any, what: str, least: int | None = None) -> int:
    """Return a whole number as an int.

    Raises
    ------
    UsageError
        If it is something else, or below the least.
    """
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise UsageError(f"{what} must be a whole number, not {given!r}")
    if least is not None and given < least:
        raise UsageError(f"{what} must be at least {least}, not {given}")
    return int(given)
