"""Constraint programming with OR-Tools' CP-SAT (REGAL A.10); its proofs are explained in `docs/methods/exact.md`."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...base.errors import SchedoptError, UsageError
from ...base.parallel import call_aside
from ...problem.problem import Problem
from ...problem.schedule import Schedule
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Cancelled, Search
from .. import portfolio as auto
from .constraints import knows_memory, minimised_excess, minimised_makespan, minimised_peak
from .recompute import RetentionModel
from .variables import Variables, is_over

EDITS_AS_ONE = 20
MOST_TRANSFERS = 1_000_000  # tensors times pairs of devices; more take gigabytes


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Without a good hint the solver needs minutes for schedules that other methods find at once."""

    hint: int = parameter(1000, "evaluations of auto for the schedule to be hinted with; 0: the input order", low=0)
    copies: int = parameter(2, "how often an op may run, with --recompute", low=1, high=8)
    fixed: int = parameter(0, "1: first runs keep the input order, with --recompute", low=0, high=1)

    def check(self, problem: Problem) -> None:
        """Refuse the peak where it depends on when transfers run."""
        if problem.task == "memory" and not knows_memory(problem):
            raise UsageError(
                "method 'cp-sat' minimises the makespan alone where transfers run beside work; for the peak use auto"
            )


def parts(problem: Problem, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods used for a problem; `auto` finds the hint within some evaluations."""
    return [*auto.parts(problem, is_counted=not problem.recompute), "cp-sat"]


def solve(search: Search, parameters: Parameters) -> None:
    """Offer each schedule that the solver finds, and raise the bound to its proofs."""
    # For the makespan under a memory limit that no schedule known keeps, the peak is minimised first: the result is the
    # next hint, or else the schedule of least excess. The solver's strategies take turns (`interleave_search`), so a
    # run that ends by itself does not depend on the number of workers.
    search.offer_order(search.problem.graph.input_order)
    with search.part(evaluations=parameters.hint * (EDITS_AS_ONE if search.problem.recompute else 1)):
        if not search.exhausted():
            again = "fixed-order" if parameters.fixed else "recompute"  # of whose methods in `auto` this is one
            search.run(again if search.problem.recompute else "auto")
    if search.exhausted() or math.isinf(search.lower_bound):
        return
    with suppress(Cancelled):
        if search.problem.recompute:
            _recompute(search, parameters)
        else:
            _minimise_in_turn(search)


def _minimise_in_turn(search: Search) -> None:
    """Minimise the excess over memory limits if there is any, then the task's value, and record the bounds."""
    problem = search.problem
    is_alike = problem.counts_alike and len({*problem.memory_limits}) == 1
    if problem.graph.num_tensors * problem.devices**2 > MOST_TRANSFERS:
        search.note("the graph has too many tensors for cp-sat on so many devices")
        return
    is_peak_alone = problem.task == "memory" and is_alike  # which less peak exceeds less
    if knows_memory(problem) and search.best_fitness[0] and not is_peak_alone:
        if _minimise(search, *minimised_excess(search)) > 0:
            search.raise_lower_bound(math.inf)  # no schedule keeps the limits
        if search.best_fitness[0] or is_over(search):
            return
    minimised = minimised_peak if problem.task == "memory" else minimised_makespan
    search.raise_lower_bound(_minimise(search, *minimised(search)))


def _minimise(search: Search, model: Variables | RetentionModel, in_units: Callable[[float], float]) -> float:
    """Solve a model; return its bound, bytes or microseconds, infinite where it has no schedule."""
    from ortools.sat.python import cp_model

    solver, status = _run(search, model)
    return math.inf if status == cp_model.INFEASIBLE else in_units(solver.best_objective_bound)


def _recompute(search: Search, parameters: Parameters) -> None:
    """Decide order and repeated runs, and raise the bound to the one for any number of runs, in any order."""
    problem = search.problem
    model = RetentionModel(search, parameters.copies, bool(parameters.fixed))
    bound = _minimise(search, model, model.bound)
    of_all = 0.0 if parameters.fixed else model.bound_of_all(bound)
    if of_all < bound and bound > search.lower_bound:
        order = " in the input order" if parameters.fixed else ""
        found = "keeps the limit" if math.isinf(bound) else f"is better than {problem.format_value(bound)}"
        search.note(
            f"no schedule{order} that runs an op at most {parameters.copies} times {found}",
            instead_of=f"no schedule{order} that runs an op at most",
        )
    search.raise_lower_bound(of_all)


def _run(search: Search, model: Variables | RetentionModel) -> tuple[Any, Any]:
    """Solve on another thread while this one offers its schedules; return the solver and its status."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = search.jobs
    solver.parameters.interleave_search = True
    solver.parameters.catch_sigint_signal = False  # it would leave Python without a handler
    solver.parameters.symmetry_level = model.symmetry_level
    solver.parameters.random_seed = int(search.rng.integers(2**31))
    if search.is_timed:
        solver.parameters.max_time_in_seconds = max(0.0, search.seconds_left())
    found: list[Schedule] = []

    class Collect(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            found.append(model.schedule(self.value))

    def between() -> bool:
        _offer(search, found)
        if is_over(search) or search.is_optimal:
            solver.stop_search()
        return False

    try:
        status = call_aside(lambda: solver.solve(model.model, Collect()), between)
    except (IndexError, RuntimeError) as error:
        search.note(f"cp-sat gave up: OR-Tools failed with {error}")
        raise Cancelled from error
    finally:
        solver.stop_search()  # where an exception of a signal ends the wait
    _offer(search, found)
    if status == cp_model.MODEL_INVALID:
        reason = model.model.validate()
        raise SchedoptError(f"{search.problem.graph.name}: cp-sat cannot take this model: {reason}")
    if status in (cp_model.FEASIBLE, cp_model.UNKNOWN) and not search.is_optimal:
        search.steered_by_time()  # the solver may see the end of its time before this thread does
    return solver, status


def _offer(search: Search, found: list[Schedule]) -> None:
    while found:
        search.spend(1)
        search.offer(found.pop(0))
