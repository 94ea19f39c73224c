"""The fields of a schedule file, checked one by one, and the problem that they pose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.arrays import INT64_MAX
from ..base.errors import FormatError, UsageError
from ..graph.graph import CostGraph
from ..problem.machine import Machine
from ..problem.problem import Problem
from .machine_yaml import machine_of
from .reading import shown

SHOWN_LETTERS = 80
_NEEDED = object()


def field_of(document: dict[str, Any], name: str, kind: Any, path: str | Path, default: Any = _NEEDED) -> Any:
    """Return a field of a document or of a step, checked for its type; the default where it is missing."""
    if name not in document:
        if default is _NEEDED:
            raise FormatError(f"{path}: not a schedule JSON: the field '{name}' is missing")
        return default
    value = document[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FormatError(f"{path}: the field '{name}' has the wrong type: {shown(value)}")
    if isinstance(value, (int, float)) and not abs(value) <= INT64_MAX:
        raise FormatError(f"{path}: the field '{name}' is out of range: {shown(value)}")
    return value


def flag_of(document: dict[str, Any], name: str, path: str | Path) -> bool:
    """Return a field that is true or false; false where it is missing."""
    value = document.get(name, False)
    if not isinstance(value, bool):
        raise FormatError(f"{path}: the field '{name}' has the wrong type: {shown(value)}")
    return value


def read_problem(
    document: dict[str, Any], steps: list[Any], graph: CostGraph, path: str | Path, machine: Machine | None
) -> Problem:
    """Return the problem that a document was made for, on a machine in place of what it says of devices, if given."""
    named = [step.get(key) for step in steps if isinstance(step, dict) for key in ("device", "from", "to")]
    least = 1 + max((name for name in named if type(name) is int), default=0)
    if machine is None and document.get("machine") is not None:
        machine = machine_of(document["machine"], lambda place: f"{path}: the field 'machine'")
    devices = field_of(document, "devices", int, path, max(1, least))
    bandwidth = field_of(document, "bandwidth", (int, float, type(None)), path, None)
    latency = field_of(document, "latency_us", (int, float), path, 0.0)
    if machine is not None:
        devices, bandwidth, latency = len(machine.devices), None, 0.0
    try:
        return Problem(
            graph,
            field_of(document, "task", str, path, "memory"),
            devices,
            field_of(document, "memory_limit", (int, type(None)), path, None),
            bandwidth,
            latency,
            flag_of(document, "recompute", path),
            field_of(document, "runtime_limit_us", (int, float, type(None)), path, None),
            machine,
            flag_of(document, "replicate", path),
        )
    except UsageError as error:
        said = str(error)
        raise FormatError(said if said.startswith(f"{path}:") else f"{path}: {said}") from error
