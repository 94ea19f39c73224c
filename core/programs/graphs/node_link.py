"""Graphs in networkx's node-link JSON (`nx.node_link_data`); what the attributes mean is said in `attributed_graph`.

Edges are under `edges` (networkx 3.4 and later) or `links` (before). An op is named by its node's `id`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...base.errors import FormatError
from ...files.reading import read_json
from ...graph.graph import CostGraph
from ..options import ImportOptions
from .attributed_graph import AttributedGraph, Edge, cost_graph, written_graph


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a node-link JSON file; see `attributed_graph` for the attributes."""
    return cost_graph(parse_node_link(read_json(model), model), model, options.default_size, note)


def parse_node_link(document: Any, where: str) -> AttributedGraph:
    """Return the nodes and edges of a node-link document; `where` is what errors call it."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise FormatError(f"{where}: not node-link JSON: it has no list of nodes")
    key = "edges" if "edges" in document else "links"
    if not isinstance(document.get(key), list):
        raise FormatError(f"{where}: not node-link JSON: it has no list of edges (or links)")
    if document.get("directed") is False:
        raise FormatError(f"{where}: the graph is undirected; write a networkx DiGraph, from producer to consumer")
    nodes: dict[str, dict[str, Any]] = {}
    for place, node in enumerate(document["nodes"]):
        if not isinstance(node, dict) or "id" not in node:
            raise FormatError(f"{where}: node {place} has no id")
        name = _name(node["id"])
        if name in nodes:
            raise FormatError(f"{where}: two nodes have the id '{name}'")
        nodes[name] = node
    if not nodes:
        raise FormatError(f"{where}: the graph is empty")
    edges = []
    for place, edge in enumerate(document[key]):
        if not isinstance(edge, dict) or not {"source", "target"} <= edge.keys():
            raise FormatError(f"{where}: entry {place} of {key} has no source and target")
        ends = (_name(edge["source"]), _name(edge["target"]))
        for end in ends:
            if end not in nodes:
                raise FormatError(f"{where}: entry {place} of {key} names node '{end}', which is not in the graph")
        edges.append(Edge(*ends, {name: value for name, value in edge.items() if name not in ("source", "target")}))
    return AttributedGraph(dict(nodes), edges)


def _name(identifier: Any) -> str:
    return identifier if isinstance(identifier, str) else json.dumps(identifier)


def format_node_link(graph: CostGraph) -> str:
    """Return the graph as node-link JSON of a networkx `MultiDiGraph`, a node or edge a line; `read` makes it again."""
    written = written_graph(graph)
    head = json.dumps({"directed": True, "multigraph": True, "graph": {"name": graph.name}})[:-1]
    nodes = [json.dumps({"id": name, **attributes}) for name, attributes in written.nodes.items()]
    edges = [
        json.dumps({"source": edge.source, "target": edge.target, "key": place, **edge.attributes})
        for place, edge in enumerate(written.edges)
    ]
    lines = (",\n  ".join(items) for items in (nodes, edges))
    return f'{head},\n "nodes": [\n  {next(lines)}\n ],\n "edges": [\n  {next(lines)}\n ]}}\n'
