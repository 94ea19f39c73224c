"""`schedopt.from_networkx` and `schedopt.to_networkx`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.errors import UsageError
from ..base.units import parse_bytes
from ..graph.graph import CostGraph
from ..programs.graphs.attributed_graph import AttributedGraph, Attributes, Edge, cost_graph, written_graph
from ..programs.options import ImportOptions

if TYPE_CHECKING:
    import networkx as nx


def from_networkx(
    graph: nx.DiGraph,
    *,
    name: str | None = None,
    default_size: int | str | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> CostGraph:
    """Make a graph of a networkx `DiGraph` or `MultiDiGraph`, from producers to consumers.

    A node is an op, named by `str(node)`, with these attributes, all but the size 0 or false by default:

    - `size` (or `output_size`): bytes of its output, or a list, one per port;
    - `runtime`: microseconds;
    - `workspace`, `persistent`: bytes while it runs, and bytes resident throughout;
    - `final`: whether its outputs are kept to the end, for all or per port;
    - `once`: whether it may not be computed again;
    - `module`, `line`, `phase`: texts that say where it comes from, as `encoder.layer.0`, `model.py:31` and `forward`,
      `backward` or `update`.

    An edge is a tensor that its target reads:

    - `port`: which output of the source, 0 by default;
    - `size`: makes the edge a tensor of its own, which edges of the same source and `port` share;
    - `alias`: a port of the target, or a list of them, that are views of the tensor;
    - `control`: true for an order without a tensor.

    Values may have units: `"4KiB"`, `"5ms"`. Arguments are in the order of the edges, or of their keys where these are
    numbers and all different, as in the graphs of `to_networkx`.

    Parameters
    ----------
    graph
        The networkx graph.
    name
        Name of the graph; by default the networkx graph's own name, or `graph`.
    default_size
        Bytes of the output of a node without a size, as `"4KiB"`; by default that is an error.
    note
        Called with each remark worth showing, such as attributes that were ignored; by default they are dropped.

    Raises
    ------
    UsageError, GraphError
        If it is no directed networkx graph, has no nodes, two of one name, or a cycle.
    FormatError
        Naming the node or edge whose size is missing or whose attribute is wrong.

    Examples
    --------
    >>> import networkx
    >>> model = networkx.DiGraph(name="small")
    >>> model.add_node("a", size="4KiB", runtime=3.0)
    >>> model.add_node("b", size=1024, runtime="2us")
    >>> model.add_edge("a", "b")
    >>> schedopt.from_networkx(model)
    CostGraph('small': 2 ops, 2 tensors)
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise UsageError(f"a networkx DiGraph is wanted, not {type(graph).__name__}")
    if not graph.is_directed():
        raise UsageError("the networkx graph is undirected; make it a DiGraph, from producer to consumer")
    name = name or graph.name or "graph"
    nodes: dict[str, Attributes] = {str(node): _plain(attributes) for node, attributes in graph.nodes(data=True)}
    if not nodes:
        raise UsageError(f"{name}: the networkx graph has no nodes")
    if len(nodes) < graph.number_of_nodes():
        raise UsageError(f"{name}: two nodes of the networkx graph have the same text; rename one")
    options = ImportOptions(default_size=None if default_size is None else parse_bytes(default_size, "default size"))
    return replace(cost_graph(AttributedGraph(nodes, _edges(graph)), name, options, note), name=name)


def _edges(graph: nx.DiGraph) -> list[Edge]:
    if not graph.is_multigraph():
        found = graph.edges(data=True)
    else:
        keyed = list(graph.edges(keys=True, data=True))
        keys = {key for _, _, key, _ in keyed}
        if len(keys) == len(keyed) and all(isinstance(key, int) for key in keys):
            keyed.sort(key=lambda edge: edge[2])
        found = [(source, target, attributes) for source, target, _, attributes in keyed]
    return [Edge(str(source), str(target), _plain(attributes)) for source, target, attributes in found]


def _plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Return attributes by text, with tuples and arrays as lists."""
    return {
        str(name): list(value) if isinstance(value, tuple) else value.tolist() if hasattr(value, "tolist") else value
        for name, value in attributes.items()
    }


def to_networkx(graph: CostGraph) -> nx.MultiDiGraph:
    """Return a graph as a networkx `MultiDiGraph`, of which `from_networkx` makes the same graph, with ids from 0 on.

    Parameters
    ----------
    graph
        The graph.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024], runtime=2.0)
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048])
    >>> schedopt.to_networkx(builder.build()).nodes["source"]
    {'size': [1024], 'runtime': 2.0}
    """
    import networkx as nx

    if not isinstance(graph, CostGraph):
        raise UsageError(f"a CostGraph is wanted, not {type(graph).__name__}")
    written = written_graph(graph)
    made = nx.MultiDiGraph(name=graph.name)
    made.add_nodes_from(written.nodes.items())
    made.add_edges_from((e.source, e.target, key, dict(e.attributes)) for key, e in enumerate(written.edges))
    return made
