"""`schedopt diff`: which tensors make the difference between two schedules of a graph, or between two graphs."""

from __future__ import annotations

from typing import Annotated

import typer

from ...core.search.registry import INPUT_METHOD as INPUT
from ..options import ForceFlag, JsonFlag, QuietFlag


def diff(
    a: Annotated[
        str, typer.Argument(metavar="A", help=f"A graph file; with --graph a schedule, or {INPUT} for program order.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What it is compared with, likewise.")],
    graph: Annotated[
        str | None,
        typer.Option("--graph", "-g", help="The graph that both are schedules of. (default: both are graphs)"),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Tensors to list, the largest.")] = 20,
    force: ForceFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare two schedules of a graph, or two graphs: which tensors make the difference."""
    from ...core.api.diff import diff as compared
    from ..console import Talk, show, write

    difference = compared(a, b, graph, force=force, note=Talk(quiet).note)
    if json:
        write(difference.json())
    else:
        show(difference.table(top), difference.title())
