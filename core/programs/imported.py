"""How a graph was imported, kept with it, so that whoever runs its program need not say it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import FormatError, UsageError
from ..files.schedule_json import read_imported
from ..graph.graph import CostGraph
from .options import ImportOptions, size_text

PROGRAM_OPTIONS = {"training": "--training", "shapes": "--shape", "device": "--device"}
"""The options that say what program it is, and how they are typed."""

_TYPES = {"training": str, "shapes": dict, "device": str}


def with_imported(graph: CostGraph, model: str, options: ImportOptions) -> CostGraph:
    """Return a graph that says what model it is of, and which options are not the default."""
    imported: dict[str, Any] = {"model": model}
    for field in dataclasses.fields(ImportOptions):
        value = getattr(options, field.name)
        if value != getattr(ImportOptions(), field.name):
            imported[field.name] = dict(value) if isinstance(value, Mapping) else value
    return dataclasses.replace(graph, annotations=dataclasses.replace(graph.annotations, imported=imported))


def options_for(schedules: Sequence[str], given: Mapping[str, Any], note: Callable[[str], None]) -> ImportOptions:
    """Return the options with which the graph of schedule files was imported, unless others are given."""
    taken, said_by = dict(given), dict[str, str]()
    for path in schedules:
        stored = read_imported(path)
        if not stored:
            continue
        for name, flag in PROGRAM_OPTIONS.items():
            default = getattr(ImportOptions(), name)
            value = _checked(path, name, stored.get(name, default))
            if name in given:
                if value != given[name]:
                    said = f"with {flag} {_text(value)}" if value != default else f"without {flag}"
                    note(f"{path}: its graph was imported {said}; taken is {flag} {_text(given[name])}, as given")
            elif name in said_by and taken[name] != value:
                raise UsageError(
                    f"{said_by[name]} is of a graph imported with {flag} {_text(taken[name]) or 'none'}, {path} of one "
                    f"with {flag} {_text(value) or 'none'}; measure them apart, or give {flag}"
                )
            else:
                taken[name] = value
                said_by[name] = path
    return ImportOptions(**taken)


def _checked(path: str, name: str, value: Any) -> Any:
    is_right = isinstance(value, _TYPES[name])
    if name == "shapes" and is_right:
        value = {key: tuple(size) if isinstance(size, list) else size for key, size in value.items()}
        sizes = [size for given in value.values() for size in (given if isinstance(given, tuple) else [given])]
        is_right = all(type(size) is int and size > 0 for size in sizes)
    if not is_right:
        raise FormatError(f"{path}: the field 'imported' has '{name}' {value!r}, which is no value of {name}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={size_text(size)}" for name, size in value.items())
    return str(value)
