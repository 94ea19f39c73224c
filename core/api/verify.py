"""`schedopt.verify`."""

from ..model import verifier
from ..model.verifier import Totals
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .graphs import GraphLike, ScheduleLike, graph_of, loaded_schedule


def verify(problem: GraphLike | Problem, schedule: ScheduleLike) -> Totals:
    """Replay a schedule under the rules of the cost model, by code that no solver shares.

    Parameters
    ----------
    problem
        A `Problem`, whose memory limit must be kept; or a graph or the path of its file, which stand for the problem
        that the schedule was made for: that of the `Result` or the file, else without limits and with free transfers.
    schedule
        A `Schedule`, a `Result`, the path of a schedule file, or the names of all ops in order, all on device 0.
        Values stated by a result or a file are checked, too.

    Returns
    -------
    Totals
        `peak`, `peak_per_device` (bytes) and `runtime` (microseconds).

    Raises
    ------
    ScheduleError
        Naming the first broken rule: an op missing or repeated, an input not there, a transfer missing, needless or
        twice, a wrong device, a claim that does not hold, the memory limit exceeded.
    UsageError, FormatError
        If it is no schedule, or a file cannot be read.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024], runtime=1.0)
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048], runtime=2.0)
    >>> schedopt.verify(builder.build(), ["source", "sink"])
    Totals(peak_per_device=[3072], runtime=3.0)
    >>> schedopt.verify(builder.build(), ["sink", "source"])
    Traceback (most recent call last):
    ...
    schedopt.core.base.errors.ScheduleError: chain: op 'sink' runs before its input 'source:0' is on device 0
    """
    if not isinstance(problem, Problem):
        return loaded_schedule(schedule, graph_of(problem)).verify()
    loaded = loaded_schedule(schedule, problem.graph)
    if not isinstance(schedule, Schedule):  # what is claimed is claimed under the problem that it was made for
        loaded.verify(enforce_limit=False)
    return verifier.verify(problem, loaded.schedule)
