"""Lists of edges in CSV: an edge a line, with what `attributed_graph` reads of edges in named columns.

The first line may name the columns: `source` and `target` (or `from` and `to`, `src` and `dst`), then any of `size`,
`port`, `alias` and `control`. Without names, the first two columns are these, and a third one is the size. A comma, a
semicolon or a tab is between columns, whichever the first line has.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

from ...base.errors import FormatError
from ...files.reading import read_text
from ...graph.graph import CostGraph
from ..options import ImportOptions
from .attributed_graph import AttributedGraph, Edge, cost_graph

_ENDS = {"from": "source", "src": "source", "to": "target", "dst": "target"}
_UNNAMED = ["source", "target", "size"]


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a CSV file of edges."""
    written = parse_edges(read_text(model), model)
    return cost_graph(written, model, options.default_size, note, reverse=options.reverse)


def parse_edges(text: str, where: str) -> AttributedGraph:
    """Return the edges of a CSV text, and the nodes in the order in which they are first named."""
    lines = text.splitlines()
    separator = max("\t;,", key=lines[0].count)
    rows = [(at, [cell.strip() for cell in row]) for at, row in enumerate(csv.reader(lines, delimiter=separator), 1)]
    rows = [(at, row) for at, row in rows if any(row)]
    names = [_ENDS.get(cell.lower(), cell.lower()) for cell in rows[0][1]]
    if {"source", "target"} <= set(names):
        del rows[0]
    else:
        names = _UNNAMED[: len(names)]
    edges, nodes = [], dict[str, dict[str, Any]]()
    for at, row in rows:
        attributes: dict[str, Any] = {name: cell for name, cell in zip(names, row, strict=False) if cell}
        source, target = (attributes.pop(end, "") for end in ("source", "target"))
        if len(row) > len(names) or not (source and target):
            raise FormatError(f"{where}: line {at} is no edge; write source, target and perhaps a size in bytes")
        nodes.update({source: {}, target: {}})
        edges.append(Edge(source, target, attributes))
    if not edges:
        raise FormatError(f"{where}: the graph is empty")
    return AttributedGraph(dict(nodes), edges)
