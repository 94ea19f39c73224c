"""`schedopt import`: a real model in, its graph with costs out."""

from pathlib import Path
from typing import Any, Literal

import typer

from ...core.base.errors import UsageError
from ...core.base.units import format_bytes
from .. import options as shared
from ..console import Output, write_json


def import_model(
    model: str = typer.Argument(
        ...,
        metavar="MODEL",
        help="An .onnx or .tflite file; a PyTorch program: .pt2 (which can run code when it is loaded: take only "
        "files that you trust), or module:function that returns (model, example inputs); "
        "PyTorch's execution trace; Inductor's buffer graph: JSON, or a TORCH_TRACE log or folder; a DOT or "
        "networkx node-link JSON graph, a CSV of edges, a WfCommons workflow.",
    ),
    output: str | None = shared.output_option(
        "Output .pbtxt, .pb, .pbtxt.gz or .pb.gz; .dot for Graphviz; .json for networkx (node-link); "
        f"- writes text to standard output. {shared.DEFAULT_OUTPUT}"
    ),
    training: shared.TrainingOption = None,
    shape: shared.ShapeOption = None,
    costs: Literal["roofline", "measured"] = typer.Option(
        "roofline",
        help="roofline: time from FLOPs and bytes, no workspace; measured: run each op here. (PyTorch, ONNX, TFLite)",
    ),
    flops: str | None = typer.Option(None, help="FLOPs per second of the roofline, e.g. 100G. (default: 1T)"),
    memory_bandwidth: str | None = typer.Option(None, help="Of the roofline, e.g. 50GB/s. (default: 100GB/s)"),
    device: shared.ProgramDeviceOption = None,
    default_size: str | None = typer.Option(
        None, help="Bytes of a node or file without a size, e.g. 4KiB. (DOT, node-link JSON, CSV, WfCommons)"
    ),
    reverse: bool = typer.Option(
        False, "--reverse", help="Edges lead from a user to what it depends on. (DOT, node-link JSON, CSV)"
    ),
    graph: str | None = typer.Option(None, help="Which graph, where MODEL holds several. (Inductor)"),
    json: shared.JsonFlag = False,
    quiet: shared.QuietFlag = False,
) -> None:
    """Import a model as a graph: ONNX, TFLite, PyTorch, its traces, Inductor's buffers, DOT, networkx."""
    from ...core.api.import_ import import_model as import_graph
    from ...core.programs.graphs.attributed_graph import check_target, write_graph_file
    from ...core.programs.importers import kind_of
    from ...core.report.differences import totals_of

    output = shared.output_of(output, Path(model.rpartition(":")[2].removesuffix(".gz")).stem, ".pb.gz")
    if json and output == "-":
        raise UsageError("--json prints to standard output, where the graph goes; name an output file by --output")
    check_target(output)
    out = Output(quiet)
    rates = {"flops": flops, "memory_bandwidth": memory_bandwidth}
    given: dict[str, Any] = {name: rate for name, rate in rates.items() if rate is not None}
    given |= shared.given_options(training, shape, device)
    given |= {"default_size": default_size, "reverse": reverse, "graph": graph}
    imported = import_graph(model, costs=costs, note=out.note, **given)
    summary = {"graph": imported.name, "kind": kind_of(model), **totals_of(imported), "output": output}
    persistent = summary["persistent_bytes"]
    out.note(
        f"{imported.name}: {summary['ops']:,} ops, {summary['tensors']:,} tensors of "
        f"{format_bytes(summary['tensor_bytes'])}{f', {format_bytes(persistent)} persistent' if persistent else ''}; "
        f"peak {format_bytes(summary['input_peak'])} in program order"
    )
    write_graph_file(imported, output)
    if json:
        write_json(summary)
    elif output != "-":
        out.note(f"wrote {output}")
