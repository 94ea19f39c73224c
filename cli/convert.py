"""`schedopt convert`: rewrite a graph in another CostGraphDef encoding."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import JsonFlag, QuietFlag


def convert(
    source: Annotated[str, typer.Argument(metavar="GRAPH", help="CostGraphDef file, or - for standard input.")],
    target: Annotated[
        str, typer.Argument(help="Output .pbtxt, .pb, .pbtxt.gz or .pb.gz; - writes text to standard output.")
    ] = "-",
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Convert a graph between CostGraphDef text and binary, plain and gzip."""
    from json import dumps

    from ..core.errors import UsageError
    from ..core.formats import encoding_of, read_graph, write_graph
    from .console import Talk, write

    if json and target == "-":
        raise UsageError("--json prints to standard output, where the graph goes; name an output file")
    encoding_of(target)
    talk = Talk(quiet)
    graph = read_graph(source, talk.note)
    write_graph(graph, target)
    if json:
        write(dumps({"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_tensors, "output": target}))
    elif target != "-":
        talk.note(f"wrote {target}: {graph.num_ops} ops, {graph.num_tensors} tensors")
