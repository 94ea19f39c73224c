"""`schedopt gen augment`: noisy copies of given graphs."""

from __future__ import annotations

from itertools import chain
from typing import Any

import typer

from ....core.base.errors import UsageError
from ...backends import workers_of
from ...console import Output
from ...made_options import with_options
from ...options import GraphsArgument
from .options import DATA_SET_OPTIONS, OUTPUT_HELP


def augment(
    ctx: typer.Context,
    graphs: GraphsArgument,
    output: str | None = typer.Option(None, "--output", "-o", help=OUTPUT_HELP),
    copies: int = typer.Option(99, min=0, help="Noisy copies of each graph."),
    **given: Any,
) -> None:
    """Make noisy copies of given graphs (REGAL A.1.2): each size and runtime times its own U(0.5, 1.5).

    A data set folder holds the originals too; copies are in the same set as their original. Of duplicates the
    first is kept. One copy of one graph may go to a file or to standard output.
    """
    from ....core.files.costgraph import find_graphs, graph_name, read_graph
    from ....datasets import folder as data
    from ....datasets.filters import parse_dedup
    from ...progress import progress_bar
    from .output import finish_folder, incomplete, resolve_output, room_asked, say_written

    paths, seed = find_graphs(graphs), given["seed"]
    to = resolve_output(ctx, len(paths) * copies, f"{graph_name(paths[0])}-copy")
    room, kind = room_asked(ctx), parse_dedup(given["dedup"])
    out = Output(given["quiet"])
    originals, dropped = data.distinct_originals((read_graph(path, out.note) for path in paths), kind)
    if dropped:
        out.note(f"left out {len(dropped)} of {len(paths)} graphs as duplicates: {', '.join(dropped)}")
    if room:
        originals, dropped = data.improvable_originals(originals, *room)
        if dropped:
            out.note(f"left out {len(dropped)} graphs without room for improvement: {', '.join(dropped)}")
        if not originals:
            raise UsageError("no graph has room for improvement; leave out --improvable or give other graphs")
    if to.kind != "folder":
        if copies != 1:
            raise UsageError("originals without copies are a data set; name a folder, or give --copies 1")
        graph, topology = originals[0].graph, originals[0].topology
        to.write(data.encode_copy(graph, topology, 1, seed, to.suffix))
        facts = {"graph": graph.name, "ops": graph.num_ops, "tensors": graph.num_data_tensors}
        say_written(ctx, out, to.path, facts | {"topology": topology, "seed": seed})
        return
    names = chain.from_iterable(data.augmented_names(originals, copies))
    folder = data.DatasetFolder(to.path, to.suffix, list(names), given["overwrite"])
    with (
        workers_of(given["backend"], given["address"], given["jobs"], lambda: incomplete(to.path)) as workers,
        progress_bar(out, "writing noisy copies", len(originals) * (copies + 1)) as advance,
    ):
        counts = data.write_augmented(folder, originals, copies, seed, to.split, workers, advance)
    finish_folder(ctx, out, folder, {"copies": copies}, counts)


with_options(augment, {"copies": DATA_SET_OPTIONS})
