r"""Graphs in Graphviz's DOT language; what the attributes mean is said in `attributed_graph`.

The whole grammar is read (https://graphviz.org/doc/info/lang.html): subgraphs, default attributes, chains of edges,
HTML strings, comments. Record ports (`a:out -> b:in:n`) place a line in a drawing and are dropped. In a quoted name
`\\` is one backslash, which Graphviz keeps as two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from ...base.errors import FormatError
from ...files.reading import read_text
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
_MOST_EDGES = 1_000_000
"""Edges in a file that has fewer letters than that."""


class _Token(NamedTuple):
    """`kind` is `sign`, `edge`, `keyword`, `id` or `end`; keywords are in lower case."""

    kind: str
    text: str
    position: int


class _Scope(NamedTuple):
    """The default attributes of nodes and edges inside a graph or subgraph."""

    node: dict[str, Any]
    edge: dict[str, Any]


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a DOT file; see `attributed_graph` for the attributes."""
    written = parse_dot(read_text(model), model)
    return cost_graph(written, model, options.default_size, note, reverse=options.reverse)


def format_dot(graph: CostGraph) -> str:
    """Return the graph as DOT with each op's costs in its attributes; `read` makes it again."""
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


def parse_dot(text: str, where: str) -> AttributedGraph:
    """Parse the one directed graph of a DOT text; `where` is what errors call it."""
    try:
        return _Parser(text, where).graph()
    except RecursionError as error:
        raise FormatError(f"{where}: not a graph: its subgraphs are nested too deeply") from error


class _Parser:
    """Recursive descent, one method per rule of the grammar."""

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
        if self._token.kind == "id":
            self._identifier()
        self._expect("{")
        self._statements(_Scope({}, {}))
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

    def _statements(self, scope: _Scope) -> list[str]:
        """Read statements up to '}', and return the nodes they name."""
        named: dict[str, None] = {}
        while not self._take("}"):
            if not self._take(";"):
                named.update(dict.fromkeys(self._statement(scope)))
        return list(named)

    def _statement(self, scope: _Scope) -> list[str]:
        kind, text, _ = self._token
        if kind == "keyword" and text in ("graph", "node", "edge"):
            self._advance()
            attributes = self._attributes()
            if text != "graph":
                getattr(scope, text).update(attributes)
            return []
        if kind == "id":
            text = self._identifier()
            if self._take("="):
                self._identifier()
                return []
            ends = self._node_id(text, scope)
            if self._token.kind != "edge":
                self.nodes[text].update(self._attributes())
                return ends
        else:
            ends = self._subgraph(scope)
        return self._chain(ends, scope) if self._token.kind == "edge" else ends

    def _chain(self, ends: list[str], scope: _Scope) -> list[str]:
        """Read the rest of `a -> b -> {c d} [...]`, and return all nodes that it names."""
        groups = [ends]
        while self._token.kind == "edge":
            if self._token.text == "--":
                self._refuse("an edge of a digraph is ->, not --")
            self._advance()
            is_node = self._token.kind == "id"
            groups.append(self._node_id(self._identifier(), scope) if is_node else self._subgraph(scope))
        attributes = {**scope.edge, **self._attributes()}
        for sources, targets in pairwise(groups):
            if len(self.edges) + len(sources) * len(targets) > max(_MOST_EDGES, len(self.text)):
                self._refuse(f"more than {_MOST_EDGES:,} edges between groups; write each by itself")
            self.edges.extend(Edge(source, target, attributes) for source in sources for target in targets)
        return [name for group in groups for name in group]

    def _node_id(self, name: str, scope: _Scope) -> list[str]:
        self.nodes.setdefault(name, dict(scope.node))
        while self._take(":"):
            self._identifier()
        return [name]

    def _subgraph(self, scope: _Scope) -> list[str]:
        if self._take("subgraph") and self._token.kind == "id":
            self._identifier()
        self._expect("{")
        return self._statements(_Scope(dict(scope.node), dict(scope.edge)))  # its changes do not leave it

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

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self._refuse(f"{sign} is missing")

    def _take(self, text: str) -> bool:
        """Go past a sign or keyword if it is next."""
        if self._token.kind in ("sign", "keyword") and self._token.text == text:
            self._advance()
            return True
        return False

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
