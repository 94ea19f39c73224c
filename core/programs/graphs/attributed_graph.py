"""Nodes and edges with attributes, as DOT and node-link JSON hold them, and the graph that they stand for.

A node is an op. Its attributes: `size` (or `output_size`), bytes of its output, or a list, one per port; `runtime`,
microseconds; `workspace` and `persistent`, bytes; `final`, whether its outputs are kept to the end, for all or per
port; `once`, whether it may not be computed again; `module`, `line` and `phase`, texts that say where it comes from.
An edge is a tensor that its target reads: port
`port` (0) of its source. An edge with a `size` is a tensor of its own, which edges of the same source and `port` share.
An edge with `alias`, a port of its target or a list of them, makes these views of its tensor. An edge with `control`
true is an order without a tensor. Units may be written: `4KiB`, `5ms`. What is not given is 0, false or empty.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import FormatError, UsageError
from ...base.units import parse_bytes, parse_microseconds
from ...files.reading import shown
from ...graph.annotations import NO_ANNOTATIONS, PHASES, Annotations
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph

Attributes = Mapping[str, Any]
_REMARKS = {"module": "modules", "line": "lines", "phase": "phases"}
"""The field of `Annotations` for each attribute that is a remark."""
NODE_ATTRIBUTES = ("size", "output_size", "runtime", "workspace", "persistent", "final", "once", *_REMARKS)
EDGE_ATTRIBUTES = ("size", "port", "alias", "control")
_DRAWING_ATTRIBUTES = re.compile(
    r"arrow\w+|\w*color\w*|font\w+|head\w+|label\w*|same(head|tail)|tail\w+|[hl]?(href|url|URL|head|tail|p)|[xyz]|xlabel|xlp"
    r"|align|bb|class|comment|constraint|decorate|dir|distortion|fixedsize|gradientangle|group|height|id|image|key|layer"
    r"|margin|minlen|name|nojustify|ordering|orientation|penwidth|peripheries|pos|rank|rects|regular|shape|sides|skew"
    r"|style|target|title|tooltip|weight|width"
)
_GIVEN = re.compile(r"(?<![a-z])(input|param|weight|bias|placeholder|const|arg\d)", re.IGNORECASE)
"""What a model's inputs and weights are often called."""
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


class Edge(NamedTuple):
    """From a producer to a consumer, both by name."""

    source: str
    target: str
    attributes: Attributes

    def called(self, path: str) -> str:
        """Return what errors call it."""
        return f"{path}: edge '{self.source}' -> '{self.target}'"


class AttributedGraph(NamedTuple):
    """A graph file as written: nodes by name in file order, and edges, repeats included."""

    nodes: dict[str, Attributes]
    edges: list[Edge]


def cost_graph(
    written: AttributedGraph, path: str, default_size: int | None, note: Callable[[str], None], *, reverse: bool = False
) -> CostGraph:
    """Return the graph that nodes and edges stand for; `reverse` is for edges from a user to what it depends on."""
    if reverse:
        written = AttributedGraph(written.nodes, [Edge(edge.target, edge.source, edge[2]) for edge in written.edges])
    places = {name: place for place, name in enumerate(written.nodes)}
    ports = _Ports(written, path, default_size)
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
                raise FormatError(
                    f"{edge.called(path)} aliases port {port} of its target, and so does another edge; keep one"
                )
            views[target][port] = len(inputs[target])
        inputs[target].append((source, ports.port_of(edge)))
    builder = GraphBuilder(Path(path).stem, path)
    for place, (name, attributes) in enumerate(written.nodes.items()):
        where = f"{path}: node '{name}'"
        outputs = ports.outputs[name]
        if absent := [port for port in views[place] if port not in range(len(outputs))]:
            raise FormatError(f"{where} has {len(outputs)} outputs, so that an edge cannot alias its port {absent[0]}")
        builder.add_op(
            name,
            inputs=inputs[place],
            control=control[place],
            outputs=outputs,
            aliases=[views[place].get(port, -1) for port in range(len(outputs))],
            final=_final(attributes, ports.declared[name], len(outputs), where),
            runtime=_value(attributes, "runtime", 0.0, where),
            workspace=_value(attributes, "workspace", 0, where),
            persistent=_value(attributes, "persistent", 0, where),
            once=_value(attributes, "once", False, where),
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
        costs = ((name, getattr(op, name)) for name in ("runtime", "workspace", "persistent", "once"))
        node.update((name, cost) for name, cost in costs if cost)
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
    is_meant = isinstance(value, str) and (name != "phase" or value in PHASES)
    return value if is_meant else None


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
            sizes = _sizes(attributes, f"{path}: node '{name}'")
            if sizes is None:
                is_needed = name in unsized or (name not in producing and not sized_edges)
                if is_needed and default_size is None:
                    others = _unknown([attributes], NODE_ATTRIBUTES)
                    has = f" (it has {', '.join(others)})" if others else ""
                    ways = "give it size=BYTES, its edges a size each, or a default size (--default-size, default_size)"
                    raise FormatError(f"{path}: node '{name}' has no size{has}; {ways}")
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
            raise FormatError(
                f"{edge.called(self.path)} has the size {size}, but port {label} has {outputs[port]} bytes elsewhere"
            )
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
    if 2 * len(given) <= len(sinks) or any(map(looks_given, sources - targets)):
        return ""
    return f"'{given[0]}'"


def _unknown(attributes: Iterable[Attributes], known: tuple[str, ...]) -> list[str]:
    """Return the names that are neither known nor a matter of drawing."""
    names = dict.fromkeys(name for each in attributes for name in each)
    return [name for name in names if name not in known and not _DRAWING_ATTRIBUTES.fullmatch(name)]
