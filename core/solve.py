"""The main job: problem and method in, verified result out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from .costs.bounds import is_met, lower_bound, min_cut_bound
from .costs.simulator import simulate
from .costs.verifier import verify
from .graph import CostGraph
from .graph_builder import GraphBuilder
from .problem import Problem
from .result import Result as Result
from .result import reference_value as reference_value
from .schedule import Schedule
from .search.registry import MethodSpec, check_supported, load, parameters_class, parse_method, parts_of
from .search.search import Search


def solve(
    problem: Problem,
    method: str | MethodSpec = "auto",
    *,
    evaluations: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    initial: Schedule | None = None,
    interrupt: threading.Event | None = None,
    on_progress: Callable[[Search], None] | None = None,
) -> Result:
    """Solve a problem with a method, verify the schedule, and bound what is possible.

    Parameters
    ----------
    problem
        What to minimise, on which devices.
    method
        A name of the registry, with parameters as in `brkga:elites=10`.
    evaluations, time_limit
        Budget of complete schedules priced, and of seconds; by default the method's own.
    seed, jobs
        Seed of every random choice; worker threads, on which the result does not depend.
    initial
        A schedule to start from, for methods that search: one evaluation, and never made worse.
    interrupt
        Set it from another thread or a signal handler to stop with the best so far.
    on_progress
        Called with the `Search` now and then.

    Raises
    ------
    UsageError
        If the method cannot solve this problem or start from a schedule.
    ScheduleError
        If the schedule to start from is not one of this problem.
    """
    spec = parse_method(method) if isinstance(method, str) else method
    evaluations = spec.evaluations or evaluations
    time_limit = spec.time_limit or time_limit
    check_supported(spec, problem, evaluations, initial)
    if initial is not None:
        verify(problem, initial, enforce_limit=False)
    if evaluations is None and time_limit is None:
        evaluations, time_limit = spec.method.default_evaluations, spec.method.default_seconds
    warm_up(problem, spec)

    start = time.monotonic()
    search = Search(
        problem,
        seed=seed,
        jobs=jobs,
        max_evaluations=math.inf if evaluations is None else evaluations,
        deadline=math.inf if time_limit is None else start + time_limit,
        interrupt=interrupt,
        on_progress=on_progress,
        initial=initial,
        lower_bound=lower_bound(problem),
    )
    if initial is not None:
        search.working = "initial"
        search.evaluations += 1
        search.offer(initial)
    search.working = spec.name
    load(spec.name)(search, spec.parameters)
    if search.best is None:
        search.working = "input"
        search.offer(Schedule.single_device(problem.graph.input_order))
    strengthen_bound(search)
    return _result(search, spec, seed, time.monotonic() - start)


def strengthen_bound(search: Search) -> None:
    """Add the min-cut bound on one device's peak memory, as far as its allowance of work goes."""
    problem = search.problem
    if problem.task != "memory" or problem.devices > 1 or search.is_optimal:
        return
    assert search.best is not None and search.best_simulation is not None
    bound = min_cut_bound(
        problem.graph,
        search.best.op_order(),
        search.best_simulation.step_memory,
        int(search.lower_bound),
        stop=search.interrupt.is_set,
        has_time_for=search.has_time_for,
    )
    search.raise_lower_bound(bound)


def _result(search: Search, spec: MethodSpec, seed: int, seconds: float) -> Result:
    problem = search.problem
    assert search.best is not None and search.best_simulation is not None
    simulation = search.best_simulation
    verify(
        problem,
        search.best,
        peak_per_device=simulation.peak_per_device.tolist(),
        runtime=simulation.runtime,
        enforce_limit=False,
    )
    bound = search.lower_bound
    if is_met(search.best_value, bound):
        bound = min(bound, search.best_value)
    feasible = search.best_fitness[0] == 0
    if search.interrupt.is_set():
        status = "interrupted"
    elif not feasible:
        status = "infeasible"
    else:
        status = "optimal" if search.is_optimal else "feasible"
    return Result(
        problem=problem,
        schedule=search.best,
        simulation=simulation,
        method=spec.name,
        found_by=search.found_by,
        status=status,
        lower_bound=bound,
        evaluations=search.evaluations,
        seconds=seconds,
        seed=seed,
        is_repeatable=not (search.timed_out or search.depends_on_time or search.interrupt.is_set()),
        notes=tuple(search.notes),
    )


def warm_up(problem: Problem, spec: MethodSpec) -> None:
    """Run a method, and the methods it may use, on a tiny graph, so that their kernels are compiled."""
    tiny = problem.with_graph(_tiny_graph())
    for part in parts_of(spec.name, problem):
        if tiny.memory_limit is not None:  # annealing does more when the limit cannot be kept
            tiny = replace(tiny, memory_limit=1 if part == "annealing" else 10**9)
        if part in ("order-search", "annealing"):
            from .solvers.one_device import order_search

            order_search.compile_kernels(tiny.graph)
        search = Search(tiny, max_evaluations=20, lower_bound=-1.0)
        load(part)(search, spec.parameters if part == spec.name else parameters_class(part)())
        assert search.best is not None
    order = tiny.graph.input_order
    min_cut_bound(tiny.graph, order, simulate(tiny, Schedule.single_device(order)).step_memory)


def _tiny_graph() -> CostGraph:
    builder = GraphBuilder("tiny")
    builder.add_op("a", outputs=[4, 8], runtime=1.0)
    builder.add_op("b", inputs=[(0, 0)], outputs=[4], aliases=[0], runtime=1.0, workspace=2)
    builder.add_op("c", inputs=[(0, 1)], outputs=[2], runtime=2.0, persistent=1)
    builder.add_op("d", inputs=[(1, 0), (2, 0)], control=[0], outputs=[1], is_final=True, runtime=1.0)
    return builder.build()
