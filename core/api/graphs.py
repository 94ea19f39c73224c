"""Graphs as users give them: built, or in files and folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, Union

from ..base.errors import UsageError
from ..files.costgraph import find_graphs, graph_name, read_graph
from ..graph.graph import CostGraph
from ..programs.importers import is_model, read_any

GraphLike: TypeAlias = Union[CostGraph, str, "os.PathLike[str]"]
Note: TypeAlias = Callable[[str], None]


def graph_of(given: GraphLike, note: Note = lambda text: None) -> CostGraph:
    """Return a graph as it is, or read from its file, or imported where a model is named."""
    if isinstance(given, CostGraph):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read_any(os.fspath(given), note)
    raise UsageError(
        f"a graph is a CostGraph or the path of a graph or model, not {_described(given)}; "
        "from_networkx and import_model make graphs of other things"
    )


def graphs_of(given: GraphLike | Iterable[GraphLike], note: Note = lambda text: None) -> list[CostGraph]:
    """Return graphs as they are, and those of files and folders.

    A file named twice is read once. What is read is named by its file, or by the whole path where files share a name.
    """
    if isinstance(given, (CostGraph, str, os.PathLike)):
        given = [given]
    elif not isinstance(given, Iterable):
        raise UsageError(f"graphs are given as a list of graphs and paths, not {_described(given)}")
    found: list[CostGraph | Path] = []
    read: dict[Path, Path] = {}
    for item in given:
        if not isinstance(item, (str, os.PathLike)):
            found.append(graph_of(item))
            continue
        if is_model(os.fspath(item)):
            found.append(read_any(os.fspath(item), note))
            continue
        for path in find_graphs([os.fspath(item)]):
            if path.resolve() in read:
                note(f"{path} is named twice and taken once")
            else:
                read[path.resolve()] = path
                found.append(path)
    shared = Counter(map(graph_name, read.values()))
    return [item if isinstance(item, CostGraph) else _read(item, shared, note) for item in found]


def _read(path: Path, shared: Counter[str], note: Note) -> CostGraph:
    name = graph_name(path)
    return replace(read_graph(path, note), name=name if shared[name] == 1 else str(path))


def _described(given: object) -> str:
    text = repr(given)
    return f"{text if len(text) <= 40 else 'something'} ({type(given).__name__})"
