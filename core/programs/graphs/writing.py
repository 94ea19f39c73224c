"""Graph files, written in the format that a name asks for: CostGraphDef, DOT or networkx' node-link JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...base.errors import FormatError
from ...files.atomic import check_writable, write_atomically
from ...files.costgraph import SUFFIXES, encoding_of, write_graph
from ...graph.graph import CostGraph
from .attributed_graph import format_node_link
from .dot import format_dot

_FORMATS: dict[str, Callable[[CostGraph], str]] = {".dot": format_dot, ".gv": format_dot, ".json": format_node_link}


def check_target(path: str) -> None:
    """Check that a graph can be written to a file of this name, before it is made; `-` is standard output."""
    if Path(path).suffix not in _FORMATS:
        try:
            encoding_of(path)
        except FormatError as error:
            raise FormatError(f"{path}: the name must end in {', '.join((*SUFFIXES, *_FORMATS))}") from error
    if path != "-":
        check_writable(path)


def write_graph_file(graph: CostGraph, path: str) -> None:
    """Write a graph as the name of a file asks: `.dot` or `.gv`, `.json`, or a suffix of CostGraphDef; `-` is text."""
    if write := _FORMATS.get(Path(path).suffix):
        write_atomically(path, write(graph))
    else:
        write_graph(graph, path)
