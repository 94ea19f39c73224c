"""The order that a schedule file gives to the ops of a program."""

from __future__ import annotations

from itertools import chain

from ..errors import OtherGraphError, UsageError
from ..files.costgraph import with_marks_as_ops
from ..files.schedule_json import LoadedSchedule, read_schedule
from ..graph import CostGraph


def read_order(path: str, graph: CostGraph, *, force: bool = False) -> list[int]:
    """Read a schedule of a program's graph: its ops in the order they run.

    Parameters
    ----------
    path
        The schedule file; see `read_schedule`.
    graph
        The program's.
    force
        Whether to take a file that says that it was made for another graph.

    Raises
    ------
    FormatError
        If the file cannot be read, or is of another graph.
    UsageError
        If it uses several devices.
    """
    try:
        schedule = _read(path, graph, force).schedule
    except OtherGraphError as error:
        remark = "it is of another model, or imported with other --training or --shape"
        raise type(error)(f"{error}: {remark}") from None
    used = len(set(chain(schedule.sources.tolist(), schedule.targets.tolist())))
    if used > 1:
        raise UsageError(f"{path}: the schedule uses {used} devices, and a program runs on one; solve with --devices 1")
    return [op for op in schedule.op_order().tolist() if op < graph.num_ops]


def _read(path: str, graph: CostGraph, force: bool) -> LoadedSchedule:
    """Read a schedule of a graph, or of its file as versions before 0.2 wrote it: with ops that are not the model's."""
    try:
        return read_schedule(path, graph, force=force)
    except OtherGraphError:
        old = with_marks_as_ops(graph)
        if old.num_ops == graph.num_ops:
            raise
        try:
            return read_schedule(path, old, force=force)
        except OtherGraphError:
            pass
        raise
