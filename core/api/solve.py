"""`schedopt.solve`."""

import os
from dataclasses import replace
from typing import Literal

from ..base.errors import UsageError
from ..base.options import options_in, spelled
from ..problem.machine import Machine
from ..problem.problem import Problem, Task
from ..report.result import Result
from ..search.method_spec import MethodSpec, parse_method
from ..search.options import ProblemOptions, SolveOptions
from ..search.registry import DEFAULT_METHOD
from ..solve.placed import solve_and_place
from .graphs import GraphLike, ScheduleLike, graph_of, loaded_schedule


def solve(
    graph: GraphLike | Problem,
    method: str | MethodSpec = DEFAULT_METHOD,
    *,
    task: Task | None = None,
    devices: int | None = None,
    memory_limit: int | str | None = None,
    bandwidth: float | str | None = None,
    latency: float | str | None = None,
    evaluations: int | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    jobs: int = 1,
    initial: ScheduleLike | None = None,
    recompute: bool = False,
    max_overhead: float | str | None = None,
    addresses: bool = False,
    align: int | str | None = None,
    allocator: str | None = None,
    machine: Machine | str | os.PathLike[str] | None = None,
    op_times: str | os.PathLike[str] | None = None,
    pins: Literal["from-graph"] | None = None,
    replicate: bool = False,
) -> Result:
    """Schedule a graph for least peak memory or least time, and verify the schedule.

    Parameters
    ----------
    graph
        A graph, the path of a CostGraphDef file, or a `Problem`, which says everything from `task` to `latency` itself.
    method
        A name of `schedopt.methods()`, with parameters as in `"brkga:elites=10"`; `auto` by default.
    task
        The objective: `memory`, the peak of the fullest device (default), or `runtime`, the makespan.
    devices
        1 to 64; by default 1 for memory, 2 for runtime and for methods made for several devices.
    memory_limit
        Bytes per device, as `5242880` or `"5MiB"`, or a share of the input order's peak, as `"60%"`; by default none.
    bandwidth, latency
        Between devices: `"10GB/s"` or bytes per second, by default infinite, and the latency of each transfer, as
        `"5us"` or a number of microseconds, by default 0.
    evaluations, time_limit
        Complete schedules priced, and wall time, as `"2s"` or a number of seconds; by default the method's own.
    seed, jobs
        Seed of every random choice, and worker threads; 0 and 1 by default. With a time limit alone `auto` searches in
        as many ways at once; any other result does not depend on `jobs`.
    initial
        A schedule to start from, for methods that search; the result is never worse. A `Schedule`, a `Result`, the path
        of a schedule file, or the names of all ops in order.
    recompute, max_overhead
        Whether ops may run again (False), on one device: with `memory_limit` for the least added time that keeps it, or
        for the least peak with at most a share of the time of all ops added, as `"10%"` or 0.1.
    addresses, align
        Whether to give all that the schedule makes an offset in its device's arena, and to choose an order whose arena
        is small (False); the unit of offsets, as 16 or `"64B"` (64). The time limit is for both.
    allocator
        `"cuda"`, or with options as `"cuda:expandable_segments:True"`: on one device, choose the order and an opening
        block for which PyTorch's caching allocator reserves least; a memory limit then is one of what it reserves.
    machine, op_times, pins
        A `Machine` or the path of its file, in place of `devices`, `bandwidth` and `latency`; a CSV file of times by
        kind of device, else an op takes runtime / speed; `"from-graph"` for ops on the devices that the graph names.
    replicate
        Whether weights that no op writes are on each device that reads them, instead of being sent; not by default.

    Returns
    -------
    Result
        The best schedule found; `status` is `limit-not-met` if none keeps the memory limit, `infeasible` if
        that is proven of all.

    Raises
    ------
    UsageError, ScheduleError
        If a value is not understood, or the method cannot solve this problem or start from that schedule.
    FormatError, GraphError
        If a file cannot be read, or its graph breaks a rule.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("diamond")
    >>> source = builder.add_op("source", outputs=[4096], runtime=1.0)
    >>> left = builder.add_op("left", inputs=[(source, 0)], outputs=[1024], runtime=4.0)
    >>> right = builder.add_op("right", inputs=[(source, 0)], outputs=[1024], runtime=4.0)
    >>> sink = builder.add_op("sink", inputs=[(left, 0), (right, 0)], outputs=[64], runtime=1.0)
    >>> schedopt.solve(builder.build(), task="memory", time_limit="2s").peak_memory
    6144
    >>> schedopt.solve(builder.build(), task="runtime", devices=2, latency="1us", time_limit=2).runtime
    8.0
    """
    given = {name: value for name, value in locals().items() if not (name in ("task", "latency") and value is None)}
    spec = parse_method(method) if isinstance(method, str) else method
    if not isinstance(spec, MethodSpec):
        raise UsageError(f"a method is a name such as 'auto', not {method!r}")
    notes: list[str] = []
    if isinstance(graph, Problem):
        names = [field.name for field in options_in(ProblemOptions) if field.name != "allocator"]
        for name in names:
            if given.get(name) is not None and given[name] is not False:
                raise UsageError(f"a Problem has its own {name}; give {spelled(name, given[name])} only with a graph")
        options = SolveOptions.picked({name: value for name, value in given.items() if name not in names})
        problem = graph
    else:
        options = SolveOptions.picked(given).for_methods([spec.name])
        problem = options.problem(graph_of(graph, notes.append))
    start = None if initial is None else loaded_schedule(initial, problem.graph).schedule
    result = solve_and_place(problem, spec, options.alignment, options.allocator, **options.budget, initial=start)
    return replace(result, notes=(*notes, *result.notes))
