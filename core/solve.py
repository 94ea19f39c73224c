"""The main job: problem and method in, verified result out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from .costs.bounds import is_met, lower_bound, min_cut_bound
from .costs.simulator import Simulation, simulate
from .costs.verifier import verify
from .problem import Problem
from .schedule import Schedule
from .search.method_spec import MethodSpec, check_supported, parse_method
from .search.registry import DEFAULT_METHOD, INPUT_METHOD, load
from .search.search import Search, Watcher
from .search.warm_up import warm_up


@dataclass(frozen=True, eq=False)
class Result:
    """A verified schedule and how good it is.

    Parameters
    ----------
    problem, schedule, simulation
        What was solved, the best schedule found, and what it costs.
    method, found_by
        What was asked for, and what produced the schedule.
    status
        `optimal` (value equals the bound), `feasible`, `infeasible` (no schedule kept the memory limit; this
        is the one of least excess) or `interrupted`.
    lower_bound
        Bytes or microseconds that no schedule can beat.
    evaluations
        Complete schedules priced.
    seconds
        Wall time from the graph loaded and the kernels compiled.
    seed
        Of every random choice.
    is_repeatable
        Whether the same call gives the same schedule: not if time ended or steered the search.
    notes
        What the method has to say about the run, a sentence each.
    """

    problem: Problem
    schedule: Schedule
    simulation: Simulation
    method: str
    found_by: str
    status: str
    lower_bound: float
    evaluations: float
    seconds: float
    seed: int
    is_repeatable: bool
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """What the task minimises: peak bytes or makespan in microseconds."""
        return self.problem.value(self.simulation.peak, self.simulation.runtime)

    @property
    def gap(self) -> float:
        """Relative distance from the lower bound: 0 is optimal."""
        return self.value / self.lower_bound - 1 if self.lower_bound else math.inf if self.value else 0.0

    @property
    def is_feasible(self) -> bool:
        """Whether the schedule keeps the memory limit."""
        return self.problem.is_feasible(self.simulation.peak)


def solve(
    problem: Problem,
    method: str | MethodSpec = DEFAULT_METHOD,
    *,
    evaluations: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    initial: Schedule | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Solve a problem with a method, verify the schedule, and bound what is possible.

    Parameters
    ----------
    problem
        What to minimise, on which devices.
    method
        A name of the registry, with parameters as in `name:parameter=value`.
    evaluations, time_limit
        Budget of complete schedules priced, and of seconds; by default the method's own.
    seed, jobs
        Seed of every random choice; worker threads, on which the result does not depend.
    initial
        A schedule to start from, for methods that search: one evaluation, and never made worse.
    watcher
        Who is told how the run goes, and may stop it with the best so far.

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
        watcher=watcher,
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
        search.working = INPUT_METHOD
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


def reference_value(problem: Problem) -> float:
    """Return the value of the input order with all ops on device 0."""
    simulation = simulate(problem, Schedule.single_device(problem.graph.input_order))
    return problem.value(simulation.peak, simulation.runtime)
