"""The one verb: problem and method in, verified result out."""

import math
import time

from ..base.arrays import IndexArray
from ..base.errors import ScheduleError, UsageError
from ..bounds.bounds import is_met, lower_bound, min_cut_bound
from ..bounds.recompute_bounds import recompute_bound, why_infeasible
from ..model.simulator import simulate
from ..model.unrolled import repeated_ops
from ..model.verifier import verify
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from ..report.explanation import infeasible_reason
from ..report.result import Result
from ..search.method_spec import MethodSpec, check_supported, parse_method
from ..search.registry import DEFAULT_METHOD, INPUT_METHOD
from ..search.search import Search, Watcher
from ..search.warm_up import warm_up
from ..solvers.placements.list_schedulers import list_schedule, seconds_to_list

RECOMPUTE_BOUND_SHARE = 0.1
"""Of the time, before the search and after it, to bound what recomputation costs."""
BOUND_SHARE = 0.2
PARTITION_BOUND_SHARE = 0.05
"""Of the time, before the search, to bound what must be sent; without a limit it is bounded after the search."""


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
    """Solve a problem with a method, verify the schedule, and bound what is possible; see `schedopt.solve`."""
    spec = parse_method(method) if isinstance(method, str) else method
    evaluations, time_limit = spec.evaluations or evaluations, spec.time_limit or time_limit
    check_supported(spec, problem, evaluations, initial)
    if initial is not None:
        _check_start(problem, initial)
    if evaluations is None and time_limit is None:
        evaluations, time_limit = spec.method.default_evaluations, spec.method.default_seconds
    warm_up(problem, spec, evaluations, jobs)

    start, seconds = time.monotonic(), math.inf if time_limit is None else time_limit
    search = Search(
        problem,
        seed=seed,
        jobs=jobs,
        max_evaluations=math.inf if evaluations is None else evaluations,
        deadline=start + seconds,
        watcher=watcher,
        initial=initial,
        kept_back=seconds_to_list(problem) if _is_listed(problem) else 0.0,
    )
    stop = lambda: search.interrupt.is_set() or search.is_past(start + BOUND_SHARE * seconds)  # noqa: E731
    search.raise_lower_bound(lower_bound(problem, stop))
    _run_and_bound(search, spec)
    return _result(search, spec, seed, time.monotonic() - start)


def _check_start(problem: Problem, initial: Schedule) -> None:
    """Refuse a schedule to start from that is none of the problem."""
    graph, items = problem.graph, initial.items
    again = [] if problem.recompute else repeated_ops(graph, items[(items >= 0) & (items < graph.num_ops)].tolist())
    if again:
        raise UsageError(
            f"{graph.name}: the schedule to start from runs op {graph.op_label(again[0])} again, which --recompute "
            "alone allows, on one device; start from a schedule that runs each op once"
        )
    try:
        verify(problem, initial, enforce_limit=False)
    except ScheduleError as error:
        raise ScheduleError(f"the schedule to start from is none of {error}") from error


def run(search: Search, spec: MethodSpec) -> None:
    """Offer the schedule to start from, then what the method finds; a quick one if it had no time for any."""
    if search.initial is not None:
        search.spend(1)
        search.offer(search.initial, by="initial")
    search.run(spec.name, spec.parameters)
    if search.best is None:
        _offer_fallback(search, spec)


def _is_listed(problem: Problem) -> bool:
    """Whether a list schedule takes the place of a method that had no time."""
    return problem.devices > 1 and problem.task == "runtime" and not problem.is_limited


def _offer_fallback(search: Search, spec: MethodSpec) -> None:
    """Offer what takes least time instead of a method that had too little: a list schedule, or the input order."""
    problem = search.problem
    is_late = search.exhausted() or search.depends_on_time
    why = f"{'there was no time' if is_late else 'the graph and its devices are too large'} for {spec.name}"
    if search.evaluations and not (problem.machine.has_link.all() or search.interrupt.is_set()):
        why = f"every plan that {spec.name} tried needs a link that the devices lack"
    why = f"{problem.graph.name}: {why}"
    if _is_listed(problem) and not search.interrupt.is_set():
        schedule = list_schedule(problem, search.interrupt.is_set)
        if schedule is not None:
            search.note(f"{why}; this is a list schedule")
            search.offer(schedule)
            return
    search.note(f"{why}; this is the input order")
    search.offer_order(problem.graph.input_order, by=INPUT_METHOD)


def strengthen_bound(search: Search) -> None:
    """Add the min-cut bound on the peak, as far as its allowance of work goes."""
    problem = search.problem
    if problem.task != "memory" or search.is_optimal or math.isinf(search.lower_bound):
        return
    assert search.best is not None
    known, stop = search.lower_bound, search.interrupt.is_set
    bound = min_cut_bound(problem, search.best.op_order(), known, stop=stop, has_time_for=search.has_time_for)
    search.raise_lower_bound(bound)


def _run_and_bound(search: Search, spec: MethodSpec) -> None:
    """Run the method, then bound what is possible."""
    if not search.problem.recompute:
        if search.is_timed:
            with search.part(until=search.share_of_time(PARTITION_BOUND_SHARE)):
                _raise_partition_bound(search)
        run(search, spec)
        strengthen_bound(search)
        if not search.is_timed:
            _raise_partition_bound(search)
        return
    with search.part(until=search.share_of_time(1 - RECOMPUTE_BOUND_SHARE)):
        _raise_recompute_bound(search, search.problem.graph.input_order, search.share_of_time(RECOMPUTE_BOUND_SHARE))
        run(search, spec)
    if not search.is_optimal and search.lower_bound < math.inf:
        assert search.best is not None
        _raise_recompute_bound(search, search.best.first_runs(), search.deadline)


def _raise_partition_bound(search: Search) -> None:
    """Add what any even placement must send to the bound on the makespan of several devices."""
    problem = search.problem
    if problem.task == "runtime" and problem.transfers_take_time and not search.is_optimal:
        from ..bounds.partition_bounds import partition_bound

        stop, has_time_for = search.interrupt.is_set, search.has_time_for
        search.raise_lower_bound(partition_bound(problem, search.lower_bound, stop=stop, has_time_for=has_time_for))


def _raise_recompute_bound(search: Search, order: IndexArray, latest: float) -> None:
    memory = simulate(search.problem, Schedule.single_device(order)).step_memory
    stop = lambda: search.interrupt.is_set() or search.is_past(latest)  # noqa: E731
    with search.part(until=latest):
        bound = recompute_bound(search.problem, order, memory, stop=stop, has_time_for=search.has_time_for)
    search.raise_lower_bound(bound)


def _result(search: Search, spec: MethodSpec, seed: int, seconds: float) -> Result:
    """Verify the best schedule, and say how good it is."""
    problem = search.problem
    assert search.best is not None and search.best_simulation is not None
    simulation = search.best_simulation
    peaks, runtime = simulation.peak_per_device.tolist(), simulation.runtime
    verify(problem, search.best, peak_per_device=peaks, runtime=runtime, enforce_limit=False)
    bound, notes = search.lower_bound, list(search.notes)
    feasible, why = search.best_fitness[0] == 0, ""
    if not feasible and not problem.recompute:
        why = infeasible_reason(problem, bound)
    elif not feasible and math.isinf(bound):
        order = problem.graph.input_order
        why = why_infeasible(problem, order, simulate(problem, Schedule.single_device(order)).step_memory)
    notes += [why] if why else []
    if math.isinf(bound):
        bound = lower_bound(problem)
    is_rounding = math.isclose(search.best_value, bound, rel_tol=1e-12)
    if is_rounding or (feasible and is_met(search.best_value, bound)):
        bound = min(bound, search.best_value)
    if search.interrupt.is_set():
        status = "interrupted"
    elif not feasible:
        status = "infeasible" if why else "limit-not-met"
    else:
        status = "optimal" if search.is_optimal else "feasible"
    return Result(
        problem=problem,
        schedule=search.best,
        simulation=simulation,
        method=spec.name,
        found_by=search.found_by,
        status=status,
        lower_bound=problem.shown(bound),
        evaluations=search.evaluations,
        seconds=seconds,
        seed=seed,
        is_repeatable=not (search.timed_out or search.depends_on_time or search.interrupt.is_set()),
        notes=tuple(notes),
        is_proven_infeasible=bool(why),
    )
