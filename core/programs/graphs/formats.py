r"""Files of nodes and edges: DOT, node-link JSON, CSV; what the attributes mean is said in `attributed_graph`.

Of DOT the whole grammar is read (https://graphviz.org/doc/info/lang.html). Record ports (`a:out -> b:in:n`) place a
line in a drawing and are dropped. In a quoted name `\\` is one backslash, which Graphviz keeps as two.

The first line of a CSV file may name the columns: `source` and `target` (or `from` and `to`, `src` and `dst`), then any
of `size`, `port`, `alias` and `control`. Without names, the first two columns are these, and a third one is the size.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ...base.errors import FormatError
from ...files.atomic import check_writable, write_atomically
from ...files.costgraph import SUFFIXES, encoding_of, write_graph
from ...files.reading import read_json, read_text
from ...graph.graph import CostGraph
from ..options import ImportOptions
from .attributed_graph import AttributedGraph, Attributes, Edge, cost_graph, written_graph

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|^\#[^\n]*)
      | (?P<edge>->|--)
      | (?P<sign>[{}\[\];,=:+])
      | (?P<number>-?(?:\.\d+|\d+(?:\.\d*)?))(?![A-Za-z_])
      | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z_0-9\u0080-\U0010ffff]*)
      | "(?P<quoted>(?:[^"\\]|\\.)*)"
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_ESCAPE = re.compile(r"\\(\r?\n|[\"\\])")
_KEYWORDS = frozenset(("strict", "graph", "digraph", "node", "edge", "subgraph"))
_MOST_EDGES = 1_000_000  # edges in a file that has fewer letters than that
_Scope = dict[str, dict[str, Any]]  # the default attributes of each `node` and `edge` inside a graph or subgraph
_ENDS = {"from": "source", "src": "source", "to": "target", "dst": "target"}
_UNNAMED = ["source", "target", "size"]


def read_dot(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a DOT file."""
    try:
        written = _Parser(read_text(model), model).graph()
    except RecursionError as error:
        raise FormatError(f"{model}: not a graph: its subgraphs are nested too deeply") from error
    return cost_graph(written, model, options.default_size, note, reverse=options.reverse)


def read_node_link(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a node-link JSON file."""
    written = _parse_node_link(read_json(model), model)
    return cost_graph(written, model, options.default_size, note, reverse=options.reverse)


def read_edges(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a CSV file of edges."""
    written = _parse_edges(read_text(model), model)
    return cost_graph(written, model, options.default_size, note, reverse=options.reverse)


def format_dot(graph: CostGraph) -> str:
    """Return the graph as DOT with each op's costs in its attributes; `read_dot` makes it again."""
    written = written_graph(graph)
    lines = [f"  {_quoted(name)} {_attribute_list(attributes)}" for name, attributes in written.nodes.items()]
    lines += [f"  {_quoted(e.source)} -> {_quoted(e.target)} {_attribute_list(e.attributes)}" for e in written.edges]
    return "\n".join((f"digraph {_quoted(graph.name)} {{", *lines, "}", ""))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _attribute_list(attributes: Attributes) -> str:
    def written(value: Any) -> str:
        if isinstance(value, str):
            return _quoted(value)
        items = value if isinstance(value, list) else [value]
        return _quoted(",".join(str(item).lower() if isinstance(item, bool) else repr(item) for item in items))

    return f"[{', '.join(f'{name}={written(value)}' for name, value in attributes.items())}];"


def format_node_link(graph: CostGraph) -> str:
    """Return the graph as JSON of a networkx `MultiDiGraph`, a node or edge a line; `read_node_link` makes it again."""
    written = written_graph(graph)
    head = json.dumps({"directed": True, "multigraph": True, "graph": {"name": graph.name}})[:-1]
    nodes = (json.dumps({"id": name, **attributes}) for name, attributes in written.nodes.items())
    edges = (
        json.dumps({"source": edge.source, "target": edge.target, "key": place, **edge.attributes})
        for place, edge in enumerate(written.edges)
    )
    lines = (",\n  ".join(items) for items in (nodes, edges))
    return f'{head},\n "nodes": [\n  {next(lines)}\n ],\n "edges": [\n  {next(lines)}\n ]}}\n'


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


def _parse_node_link(document: Any, where: str) -> AttributedGraph:
    """Return the nodes and edges of a node-link document; `where` is what errors call it."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise FormatError(f"{where}: not node-link JSON: it has no list of nodes")
    key = "edges" if "edges" in document else "links"
    if not isinstance(document.get(key), list):
        raise FormatError(f"{where}: not node-link JSON: it has no list of edges (or links)")
    if document.get("directed") is False:
        raise FormatError(f"{where}: the graph is undirected; write a networkx DiGraph, from producer to consumer")
    nodes: dict[str, Attributes] = {}
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
    return AttributedGraph(nodes, edges)


def _name(identifier: Any) -> str:
    return identifier if isinstance(identifier, str) else json.dumps(identifier)


def _parse_edges(text: str, where: str) -> AttributedGraph:
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
    edges, nodes = [], dict[str, Attributes]()
    for at, row in rows:
        attributes: dict[str, Any] = {name: cell for name, cell in zip(names, row, strict=False) if cell}
        source, target = (attributes.pop(end, "") for end in ("source", "target"))
        if len(row) > len(names) or not (source and target):
            raise FormatError(f"{where}: line {at} is no edge; write source, target and perhaps a size in bytes")
        nodes.update({source: {}, target: {}})
        edges.append(Edge(source, target, attributes))
    if not edges:
        raise FormatError(f"{where}: the graph is empty")
    return AttributedGraph(nodes, edges)


class _Token(NamedTuple):
    """`kind` is `sign`, `edge`, `keyword`, `id` or `end`; keywords are in lower case."""

    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent, one method per rule of the grammar of DOT."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._tokens = self._scan()
        self._token = next(self._tokens)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: list[Edge] = []

    def graph(self) -> AttributedGraph:
        """Graph : [strict] digraph [ID] '{' stmt_list '}'."""
        is_strict = self._take("strict")
        if self._token.text == "graph":
            raise FormatError(f"{self.where}: the graph is undirected; write digraph, and -> from producer to consumer")
        if not self._take("digraph"):
            self._refuse("a DOT file begins with digraph")
        self._subgraph({"node": {}, "edge": {}})
        if self._token.kind != "end":
            self._refuse("a file holds one graph, which ended before")
        if not self.nodes:
            raise FormatError(f"{self.where}: the graph is empty")
        if is_strict:
            merged: dict[tuple[str, str], dict[str, Any]] = {}
            for edge in self.edges:
                merged.setdefault((edge.source, edge.target), {}).update(edge.attributes)
            self.edges = [Edge(*ends, attributes) for ends, attributes in merged.items()]
        return AttributedGraph(dict(self.nodes), self.edges)

    def _subgraph(self, scope: _Scope) -> list[str]:
        """Read `[ID] { stmt_list }`, and return the nodes that it names."""
        if self._token.kind == "id":
            self._identifier()
        if not self._take("{"):
            self._refuse("{ is missing")
        named: dict[str, None] = {}
        while not self._take("}"):
            if not self._take(";"):
                named.update(dict.fromkeys(self._statement(scope)))
        return list(named)

    def _statement(self, scope: _Scope) -> list[str]:
        kind, text, _ = self._token
        if kind == "keyword" and text in ("graph", "node", "edge"):
            self._advance()
            scope.get(text, {}).update(self._attributes())
            return []
        if kind == "id":
            text = self._identifier()
            if self._take("="):
                self._identifier()
                return []
            ends = self._node_id(text, scope)
            if self._token.kind != "edge":
                self.nodes[text].update(self._attributes())
        else:
            ends = self._subgraph_in(scope)
        return self._chain(ends, scope) if self._token.kind == "edge" else ends

    def _chain(self, ends: list[str], scope: _Scope) -> list[str]:
        """Read the rest of `a -> b -> {c d} [...]`, and return all nodes that it names."""
        groups = [ends]
        while self._token.kind == "edge":
            if self._token.text == "--":
                self._refuse("an edge of a digraph is ->, not --")
            self._advance()
            is_node = self._token.kind == "id"
            groups.append(self._node_id(self._identifier(), scope) if is_node else self._subgraph_in(scope))
        attributes = {**scope["edge"], **self._attributes()}
        for sources, targets in pairwise(groups):
            if len(self.edges) + len(sources) * len(targets) > max(_MOST_EDGES, len(self.text)):
                self._refuse(f"more than {_MOST_EDGES:,} edges between groups; write each by itself")
            self.edges.extend(Edge(source, target, attributes) for source in sources for target in targets)
        return [name for group in groups for name in group]

    def _node_id(self, name: str, scope: _Scope) -> list[str]:
        self.nodes.setdefault(name, dict(scope["node"]))
        while self._take(":"):
            self._identifier()
        return [name]

    def _subgraph_in(self, scope: _Scope) -> list[str]:
        """Read a subgraph, whose changes of the defaults do not leave it."""
        self._take("subgraph")
        return self._subgraph({kind: dict(defaults) for kind, defaults in scope.items()})

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._take("["):
            while not self._take("]"):
                name = self._identifier()
                found[name] = self._identifier() if self._take("=") else "true"
                while self._take(",") or self._take(";"):
                    pass
        return found

    def _identifier(self) -> str:
        """Read a name or value, of several strings if '+' joins them."""
        kind, text, _ = self._token
        if kind != "id":
            self._refuse("a name is missing")
        self._advance()
        return text + self._identifier() if self._take("+") else text

    def _take(self, text: str) -> bool:
        """Go past a sign or keyword if it is next."""
        is_next = self._token.kind in ("sign", "keyword") and self._token.text == text
        if is_next:
            self._advance()
        return is_next

    def _advance(self) -> None:
        if self._token.kind == "end":
            self._refuse("")
        self._token = next(self._tokens)

    def _refuse(self, reason: str) -> NoReturn:
        line = self.text.count("\n", 0, self._token.position) + 1
        if self._token.kind == "end":
            raise FormatError(f"{self.where}: the file ends inside the graph, at line {line}; it is truncated")
        shown = self._token.text.split("\n")[0][:40]
        raise FormatError(f"{self.where}: line {line}: '{shown}' is not DOT here: {reason}")

    def _scan(self) -> Iterator[_Token]:
        """Yield the tokens; the last is `end`, again and again."""
        position = 0
        while position < len(self.text):
            if self.text[position] == "<":
                end = self._html_end(position)
                yield _Token("id", self.text[position + 1 : end - 1], position)
                position = end
                continue
            match = _TOKEN.match(self.text, position)
            if match is None:
                rest = self.text[position:]
                self._token = _Token("end" if rest.startswith(('"', "/*")) else "other", rest, position)
                is_number = re.match(r"-?\.?\d", rest)
                what = "a value that begins like a number but is none needs quotes"
                self._refuse(what if is_number else "it is no token of the language")
            kind = str(match.lastgroup)
            text = match[kind]
            if kind == "quoted":
                yield _Token("id", _ESCAPE.sub(lambda found: found[1].strip("\r\n"), text), position)
            elif kind == "word" and text.lower() in _KEYWORDS:
                yield _Token("keyword", text.lower(), position)
            elif kind != "space":
                yield _Token("id" if kind in ("word", "number") else kind, text, position)
            position = match.end()
        while True:
            yield _Token("end", "", position)

    def _html_end(self, position: int) -> int:
        depth = 0
        for match in re.compile("[<>]").finditer(self.text, position):
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.end()
        self._token = _Token("end", "", position)
        return self._refuse("")
