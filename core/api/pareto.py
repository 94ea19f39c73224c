"""`schedopt.pareto`."""

import os
from typing import Literal

from ..experiments.comparison import opened
from ..experiments.pareto_front import ParetoFront
from ..experiments.pareto_search import Sweep, SweepFile
from ..problem.machine import Machine
from ..search.options import ParetoOptions
from .graphs import GraphLike, graph_of


def pareto(
    graph: GraphLike,
    *,
    points: int = 10,
    devices: int = 1,
    bandwidth: float | str | None = None,
    latency: float | str = 0.0,
    evaluations: int | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    jobs: int = 1,
    resume: str | os.PathLike[str] | None = None,
    machine: Machine | str | os.PathLike[str] | None = None,
    op_times: str | os.PathLike[str] | None = None,
    pins: Literal["from-graph"] | None = None,
    replicate: bool = False,
    allocator: str | None = None,
) -> ParetoFront:
    """Find the front of peak memory against time: on one device with recomputation, on several by placement.

    Parameters
    ----------
    graph, bandwidth, latency, evaluations, time_limit, seed, jobs, machine, op_times, pins, replicate
        As in `schedopt.solve`. The budget is of each search, of which there is one more than points; by default it is
        `auto`'s, ten seconds. On a machine no op runs again.
    allocator
        As in `schedopt.solve`: the front is of what it reserves, and so are the limits between its ends.
    points
        How many points are looked for, the ends included; 10 by default. Those that others beat are dropped.
    devices
        1, where ops may run again (default), or up to 64, where each runs once and the makespan is the time.
    resume
        A file that finished searches are written to and taken from, so that a front goes on where it stopped.

    Returns
    -------
    ParetoFront
        All points; printed, it is the table of `schedopt pareto`.

    Raises
    ------
    UsageError, FormatError, GraphError
        As in `schedopt.solve`, or if nothing takes time on several devices.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024], runtime=1.0)
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048], runtime=2.0)
    >>> front = schedopt.pareto(builder.build())
    >>> [(point.peak_memory, point.time) for point in front.points]
    [(3072, 3.0)]
    """
    given = locals()
    sweep = Sweep(graph_of(graph), ParetoOptions.picked(given))
    with opened(SweepFile, resume) as file:
        sweep.file = file
        return sweep.execute()
