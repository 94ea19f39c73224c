"""`schedopt.solve` and `schedopt.verify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Union

import numpy as np

from ..costs import verifier
from ..costs.verifier import Totals
from ..errors import UnknownNameError, UsageError
from ..files.schedule_json import read_schedule
from ..graph import CostGraph
from ..problem import Problem, Task
from ..problem_options import ProblemSettings, problem_settings, whole_number
from ..result import Result
from ..schedule import Schedule
from ..search.method_spec import MethodSpec, parse_method
from ..search.registry import DEFAULT_METHOD
from ..solve import solve as solve_problem
from ..units import parse_seconds
from .graphs import GraphLike, graph_of

ScheduleLike: TypeAlias = Union[Schedule, Result, str, "os.PathLike[str]", Sequence[str]]


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
) -> Result:
    """Schedule a graph for least peak memory or least time, and verify the schedule.

    Parameters
    ----------
    graph
        A graph, the path of a CostGraphDef file, or a `Problem`, which says everything from `task` to `latency` itself.
    method
        A name of `schedopt.methods()`, with parameters as in `"brkga:elites=10"`; `auto` by default.
    task
        What to minimise: `memory`, the peak of the fullest device (default), or `runtime`, the makespan.
    devices
        1 to 64; by default 1 for memory, 2 for runtime and for methods that only place.
    memory_limit
        Bytes per device, as `5242880` or `"5MiB"`, or a share of the input order's peak, as `"60%"`; by default none.
    bandwidth
        Between devices, as `"10GB/s"` or a number of bytes per second; by default infinite.
    latency
        What each transfer adds, as `"5us"` or a number of microseconds; by default 0.
    evaluations
        Budget of complete schedules priced; by default the method's own.
    time_limit
        Wall time of the search, as `"2s"` or a number of seconds; by default the method's own.
    seed
        Seed of every random choice; 0 by default.
    jobs
        Worker threads, on which the result does not depend; 1 by default.
    initial
        A schedule to start from, for methods that search; the result is never worse. A `Schedule`, a `Result`, the path
        of a schedule file, or the names of all ops in order.

    Returns
    -------
    Result
        The best schedule found; `status` is `infeasible` if none keeps the memory limit.

    Raises
    ------
    UsageError
        If a value is not understood, or the method cannot solve this problem or start from a schedule.
    FormatError, GraphError
        If a file cannot be read, or its graph breaks a rule.
    ScheduleError
        If the schedule to start from is not one of this problem.

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
    spec = parse_method(method) if isinstance(method, str) else method
    if not isinstance(spec, MethodSpec):
        raise UsageError(f"a method is a name such as 'auto', not {method!r}")
    given = {"task": task, "devices": devices, "memory_limit": memory_limit, "bandwidth": bandwidth, "latency": latency}
    notes: list[str] = []
    problem = _problem(graph, spec, given, notes)
    result = solve_problem(
        problem,
        spec,
        evaluations=None if evaluations is None else whole_number(evaluations, "evaluations", 1),
        time_limit=None if time_limit is None else parse_seconds(time_limit),
        seed=whole_number(seed, "seed", 0),
        jobs=whole_number(jobs, "jobs", 1),
        initial=None if initial is None else schedule_of(initial, problem.graph),
    )
    return replace(result, notes=(*notes, *result.notes))


def _problem(graph: GraphLike | Problem, spec: MethodSpec, given: dict[str, Any], notes: list[str]) -> Problem:
    if isinstance(graph, Problem):
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"a Problem has its own {name}; give {name} only with a graph, not {value!r}")
        return graph
    given["task"] = given["task"] or "memory"
    given["latency"] = given["latency"] or 0.0
    return ProblemSettings(**problem_settings(**given, methods=[spec.name])).problem(graph_of(graph, notes.append))


def verify(problem: GraphLike | Problem, schedule: ScheduleLike) -> Totals:
    """Replay a schedule under the rules of the cost model, by code that no solver shares.

    Parameters
    ----------
    problem
        A `Problem`, whose memory limit must be kept; or a graph or the path of its file, which stand for the problem
        that the schedule was made for: that of the `Result` or the file, else without limits and with free transfers.
    schedule
        A `Schedule`, a `Result`, the path of a schedule file, or the names of all ops in order, all on device 0. What
        a result or a file claims is checked, too.

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
    schedopt.core.errors.ScheduleError: chain: op 'sink' runs before its input 'source:0' is on device 0
    """
    graph = problem.graph if isinstance(problem, Problem) else graph_of(problem)
    claimed: dict[str, Any] = {}
    if isinstance(schedule, Result):
        simulation, made_for = schedule.simulation, schedule.problem
        if made_for.graph != graph:
            raise UsageError(f"the result is of another graph, '{made_for.graph.name}', not of '{graph.name}'")
        claimed = {"peak_per_device": simulation.peak_per_device.tolist(), "runtime": simulation.runtime}
        steps, limited = schedule.schedule, schedule.is_feasible
    elif isinstance(schedule, (str, os.PathLike)):
        loaded = read_schedule(os.fspath(schedule), graph)
        claimed = loaded.claims
        steps, made_for, limited = loaded.schedule, loaded.problem, loaded.status != "infeasible"
    else:
        steps, limited = schedule_of(schedule, graph), True
        made_for = Problem(graph, devices=1 + max(0, int(steps.targets.max(initial=0))))
    if isinstance(problem, Problem):
        same = replace(problem, memory_limit=None) == replace(made_for, memory_limit=None, task=problem.task)
        return verifier.verify(problem, steps, **(claimed if same else {}))
    return verifier.verify(made_for, steps, **claimed, enforce_limit=limited)


def schedule_of(given: ScheduleLike, graph: CostGraph) -> Schedule:
    """Return the steps of whatever stands for a schedule of a graph.

    Raises
    ------
    UsageError
        If it is no schedule.
    UnknownNameError
        If it names an op that the graph does not have.
    """
    if isinstance(given, Schedule):
        return given
    if isinstance(given, Result):
        return given.schedule
    if isinstance(given, (str, os.PathLike)):
        return read_schedule(os.fspath(given), graph).schedule
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise UsageError(
            "a schedule is a Schedule, a Result, the path of a schedule file, or a list of op names, "
            f"not a {type(given).__name__}"
        )
    ops = {name: op for op, name in enumerate(graph.op_names)}
    for name in given:
        if name not in ops:
            raise UnknownNameError(f"the schedule names the op '{name}', which {graph.name} does not have")
    return Schedule.single_device(np.array([ops[name] for name in given], np.int64))
