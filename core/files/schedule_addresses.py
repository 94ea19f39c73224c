"""Addresses in a schedule file: `alignment` and `arenas` at its head, `offsets` and `workspace_offset` in its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..addresses.alignment import LARGEST_ALIGNMENT
from ..base.arrays import INT64_MAX, frozen
from ..base.errors import FormatError
from ..graph.graph import CostGraph
from ..problem.addresses import Addresses, Arena
from ..problem.schedule import Schedule


def address_fields(addresses: Addresses | None) -> dict[str, Any]:
    """Return the fields at the head of a file; none without addresses."""
    if addresses is None:
        return {}
    arenas = [
        {"bytes": arena.size, "bound": arena.bound, "status": "optimal" if arena.is_optimal else "feasible"}
        for arena in addresses.arenas
    ]
    return {"alignment": addresses.alignment, "arenas": arenas}


def add_offsets(steps: list[dict[str, Any]], graph: CostGraph, schedule: Schedule, addresses: Addresses) -> None:
    """Add to each step the offsets of what it makes."""
    columns = zip(steps, schedule.items.tolist(), addresses.made, addresses.workspace.tolist(), strict=True)
    for step, item, made, workspace in columns:
        tensors = _made_by(graph, item)
        if tensors:
            names = map(graph.tensor_name, tensors)
            step["offsets"] = dict(zip(names, made, strict=True))
        if item >= 0 and graph.workspace[item]:
            step["workspace_offset"] = workspace


def read_addresses(
    document: dict[str, Any], graph: CostGraph, schedule: Schedule, path: str | Path
) -> Addresses | None:
    """Return the addresses of a file; None if it has none."""
    if "alignment" not in document and "arenas" not in document:
        return None
    alignment = _whole(document.get("alignment"), f"{path}: the field 'alignment'", 1, LARGEST_ALIGNMENT)
    arenas = document.get("arenas")
    if not isinstance(arenas, list) or not all(isinstance(arena, dict) for arena in arenas):
        raise FormatError(f"{path}: the field 'arenas' must have an object per device, for there is an alignment")
    made, workspace = [], []
    for number, (step, item) in enumerate(zip(document["steps"], schedule.items.tolist(), strict=True)):
        where = f"{path}: step {number}"
        tensors = _made_by(graph, item)
        offsets = step.get("offsets", {})
        if not isinstance(offsets, dict) or set(offsets) != set(map(graph.tensor_name, tensors)):
            raise FormatError(f"{where} must have offsets of just what it makes: {_named(graph, tensors)}")
        made.append(tuple(_whole(offsets[graph.tensor_name(tensor)], f"{where}: an offset") for tensor in tensors))
        has_workspace = item >= 0 and graph.workspace[item] > 0
        workspace.append(
            _whole(step.get("workspace_offset"), f"{where}: the field 'workspace_offset'") if has_workspace else 0
        )
    sizes = tuple(_arena(arena, f"{path}: the arena of device {device}") for device, arena in enumerate(arenas))
    return Addresses(alignment, sizes, tuple(made), frozen(workspace, "int64"))


def _made_by(graph: CostGraph, item: int) -> list[int]:
    """Return the data tensors that a step makes, which is a copy if it is a transfer."""
    tensors = graph.outputs(item) if item >= 0 else [~item]
    return [tensor for tensor in tensors if not graph.is_control[tensor]]


def _arena(arena: dict[str, Any], where: str) -> Arena:
    size, bound = (_whole(arena.get(name), f"{where}: its '{name}'") for name in ("bytes", "bound"))
    status = arena.get("status", "feasible")
    if status not in ("optimal", "feasible") or (status == "optimal" and size != bound):
        raise FormatError(
            f"{where}: its status is optimal if its bytes equal the bound, else feasible, not {str(status)[:80]!r} "
            f"with {size} bytes and a bound of {bound}"
        )
    return Arena(size, bound)


def _whole(value: Any, what: str, low: int = 0, high: int = INT64_MAX) -> int:
    if type(value) is not int or not low <= value <= high:
        found = "missing" if value is None else f"not {str(value)[:80]}"
        raise FormatError(f"{what} must be a whole number from {low} to {high}, and is {found}")
    return value


def _named(graph: CostGraph, tensors: list[int]) -> str:
    return ", ".join(f"'{graph.tensor_name(tensor)}'" for tensor in tensors[:3]) + ("..." if tensors[3:] else "")
