"""Remarks in a CostGraphDef, for which it has no field: fractions of microseconds, and annotations.

A file holds them as JSON in the dimension of an aggregated cost of nothing; docs/concepts/formats.md lists the members.
Remarks are no costs: a file whose remarks are damaged, or which was edited so that they may not be true any more, is
read without them, and a note says so. Where it said that some ops may not run twice, none may then.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.arrays import FloatArray, frozen
from ..base.errors import GraphError, UsageError
from ..graph.annotations import NO_ANNOTATIONS, Annotations, Resident
from ..graph.graph import CostGraph

REMARKS = "schedopt/graph "
"""The beginning of the `dimension` that holds them."""

_VERSION = 1
_PER_OP = ("modules", "lines", "phases")
_MEMBERS = frozenset(("version", "ops", "runtimes", *_PER_OP, "residents", "imported", "views", "once", "left_out"))


def remarks_of(graph: CostGraph) -> str:
    """Return the text for the runtimes and annotations of a graph that fields cannot hold; empty if there are none."""
    annotations = graph.annotations
    document: dict[str, Any] = {}
    if np.any(graph.runtime != np.rint(graph.runtime)):
        document["runtimes"] = [int(value) if value.is_integer() else value for value in graph.runtime.tolist()]
    for member in _PER_OP:
        if values := getattr(annotations, member):
            texts = {text: place for place, text in enumerate(dict.fromkeys(values))}
            document[member] = {"texts": list(texts), "ops": [texts[value] for value in values]}
    if annotations.residents:
        tensors = [
            [r.name, r.role, int(r.size), int(r.op), list(map(int, r.readers)), list(map(int, r.writers))]
            for r in annotations.residents
        ]
        document["residents"] = {"persistent": _persistent_digest(graph), "tensors": tensors}
    if annotations.left_out:
        document["left_out"] = list(annotations.left_out)
    if annotations.imported:
        document["imported"] = dict(annotations.imported)
    if views := sorted(annotations.view_offsets.items()):
        document["views"] = [[*map(int, view), int(offset)] for view, offset in views]
    if graph.runs_once.any():
        document["once"] = np.flatnonzero(graph.runs_once).tolist()
    if not document:
        return ""
    document = {"version": _VERSION, "ops": _names_digest(graph.op_names), **document}
    try:
        return REMARKS + json.dumps(document, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{graph.name}: the annotations hold what no file can: {error}") from error


def with_remarks(graph: CostGraph, texts: Sequence[str], where: str, note: Callable[[str], None]) -> CostGraph:
    """Return a graph read from the fields of its file with its remarks."""
    if not texts:
        return graph
    try:
        document = _document(texts, graph)
        runtimes = _runtimes(document, graph, where, note)
        annotations = _annotations(document, graph, where, note)
        places = _listed(document.get("once", []), None, int)
        if places and not 0 <= min(places) <= max(places) < graph.num_ops:
            raise ValueError(places)
        once = np.zeros(graph.num_ops, bool)
        once[places] = True
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, GraphError) as error:
        reason = str(error) if isinstance(error, _UntrueError) else "they are damaged"
        note(f"{where}: annotations (modules, lines, ...) and exact times were dropped from the file: {reason}")
        if not any('"once"' in text for text in texts):
            return graph
        note(f"{where}: the marks of ops that may not run twice are lost, so no op may run twice")
        return replace(graph, runs_once=frozen(np.ones(graph.num_ops), np.bool_))
    return replace(graph, runtime=runtimes, annotations=annotations, runs_once=frozen(once, np.bool_))


class _UntrueError(ValueError):
    """Remarks of another graph or version; the message says why they are dropped."""


def _document(texts: Sequence[str], graph: CostGraph) -> dict[str, Any]:
    if len(texts) > 1:
        raise _UntrueError(f"it has {len(texts)} entries of them")
    document = json.loads(texts[0].removeprefix(REMARKS), parse_constant=_refuse)
    if not isinstance(document, dict):
        raise TypeError(document)
    if document["version"] != _VERSION or not _MEMBERS.issuperset(document):
        raise _UntrueError("another version of schedopt wrote them")
    if document["ops"] != _names_digest(graph.op_names):
        raise _UntrueError("the ops are no longer those that they were written for")
    return document


def _runtimes(document: dict[str, Any], graph: CostGraph, where: str, note: Callable[[str], None]) -> FloatArray:
    """Return the exact runtimes, except for ops whose `compute_cost` differs from their rounded value."""
    if "runtimes" not in document:
        return graph.runtime
    written = _listed(document["runtimes"], graph.num_ops, int, float)
    exact = np.array(written, np.float64)
    if not (np.isfinite(exact).all() and exact.min() >= 0):
        raise ValueError(written)
    changed = np.flatnonzero(np.rint(exact) != graph.runtime)
    if len(changed):
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        note(
            f"{where}: compute_cost of op '{graph.op_names[changed[0]]}'{others} was changed by hand, and replaces "
            "the exact time in the annotations"
        )
        exact[changed] = graph.runtime[changed]
    return frozen(exact, np.float64)


def _annotations(document: dict[str, Any], graph: CostGraph, where: str, note: Callable[[str], None]) -> Annotations:
    per_op: dict[str, Any] = {}
    for name in (name for name in _PER_OP if name in document):
        texts, places = _listed(document[name]["texts"], None, str), _listed(document[name]["ops"], graph.num_ops, int)
        if not 0 <= min(places) <= max(places) < len(texts):
            raise ValueError(places)
        per_op[name] = tuple(map(texts.__getitem__, places))
    residents: tuple[Resident, ...] = ()
    if "residents" in document:
        written = document["residents"]
        residents = tuple(map(_resident, _listed(written["tensors"])))
        if written["persistent"] != _persistent_digest(graph):
            note(
                f"{where}: the names of the resident tensors were dropped from the file: "
                "persistent_memory_size was changed after they were written"
            )
            residents = ()
    imported = document.get("imported", {})
    if not isinstance(imported, dict):
        raise TypeError(imported)
    views = _view_offsets(document.get("views", []), graph)
    left_out = tuple(_listed(document.get("left_out", []), None, str))
    annotations = Annotations(**per_op, residents=residents, imported=imported, view_offsets=views, left_out=left_out)
    annotations.check(graph.persistent.tolist(), where)
    return annotations or NO_ANNOTATIONS


def _view_offsets(written: Any, graph: CostGraph) -> dict[tuple[int, int], int]:
    """Return how many bytes after its base each view starts; raise ValueError where one is no view any more."""
    offsets = {}
    for each in _listed(written):
        op, port, offset = _listed(each, 3, int)
        is_known = 0 <= op < graph.num_ops and 0 <= port < len(graph.outputs(op))
        if not is_known or graph.alias_of[graph.outputs(op)[port]] < 0:
            raise ValueError(each)
        offsets[op, port] = offset
    return offsets


def _resident(written: Any) -> Resident:
    name, role, size, op, readers, writers = _listed(written)
    _listed([name, role], None, str)
    _listed([size, op], None, int)
    if op < -1:
        raise ValueError(op)
    return Resident(name, role, size, op, *(tuple(_listed(each, None, int)) for each in (readers, writers)))


def _listed(value: Any, count: int | None = None, *kinds: type) -> list[Any]:
    """Return a list, of so many items and of these kinds, as it is; raise ValueError if it is something else."""
    is_right = isinstance(value, list) and (count is None or len(value) == count)
    if not is_right or (kinds and not set(map(type, value)).issubset(kinds)):
        raise ValueError(value)
    return list(value)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _names_digest(names: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]


def _persistent_digest(graph: CostGraph) -> str:
    return hashlib.sha256(graph.persistent.astype("<i8").tobytes()).hexdigest()[:16]
