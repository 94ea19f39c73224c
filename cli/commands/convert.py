"""`schedopt convert`: rewrite a graph in another CostGraphDef encoding, or for Graphviz and networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..options import JsonFlag, QuietFlag

if TYPE_CHECKING:
    from ...core.graph import CostGraph


def convert(
    source: Annotated[str, typer.Argument(metavar="GRAPH", help="CostGraphDef file, or - for standard input.")],
    target: Annotated[
        str,
        typer.Argument(
            help="Output .pbtxt, .pb, .pbtxt.gz or .pb.gz; .dot for Graphviz; .json for networkx (node-link); "
            "- writes text to standard output."
        ),
    ] = "-",
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Convert a graph between CostGraphDef text and binary, plain and gzip, or write it as DOT or node-link JSON."""
    from json import dumps
    from pathlib import Path

    from ...core.errors import UsageError
    from ...core.files.costgraph import encoding_of, read_graph, write_graph
    from ..console import Talk, write

    if json and target == "-":
        raise UsageError("--json prints to standard output, where the graph goes; name an output file")
    is_exported = Path(target).suffix in (".dot", ".gv", ".json")
    if not is_exported:
        encoding_of(target)
    talk = Talk(quiet)
    graph = read_graph(source, talk.note)
    if is_exported:
        _export(graph, target)
    else:
        write_graph(graph, target)
    if json:
        write(dumps({"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors, "output": target}))
    elif target != "-":
        talk.note(f"wrote {target}: {graph.num_ops} ops, {graph.num_data_tensors} tensors")


def _export(graph: CostGraph, target: str) -> None:
    from ...core.files.atomic import write_atomically
    from ...core.programs.graph_files.dot import format_dot
    from ...core.programs.graph_files.node_link import format_node_link

    write_atomically(target, format_node_link(graph) if target.endswith(".json") else format_dot(graph))
