"""Options that the generators share."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from ...backends import AddressOption, BackendOption, ClusterJobsOption
from ...options import SEED, TASKS, JsonFlag, QuietFlag

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
OutputOption = Annotated[str | None, typer.Option("--output", "-o", help="Same as OUTPUT.")]
FormatOption = Annotated[str | None, typer.Option("--format", help=_FORMAT_HELP)]


def of_data_sets(
    seed: int = SEED,
    split: str | None = typer.Option(None, metavar="A-B-C", help=_SPLIT_HELP),
    dedup: str = typer.Option("topology", help="What makes duplicates: equal topology, or in-degrees."),
    improvable: str | None = typer.Option(None, metavar="TASK", help=_IMPROVABLE_HELP, autocompletion=lambda: TASKS),
    devices: int | None = typer.Option(None, "--devices", "-d", help=_DEVICES_HELP),
    format_: FormatOption = None,
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the data set in the folder."),
    jobs: ClusterJobsOption = None,
    backend: BackendOption = "loky",
    address: AddressOption = None,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Have the options of all generators of data sets."""


# The first two, seed and split, come before those of a generator
DATA_SET_OPTIONS = list(inspect.signature(of_data_sets, eval_str=True).parameters.values())
