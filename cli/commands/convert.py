"""`schedopt convert`: rewrite a graph in another CostGraphDef encoding, or for Graphviz and networkx."""

import typer

from ...core.base.errors import UsageError
from ..console import Output, write_json
from ..options import DEFAULT_OUTPUT, JsonFlag, QuietFlag, output_of


def convert(
    source: str = typer.Argument(..., metavar="GRAPH", help="CostGraphDef file, or - for standard input."),
    target: str | None = typer.Argument(
        None,
        metavar="TARGET",
        help="Output .pbtxt, .pb, .pbtxt.gz or .pb.gz; .dot for Graphviz; .json for networkx (node-link); "
        f"- writes text to standard output. {DEFAULT_OUTPUT}",
    ),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Convert a graph between CostGraphDef text and binary, plain and gzip, or write it as DOT or node-link JSON."""
    from ...core.files.costgraph import graph_name
    from ...core.programs.graphs.attributed_graph import check_target, write_graph_file
    from ...core.programs.importers import read_any

    target = output_of(target, graph_name(source), ".pb.gz" if source.endswith(".pbtxt") else ".pbtxt")
    if json and target == "-":
        raise UsageError("--json prints to standard output, where the graph goes; name an output file")
    check_target(target)
    out = Output(quiet)
    graph = read_any(source, out.note)
    write_graph_file(graph, target)
    if json:
        write_json({"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors, "output": target})
    elif target != "-":
        out.note(f"wrote {target}: {graph.num_ops} ops, {graph.num_data_tensors} tensors")
