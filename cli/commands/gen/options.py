"""Options that the generators share."""

from __future__ import annotations

from typing import Annotated

import typer

from ...options import TASKS

OUTPUT_HELP = (
    "Folder for a data set; a name ending in .pbtxt, .pb, .pbtxt.gz or .pb.gz for one graph; "
    "- for one graph on standard output. (default: standard output; on a terminal, a new file or folder)"
)
_SPLIT_HELP = (
    "Split into train, valid and test, e.g. 3-1-1: sorted by number of ops, each group of A+B+C graphs is "
    "split at random, so that sizes are alike and no topology is in two sets."
)
_FORMAT_HELP = "pbtxt, pb, pbtxt.gz or pb.gz. (default: by the file's name, pb.gz in a folder, else pbtxt)"
_IMPROVABLE_HELP = (
    "Keep only graphs with room for improvement in this task, memory or runtime: those whose own order does "
    "not meet the lower bound already, as chains, single ops and graphs without costs do."
)
_DEVICES_HELP = "Devices, 1 to 64, on which --improvable looks for room. (default: 1 for memory, 2 for runtime)"
OutputArgument = Annotated[str | None, typer.Argument(metavar="OUTPUT", help=OUTPUT_HELP)]
OutputOption = Annotated[str | None, typer.Option("--output", "-o", help="Same as OUTPUT.")]
CountOption = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of graphs.")]
SplitOption = Annotated[str | None, typer.Option(metavar="A-B-C", help=_SPLIT_HELP)]
DedupOption = Annotated[str, typer.Option(help="What makes duplicates: equal topology, or in-degrees.")]
FormatOption = Annotated[str | None, typer.Option("--format", help=_FORMAT_HELP)]
OverwriteFlag = Annotated[bool, typer.Option("--overwrite", help="Replace the data set in the folder.")]
RoomDevicesOption = Annotated[int | None, typer.Option("--devices", "-d", help=_DEVICES_HELP)]
ImprovableOption = Annotated[
    str | None, typer.Option(metavar="TASK", help=_IMPROVABLE_HELP, autocompletion=lambda: TASKS)
]
