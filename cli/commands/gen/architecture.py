"""`schedopt gen architecture`: published networks, layer by layer."""

from __future__ import annotations

import typer

from ...console import Output
from ...options import DEFAULT_OUTPUT, JsonFlag, QuietFlag
from .options import FormatOption, OutputOption

_FILE_HELP = f"A name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz; - for standard output. {DEFAULT_OUTPUT}"


def architecture(
    ctx: typer.Context,
    name: str = typer.Argument(..., metavar="NAME", help="nasnet-a-mobile, nasnet-a-large, resnet50 or unet."),
    target: str | None = typer.Argument(None, metavar="OUTPUT", help=_FILE_HELP),
    output: OutputOption = None,
    batch: int = typer.Option(1, min=1, help="Images at once."),
    size: int | None = typer.Option(None, help="Pixels per side. (default: as published)"),
    training: bool = typer.Option(False, "--training", help="Forward, backward and update."),
    weights: bool = typer.Option(True, help="Parameters stay in memory, or are elsewhere."),
    format_: FormatOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write out a published network, layer by layer: float32 tensors, parameters as persistent bytes.

    Runtimes are a roofline at 2 TFLOP/s and 50 GB/s, not measurements.
    """
    from ....core.files.costgraph import SUFFIXES, encoding_of, format_graph
    from ....datasets.architectures import architecture_graph
    from .output import resolve_output, say_written

    to = resolve_output(ctx, 1, name)
    encoding_of(to.path)
    graph = architecture_graph(name, batch, size, training, weights)
    to.write(format_graph(graph, *SUFFIXES[to.suffix]))
    facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
    say_written(ctx, Output(quiet), to.path, facts)
