"""`schedopt diff`: which tensors make the difference between two schedules of a graph, or between two graphs."""

import typer

from ...core.search.registry import INPUT_METHOD as INPUT
from ..console import Output, show, write
from ..options import ForceFlag, JsonFlag, QuietFlag


def diff(
    a: str = typer.Argument(
        ...,
        metavar="A",
        help=f"A graph file or a memory snapshot; with --graph a schedule, a snapshot, or {INPUT} for program order.",
    ),
    b: str = typer.Argument(..., metavar="B", help="What it is compared with, likewise."),
    graph: str | None = typer.Option(
        None, "--graph", "-g", help="The graph that both are schedules of. (default: both are graphs)"
    ),
    top: int = typer.Option(20, min=1, help="Tensors to list, the largest."),
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare two schedules of a graph, two graphs, or memory snapshots: which tensors make the difference."""
    from ...core.api.diff import diff as compared

    difference = compared(a, b, graph, force=force, note=Output(quiet).note)
    if json:
        write(difference.json())
    else:
        show(difference.table(top), difference.title())
