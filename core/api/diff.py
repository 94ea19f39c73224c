"""`schedopt.diff`."""

import json
import os
from pathlib import Path

from ..base.errors import FormatError, ScheduleError, UsageError
from ..base.options import spelled
from ..files.schedule_json import read_schedule
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..programs.importers import kind_by_name
from ..report.differences import GraphDifference, ScheduleDifference, graph_difference
from ..report.memory_by_role import Peak, alive_at_peak
from ..search.registry import INPUT_METHOD
from .graphs import GraphLike, Note, ScheduleLike, graph_of, loaded_schedule


def diff(
    a: GraphLike | ScheduleLike,
    b: GraphLike | ScheduleLike,
    graph: GraphLike | None = None,
    *,
    force: bool = False,
    note: Note = lambda text: None,
) -> ScheduleDifference | GraphDifference:
    """Compare two schedules of a graph, two graphs, or two memory snapshots: which tensors make the difference.

    Parameters
    ----------
    a, b
        With `graph`, two schedules: each a `Schedule`, a `Result`, the path of a schedule file, the names of all ops in
        order, or `"input"` for program order. Without, two graphs or paths of their files, or of memory snapshots of
        PyTorch; with `graph`, one of them may be such a snapshot.
    graph
        The graph of the schedules; by default `a` and `b` are graphs.
    force
        Whether to take a schedule file that says that it was made for another graph; not by default.
    note
        Called with each remark worth showing; by default they are dropped.

    Returns
    -------
    ScheduleDifference or GraphDifference
        Of schedules, the tensors held at one peak and not at the other; of snapshots, bytes by line of the code. Of
        graphs, totals, ops added and removed, and tensors of other sizes. Printed, it is the table of `schedopt diff`.

    Raises
    ------
    UsageError
        If schedules are given without their graph, or it is neither.
    FormatError, GraphError
        If a file cannot be read, or is a schedule of another graph.
    ScheduleError
        If a schedule breaks a rule of the cost model.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("branches")
    >>> first, second = builder.add_op("first", outputs=[1024]), builder.add_op("second", outputs=[2048])
    >>> sinks = [builder.add_op(f"sink{op}", inputs=[(op, 0)], outputs=[16]) for op in (first, second)]
    >>> graph = builder.build()
    >>> difference = schedopt.diff("input", ["first", "sink0", "second", "sink1"], graph)
    >>> [[holder.name for holder in alone] for alone in difference.held_by_one]
    [['first:0', 'sink0:0'], ['sink1:0']]
    """
    if any(map(_is_snapshot, (a, b))):
        return _by_line(a, b, graph, force, note)
    if graph is not None:
        read = graph_of(graph, note)
        first, second = (alive_at_peak(*_schedule_of(given, read, force)) for given in (a, b))
        return ScheduleDifference(read.name, _names(a, b), (first, second))
    graphs = []
    for given in (a, b):
        if isinstance(given, (str, os.PathLike)) and _is_schedule(Path(given)):
            raise UsageError(f"{os.fspath(given)} is a schedule; name the graph that both are of: {spelled('graph')}")
        graphs.append(graph_of(given, note))  # type: ignore[arg-type]
    return graph_difference(_names(a, b, *(graph.name for graph in graphs)), *graphs)


def _schedule_of(given: GraphLike | ScheduleLike, graph: CostGraph, force: bool) -> tuple[Problem, Schedule]:
    """Return a schedule, replayed, with the problem that it was made for."""
    if isinstance(given, CostGraph):
        raise UsageError(f"'{given.name}' is a graph; with graph= give two schedules of it")
    if isinstance(given, str) and given == INPUT_METHOD:
        return Problem(graph), Schedule.single_device(graph.input_order)
    is_path = isinstance(given, (str, os.PathLike))
    loaded = read_schedule(os.fspath(given), graph, force=force) if is_path else loaded_schedule(given, graph)  # type: ignore[arg-type]
    try:
        loaded.verify(enforce_limit=False)
    except ScheduleError as error:
        if is_path:
            raise FormatError(f"{os.fspath(given)}: not a schedule of {error}") from error  # type: ignore[arg-type]
        raise
    return loaded.problem, loaded.schedule


def _is_snapshot(given: object) -> bool:
    """Whether a memory snapshot is named."""
    return isinstance(given, (str, os.PathLike)) and kind_by_name(os.fspath(given)) == "snapshot"


def _by_line(
    a: GraphLike | ScheduleLike, b: GraphLike | ScheduleLike, graph: GraphLike | None, force: bool, note: Note
) -> ScheduleDifference:
    """Compare a snapshot with another one, or with a schedule."""
    from ..programs.graphs.snapshot import by_line, read_snapshot

    if graph is None and not (_is_snapshot(a) and _is_snapshot(b)):
        raise UsageError(f"a snapshot is compared with another one, or with a schedule of {spelled('graph')}")
    plan = None if graph is None else graph_of(graph, note)
    peaks: list[Peak] = []
    reserved: list[int | None] = []
    for given in (a, b):
        if _is_snapshot(given):
            snapshot = read_snapshot(os.fspath(given), note)  # type: ignore[arg-type]
            peaks.append(snapshot.peak())
            reserved.append(snapshot.reserved_then)
        else:
            assert plan is not None
            peaks.append(by_line(alive_at_peak(*_schedule_of(given, plan, force)), plan))
            reserved.append(None)
    name = "bytes by line of the code"
    return ScheduleDifference(name, _names(a, b), (peaks[0], peaks[1]), (reserved[0], reserved[1]))


def _is_schedule(path: Path) -> bool:
    """Whether a file is a schedule by its content."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "steps" in document


def _names(a: object, b: object, first: str = "a", second: str = "b") -> tuple[str, str]:
    """Call each file by its name without endings, or by its whole path where they share one."""
    given = (a, b)
    names = []
    for value, name in zip(given, (first, second), strict=True):
        is_path = isinstance(value, (str, os.PathLike))
        names.append(Path(value).name.partition(".")[0] if is_path else name)  # type: ignore[arg-type]
    if names[0] != names[1]:
        return names[0], names[1]
    texts = [os.fspath(v) if isinstance(v, (str, os.PathLike)) else n for v, n in zip(given, ("a", "b"), strict=True)]
    return (texts[0], texts[1]) if texts[0] != texts[1] else ("a", "b")
