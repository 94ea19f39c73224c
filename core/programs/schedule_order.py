"""The order that a schedule file gives to the ops of a program."""

from __future__ import annotations

from itertools import chain

from ..errors import FormatError, UsageError
from ..files.costgraph import format_graph, parse_graph
from ..files.schedule_json import read_schedule
from ..graph import CostGraph


def read_order(path: str, graph: CostGraph) -> list[int]:
    """Read the schedule JSON of a program's graph: its ops in the order they run.

    Raises
    ------
    FormatError
        If the file cannot be read, or names ops that the graph does not have.
    UsageError
        If it uses several devices.
    """
    # In the graph's file a final result among others is pinned by an op of its own, after the program's ops.
    written = parse_graph(format_graph(graph, "binary"), graph.name)
    try:
        schedule = read_schedule(path, written).schedule
    except FormatError as error:
        if "does not have" not in str(error):
            raise
        raise FormatError(f"{error}: it is of another model, or imported with other --training or --shape") from error
    used = len(set(chain(schedule.sources.tolist(), schedule.targets.tolist())))
    if used > 1:
        raise UsageError(f"{path}: the schedule uses {used} devices, and a program runs on one; solve with --devices 1")
    return [op for op in schedule.op_order().tolist() if op < graph.num_ops]
