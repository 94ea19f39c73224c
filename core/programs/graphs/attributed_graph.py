r"""Nodes and edges with attributes, and the graph that they stand for; files of them: DOT, node-link JSON, CSV.

A node is an op. Its attributes: `size` (or `output_size`), bytes of its output, or a list, one per port; `runtime`,
microseconds; `workspace` and `persistent`, bytes; `final`, whether its outputs are kept to the end, for all or per
port; `once`, whether it may not be computed again; `module`, `line` and `phase`, texts that say where it comes from.
An edge is a tensor that its target reads: port `port` (0) of its source. An edge with a `size` is a tensor of its own,
which edges of the same source and `port` share. An edge with `alias`, a port of its target or a list of them, makes
these views of its tensor. An edge with `control` true is an order without a tensor. Missing attributes are 0 or false.

Of DOT the whole grammar is read (https://graphviz.org/doc/info/lang.html). Record ports (`a:out -> b:in:n`) place a
line in a drawing and are dropped. In a quoted name `\\` is one backslash, which Graphviz keeps as two.
"""

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple, NoReturn

from ...base.errors import FormatError, UsageError
from ...base.units import parse_bytes, parse_microseconds
from ...files.atomic import check_writable, write_atomically
from ...files.costgraph import SUFFIXES, encoding_of, write_graph
from ...files.reading import read_json, read_text, shown
from ...graph.annotations import NO_ANNOTATIONS, PHASES, Annotations
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import ImportOptions

Attributes = Mapping[str, Any]
_REMARKS = {"module": "modules", "line": "lines", "phase": "phases"}
"""The field of `Annotations` for each attribute that is a remark."""
NODE_ATTRIBUTES = ("size", "output_size", "runtime", "workspace", "persistent", "final", "once", *_REMARKS)
_COSTS = {"runtime": 0.0, "workspace": 0, "persistent": 0, "once": False}
"""The costs of a node without attributes."""
EDGE_ATTRIBUTES = ("size", "port", "alias", "control")
_DRAWING_ATTRIBUTES = re.compile(
    r"arrow\w+|\w*color\w*|font\w+|head\w+|label\w*|same(head|tail)|tail\w+|[hl]?(href|url|URL|head|tail|p)|[xyz]|xlabel|xlp"
    r"|align|bb|class|comment|constraint|decorate|dir|distortion|fixedsize|gradientangle|group|height|id|image|key|layer"
    r"|margin|minlen|name|nojustify|ordering|orientation|penwidth|peripheries|pos|rank|rects|regular|shape|sides|skew"
    r"|style|target|title|tooltip|width"
)
_GIVEN = re.compile(r"(?<![a-z])(input|param|weight|bias|placeholder|const|arg\d)", re.IGNORECASE)
"""Usual names of a model's inputs and weights."""
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


class Edge(NamedTuple):
    """From a producer to a consumer, both by name."""

    source: str
    target: str
    attributes: Attributes

    def called(self, path: str) -> str:
        """Return its name in errors."""
        return f"{path}: edge {shown(self.source)} -> {shown(self.target)}"


class AttributedGraph(NamedTuple):
    """A graph file as written: nodes by name in file order, and edges, repeats included."""

    nodes: dict[str, Attributes]
    edges: list[Edge]


def cost_graph(written: AttributedGraph, path: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Return the graph that nodes and edges stand for."""
    if options.reverse:
        written = AttributedGraph(written.nodes, [Edge(edge.target, edge.source, edge[2]) for edge in written.edges])
    places = {name: place for place, name in enumerate(written.nodes)}
    ports = _Ports(written, path, options.default_size)
    inputs: list[list[tuple[int, int]]] = [[] for _ in places]
    control: list[list[int]] = [[] for _ in places]
    views: list[dict[int, int]] = [{} for _ in places]
    for edge in written.edges:
        source, target = places[edge.source], places[edge.target]
        if _value(edge.attributes, "control", False, edge.called(path)):
            control[target].append(source)
            continue
        for item in _listed(edge.attributes.get("alias", [])):
            port = _convert(item, "alias", edge.called(path))
            if port in views[target]:
                what = f"aliases port {shown(port)} of its target, and so does another edge; keep one"
                raise FormatError(f"{edge.called(path)} {what}")
            views[target][port] = len(inputs[target])
        inputs[target].append((source, ports.port_of(edge)))
    builder = GraphBuilder(Path(path).stem, path)
    for place, (name, attributes) in enumerate(written.nodes.items()):
        where = f"{path}: node {shown(name)}"
        outputs = ports.outputs[name]
        if absent := [port for port in views[place] if port not in range(len(outputs))]:
            count, port = len(outputs), shown(absent[0])
            raise FormatError(f"{where} has {count} outputs, so that an edge cannot alias its port {port}")
        builder.add_op(
            name,
            inputs=inputs[place],
            control=control[place],
            outputs=outputs,
            aliases=[views[place].get(port, -1) for port in range(len(outputs))],
            final=_final(attributes, ports.declared[name], len(outputs), where),
            **{cost: _value(attributes, cost, missing, where) for cost, missing in _COSTS.items()},
        )
    texts = ([_remark_of(node, name) or "" for node in written.nodes.values()] for name in _REMARKS)
    modules, lines, phases = (tuple(each) if any(each) else () for each in texts)
    graph = builder.build(Annotations(modules, lines, phases) or NO_ANNOTATIONS)
    _remark(written, graph, path, note)
    return graph


def written_graph(graph: CostGraph) -> AttributedGraph:
    """Return the nodes and edges that stand for a graph: `cost_graph` makes it again, with ids from 0 on.

    Of the annotations, modules, lines and phases are attributes; the others, which are of no one op, are left out.
    """
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    remarks = [(name, texts) for name, field in _REMARKS.items() if (texts := getattr(graph.annotations, field))]
    nodes: dict[str, Attributes] = {}
    edges = []
    for place, op in enumerate(graph.ops):
        made = [tensor for tensor in map(tensors.__getitem__, op.outputs) if not tensor.control]
        node: dict[str, Any] = {"size": [tensor.size for tensor in made]}
        node.update((name, cost) for name in _COSTS if (cost := getattr(op, name)))
        if any(tensor.final for tensor in made):
            node["final"] = [tensor.final for tensor in made]
        node.update((attribute, texts[place]) for attribute, texts in remarks if texts[place])
        nodes[op.name] = node
        views = defaultdict(list)
        for port, tensor in enumerate(made):
            views[tensor.view_of].append(port)
        for name in op.inputs:
            read = tensors[name]
            attributes: dict[str, Any] = {"control": True} if read.control else {"port": int(name.rpartition(":")[2])}
            if name in views:
                attributes["alias"] = views.pop(name)
            edges.append(Edge(read.producer, op.name, attributes))
    return AttributedGraph(nodes, edges)


def _remark_of(attributes: Attributes, name: str) -> str | None:
    """Return a node's `module`, `line` or `phase`, or None where another tool means something else by it."""
    value = attributes.get(name, "")
    return value if isinstance(value, str) and (name != "phase" or value in PHASES) else None


class _Ports:
    """The output ports of each node: those that it declares, then those that its edges do."""

    def __init__(self, written: AttributedGraph, path: str, default_size: int | None) -> None:
        self.path = path
        self.outputs: dict[str, list[int]] = {}
        sized_edges = any("size" in edge.attributes for edge in written.edges)
        unsized = {
            edge.source
            for edge in written.edges
            if "size" not in edge.attributes and not _value(edge.attributes, "control", False, edge.called(path))
        }
        producing = {edge.source for edge in written.edges}
        for name, attributes in written.nodes.items():
            sizes = _sizes(attributes, f"{path}: node {shown(name)}")
            if sizes is None:
                is_needed = name in unsized or (name not in producing and not sized_edges)
                if is_needed and default_size is None:
                    leaving = (edge.attributes for edge in written.edges if edge.source == name)
                    others = [*_unknown([attributes], NODE_ATTRIBUTES), *_unknown(leaving, EDGE_ATTRIBUTES)]
                    has = f" ({shorten(', '.join(others), 80)} is not read)" if others else ""
                    ways = "give it size=BYTES, its edges a size each, or a default size (--default-size, default_size)"
                    raise FormatError(f"{path}: node {shown(name)} has no size{has}; {ways}")
                sizes = [default_size or 0] if is_needed else []
            self.outputs[name] = sizes
        self.declared = {name: len(sizes) for name, sizes in self.outputs.items()}
        self._shared: dict[tuple[str, str], int] = {}

    def port_of(self, edge: Edge) -> int:
        """Return the port of its source that an edge reads, added if the edge gives its size."""
        outputs = self.outputs[edge.source]
        if "size" not in edge.attributes:
            return int(_value(edge.attributes, "port", 0, edge.called(self.path)))
        size = _convert(edge.attributes["size"], "size", edge.called(self.path))
        if "port" not in edge.attributes:
            outputs.append(size)
            return len(outputs) - 1
        label = str(edge.attributes["port"])
        is_declared = label.isdecimal() and int(label) < self.declared[edge.source]
        port = int(label) if is_declared else self._shared.setdefault((edge.source, label), len(outputs))
        if port == len(outputs):
            outputs.append(size)
        elif outputs[port] != size:
            what = f"has the size {size}, but port {label} has {outputs[port]} bytes elsewhere"
            raise FormatError(f"{edge.called(self.path)} {what}")
        return port


def _sizes(attributes: Attributes, where: str) -> list[int] | None:
    names = [name for name in ("size", "output_size") if name in attributes]
    if len(names) > 1:
        raise FormatError(f"{where} has both size and output_size, which mean the same; keep one")
    return [_convert(item, names[0], where) for item in _listed(attributes[names[0]])] if names else None


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return value.split(",") if value.strip() else []
    return list(value) if isinstance(value, list) else [value]


def _final(attributes: Attributes, declared: int, ports: int, where: str) -> list[bool]:
    """Return whether each port is final: by one value for all, or by one for each that the node declares."""
    values = [_convert(item, "final", where) for item in _listed(attributes.get("final", False))]
    if len(values) == 1:
        return values * ports
    if len(values) != declared:
        raise FormatError(f"{where} has {declared} sizes but {len(values)} values of final; give as many, or one")
    return values + [False] * (ports - declared)


def _value(attributes: Attributes, name: str, missing: Any, where: str) -> Any:
    return _convert(attributes[name], name, where) if name in attributes else missing


def _convert(value: Any, name: str, where: str) -> Any:
    parse, wanted = _KINDS.get(name, (_bytes, "bytes, like 4096 or 4KiB"))
    try:
        return parse(value)
    except (UsageError, ValueError, TypeError, OverflowError) as error:
        raise FormatError(f"{where} has the {name} {shown(value)}, which is not understood; write {wanted}") from error


def _bytes(value: Any) -> int:
    return parse_bytes(value) if isinstance(value, str) else _whole(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or float(value) != int(float(value)):
        raise ValueError(value)
    return int(value)


def _microseconds(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = parse_microseconds(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _truth(value: Any) -> bool:
    truth = _TRUTH.get(str(value).strip().lower())
    if truth is None:
        raise ValueError(value)
    return truth


_KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(("final", "once", "control"), (_truth, "true or false")),
    **dict.fromkeys(("port", "alias"), (_whole, "a whole number")),
    "runtime": (_microseconds, "microseconds, like 12.5 or 3ms"),
}


def _remark(written: AttributedGraph, graph: CostGraph, path: str, note: Callable[[str], None]) -> None:
    nodes = written.nodes.values()
    unknown = {name for name in _REMARKS if any(_remark_of(attributes, name) is None for attributes in nodes)}
    unknown.update(_unknown(nodes, NODE_ATTRIBUTES))
    unknown.update(_unknown((edge.attributes for edge in written.edges), EDGE_ATTRIBUTES))
    if unknown:
        note(
            f"{path}: attributes that schedopt does not use were ignored: {', '.join(sorted(unknown))}; it reads "
            f"{', '.join(NODE_ATTRIBUTES)} of nodes and {', '.join(EDGE_ATTRIBUTES)} of edges"
        )
    if given := _given_sinks(written):
        note(
            f"{path}: no edge leaves {given}, which looks like an input; if edges lead from a user to what it depends "
            "on, import it with --reverse (reverse=True)"
        )
    if not graph.runtime.any():
        note(f"{path}: no node has a runtime, so every op takes 0 us")
    if (graph.input_order[1:] < graph.input_order[:-1]).any():
        note(f"{path}: the nodes are not in a topological order; the first one that is ready is taken next")


def _given_sinks(written: AttributedGraph) -> str:
    """Return the first node that nothing reads, where most of these look like inputs, and no node without inputs."""

    def looks_given(name: str) -> bool:
        return any(_GIVEN.search(str(text)) for text in (name, written.nodes[name].get("label", "")))

    sources, targets = ({getattr(edge, end) for edge in written.edges} for end in ("source", "target"))
    sinks = [name for name in written.nodes if name in targets and name not in sources]
    given = [name for name in sinks if looks_given(name)]
    is_likely = 2 * len(given) > len(sinks) and not any(map(looks_given, sources - targets))
    return f"'{given[0]}'" if is_likely else ""


def _unknown(attributes: Iterable[Attributes], known: tuple[str, ...]) -> list[str]:
    """Return the names that are neither known nor a matter of drawing."""
    names = dict.fromkeys(name for each in attributes for name in each)
    return [name for name in names if name not in known and not _DRAWING_ATTRIBUTES.fullmatch(name)]


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
    return cost_graph(written, model, options, note)


def read_node_link(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a node-link JSON file."""
    return cost_graph(_parse_node_link(read_json(model), model), model, options, note)


def read_edges(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a CSV file of edges."""
    return cost_graph(_parse_edges(read_text(model), model), model, options, note)


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
    write = _FORMATS.get(Path(path).suffix)
    write_atomically(path, write(graph)) if write else write_graph(graph, path)


def _parse_node_link(document: Any, where: str) -> AttributedGraph:
    """Return the nodes and edges of a node-link document; `where` is its name in errors."""
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
            raise FormatError(f"{where}: two nodes have the id {shown(name)}")
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
                raise FormatError(f"{where}: entry {place} of {key} names node {shown(end)}, which is not in the graph")
        edges.append(Edge(*ends, {name: value for name, value in edge.items() if name not in ("source", "target")}))
    return AttributedGraph(nodes, edges)


def _name(identifier: Any) -> str:
    return identifier if isinstance(identifier, str) else json.dumps(identifier)


def _parse_edges(text: str, where: str) -> AttributedGraph:
    """Return the edges of a CSV text, and the nodes in the order in which they are first named."""
    separator = max("\t;,", key=text.splitlines()[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
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
        if is_next := self._token.kind in ("sign", "keyword") and self._token.text == text:
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
