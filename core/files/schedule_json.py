"""The schedule JSON: what `solve --output` writes and whatever checks or draws a schedule reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...version import VERSION
from ..errors import FormatError, UsageError
from ..graph import INT64_MAX, CostGraph
from ..problem import Problem
from ..result import Result
from ..schedule import Schedule


def result_document(result: Result) -> dict[str, Any]:
    """Return the schedule JSON of a result as plain Python values (DESIGN 4)."""
    problem, graph = result.problem, result.problem.graph
    peaks = result.simulation.peak_per_device.tolist()
    bound = int(result.lower_bound) if problem.task == "memory" else result.lower_bound
    evaluations = round(result.evaluations, 3)
    return {
        "schedopt": VERSION,
        "graph": graph.name,
        "task": problem.task,
        "method": result.method,
        "status": result.status,
        "devices": problem.devices,
        "memory_limit": problem.memory_limit,
        "bandwidth": problem.bandwidth,
        "latency_us": problem.latency,
        "seed": result.seed,
        "repeatable": result.is_repeatable,
        "peak_memory": max(peaks),
        "peak_memory_per_device": peaks,
        "runtime_us": result.simulation.runtime,
        "lower_bound": bound,
        "evaluations": int(evaluations) if evaluations.is_integer() else evaluations,
        "seconds": round(result.seconds, 3),
        "found_by": result.found_by,
        "steps": _steps(graph, result.schedule),
    }


def _steps(graph: CostGraph, schedule: Schedule) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    columns = zip(schedule.items.tolist(), schedule.sources.tolist(), schedule.targets.tolist(), strict=True)
    for item, source, target in columns:
        if item >= 0:
            steps.append({"op": graph.op_names[item], "device": target})
        else:
            steps.append({"tensor": graph.tensor_name(~item), "from": source, "to": target})
    return steps


def format_document(document: dict[str, Any]) -> str:
    """Write a schedule JSON with one step a line."""
    head = {key: value for key, value in document.items() if key != "steps"}
    lines = json.dumps(head, indent=1)[:-2]
    steps = ",\n  ".join(json.dumps(step) for step in document["steps"])
    return f'{lines},\n "steps": [\n  {steps}\n ]\n}}\n'


@dataclass(frozen=True)
class LoadedSchedule:
    """A schedule read from a file, with the problem and totals that the file claims.

    Parameters
    ----------
    problem, schedule
        What was solved, on the graph given by the caller, and the steps.
    status
        As written; `infeasible` means that the memory limit is exceeded knowingly.
    peak_per_device, runtime
        Claimed totals: bytes and microseconds.
    """

    problem: Problem
    schedule: Schedule
    status: str
    peak_per_device: list[int]
    runtime: float


def read_schedule(path: str | Path, graph: CostGraph) -> LoadedSchedule:
    """Read a schedule JSON for a graph; `verify` judges the schedule itself.

    Raises
    ------
    FormatError
        If the file cannot be read, is not a schedule JSON, or names ops or tensors the graph does not have.
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not a JSON file, or truncated: {error}") from error
    if not isinstance(document, dict):
        raise FormatError(f"{path}: not a schedule JSON, which is an object")
    try:
        problem = Problem(
            graph,
            _field(document, "task", str, path),  # type: ignore[arg-type]
            _field(document, "devices", int, path),
            _field(document, "memory_limit", (int, type(None)), path),
            _field(document, "bandwidth", (int, float, type(None)), path),
            _field(document, "latency_us", (int, float), path),
        )
    except UsageError as error:
        raise FormatError(f"{path}: {error}") from error
    peaks = _field(document, "peak_memory_per_device", list, path)
    if not all(isinstance(peak, int) for peak in peaks):
        raise FormatError(f"{path}: peak_memory_per_device must hold whole numbers")
    return LoadedSchedule(
        problem,
        _read_steps(_field(document, "steps", list, path), graph, path),
        _field(document, "status", str, path),
        peaks,
        _field(document, "runtime_us", (int, float), path),
    )


def _field(document: dict[str, Any], name: str, kind: Any, path: str | Path) -> Any:
    if name not in document:
        raise FormatError(f"{path}: not a schedule JSON: the field '{name}' is missing")
    value = document[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FormatError(f"{path}: the field '{name}' has the wrong type: {value!r}")
    if isinstance(value, (int, float)) and not abs(value) <= INT64_MAX:
        raise FormatError(f"{path}: the field '{name}' is out of range: {value!r}")
    return value


def _read_steps(steps: list[Any], graph: CostGraph, path: str | Path) -> Schedule:
    ops = {name: op for op, name in enumerate(graph.op_names)}
    tensors = {graph.tensor_name(tensor): tensor for tensor in range(graph.num_tensors)}
    items, sources, targets = [], [], []
    for number, step in enumerate(steps):
        match step:
            case {"op": str(name), "device": int(device)}:
                known, source, target = ops, device, device
            case {"tensor": str(name), "from": int(source), "to": int(target)}:
                known = tensors
            case _:
                raise FormatError(
                    f"{path}: step {number} is neither an op with its device nor a tensor with from and to: {step!r}"
                )
        if name not in known:
            kind = "op" if known is ops else "tensor"
            raise FormatError(f"{path}: step {number} names the {kind} '{name}', which {graph.name} does not have")
        if not all(-1 <= device < 2**31 for device in (source, target)):
            raise FormatError(f"{path}: step {number} names a device out of range: {step!r}")
        items.append(known[name] if known is ops else ~known[name])
        sources.append(source)
        targets.append(target)
    return Schedule.from_steps(items, sources, targets)
