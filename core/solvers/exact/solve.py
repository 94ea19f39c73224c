"""Constraint programming with OR-Tools' CP-SAT (REGAL A.10): order, tensor lifetimes and cumulative memory.

The model is in `variables`, `constraints` and `objective`, its whole numbers in `units`, the schedule that it is hinted
with in `hint`; that of recomputation is in `recompute`, that of machines in `machines`. What it proves, and when it is
worth its time: `docs/methods/exact.md`.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from ...base.errors import SchedoptError, UsageError
from ...problem.problem import Problem
from ...problem.residents import GraphWithHomes
from ...problem.schedule import Schedule
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.search import Search
from .. import portfolio as auto
from .constraints import add_memory_constraints, add_time_constraints
from .hint import improve
from .machines import MachineModel
from .objective import minimise_makespan, minimise_peak
from .recompute import RetentionModel
from .units import Units, units_of
from .variables import OutOfTimeError, Variables, is_over

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Without a good hint the solver needs minutes for what other methods find at once."""

    hint: int = parameter(1000, "evaluations of auto for the schedule to be hinted with; 0: the input order", low=0)
    copies: int = parameter(2, "how often an op may run, with --recompute", low=1, high=8)
    fixed: int = parameter(0, "1: first runs keep the input order, with --recompute", low=0, high=1)

    def check(self, problem: Problem) -> None:
        """Refuse the peak where devices, or what lies on them, differ."""
        if problem.task == "memory" and not _is_symmetric(problem):
            what = "weights that several devices read" if problem.hardware.is_equal else "a machine"
            raise UsageError(f"method 'cp-sat' minimises the makespan alone with {what}; for the peak use auto")


def parts(problem: Problem, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods used for a problem; `auto` finds the hint within some evaluations."""
    return [*auto.parts(problem, is_counted=not problem.recompute), "cp-sat"]


def _is_symmetric(problem: Problem) -> bool:
    """Whether devices can be exchanged: they are equal, and nothing lies on any of them."""
    return problem.hardware.is_equal and not isinstance(problem.graph, GraphWithHomes)


def _hinting(problem: Problem, parameters: Parameters) -> str:
    """Return the method that finds the hint: `auto`, of whose methods with recomputation this is one."""
    if not problem.recompute:
        return "auto"
    return "fixed-order" if parameters.fixed else "recompute"


def solve(search: Search, parameters: Parameters) -> None:
    """Offer each schedule that the solver finds, and raise the bound to what it proves.

    It is hinted with the best schedule known: that to start from, the input order, or what `auto` finds. For
    the makespan under a memory limit that none of them keeps, the peak is minimised first, down to the limit:
    the result is the next hint, or else the schedule of least excess. The solver's strategies take turns
    (`interleave_search`), so a run that ends by itself does not depend on the number of workers. Each schedule
    offered counts one evaluation.
    """
    search.offer_order(search.problem.graph.input_order)
    improve(search, parameters.hint, _hinting(search.problem, parameters))
    if search.exhausted() or math.isinf(search.lower_bound):
        return
    problem = search.problem
    try:
        if problem.recompute:
            _recompute(search, parameters)
            return
        if not _is_symmetric(problem):
            _on_machine(search)
            return
        if problem.task == "runtime" and search.best_fitness[0]:
            least = _minimise(search, "memory", problem.memory_limits[0])
            if problem.memory_limits[0] is not None and least > problem.memory_limits[0]:
                search.raise_lower_bound(math.inf)  # no schedule keeps the limit
        if (problem.task == "memory" or not search.best_fitness[0]) and not is_over(search):
            _minimise(search, problem.task, problem.memory_limits[0])
    except OutOfTimeError:
        return


def _minimise(search: Search, task: str, limit: int | None) -> float:
    """Build the model, solve it, and record what was proven; return that, bytes or microseconds."""
    from ortools.sat.python import cp_model

    units = units_of(search.problem, task)
    solver, status = _run(search, _build(search, units, task, limit))
    if status == cp_model.INFEASIBLE:
        return 0.0
    bound = math.ceil(solver.best_objective_bound - 1e-6)
    least: float = bound * units.bytes if task == "memory" else bound // units.steps * units.microseconds
    if task == search.problem.task:
        search.raise_lower_bound(least)
    return least


def _on_machine(search: Search) -> None:
    """Minimise the makespan on different devices, and raise the bound to what holds whatever their memory."""
    from ortools.sat.python import cp_model

    if MachineModel.is_too_large(search.problem):
        search.note("the graph has too many tensors for cp-sat on so many devices")
        return
    model = MachineModel(search)
    solver, status = _run(search, model)
    is_possible = status != cp_model.INFEASIBLE
    search.raise_lower_bound(model.bound(solver.best_objective_bound) if is_possible else math.inf)


def _recompute(search: Search, parameters: Parameters) -> None:
    """Decide order and repeated runs, and raise the bound to what holds however often ops run, in any order."""
    from ortools.sat.python import cp_model

    problem = search.problem
    model = RetentionModel(search, parameters.copies, bool(parameters.fixed))
    solver, status = _run(search, model)
    bound = math.inf if status == cp_model.INFEASIBLE else model.bound(solver.best_objective_bound)
    of_all = 0.0 if parameters.fixed else model.bound_of_all(bound)
    if of_all < bound and (bound > search.lower_bound or status == cp_model.INFEASIBLE):
        order = " in the input order" if parameters.fixed else ""
        found = "keeps the limit" if math.isinf(bound) else f"is better than {problem.format_value(bound)}"
        search.note(
            f"no schedule{order} that runs an op at most {parameters.copies} times {found}",
            instead_of=f"no schedule{order} that runs an op at most",
        )
    search.raise_lower_bound(of_all)


def _build(search: Search, units: Units, task: str, limit: int | None) -> Variables:
    """Return the model of the problem, to minimise what the task says."""
    variables = Variables(search, units)
    add_time_constraints(variables)
    if task == "memory" or limit is not None:
        variables.add_memory(limit if task == "runtime" else None)
        add_memory_constraints(variables)
    if task == "memory":
        minimise_peak(variables)
    else:
        minimise_makespan(variables)
    return variables


def _run(search: Search, variables: Variables | RetentionModel | MachineModel) -> tuple[Any, Any]:
    """Solve on another thread while this one offers what is found; return the solver and its status."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = search.jobs
    solver.parameters.interleave_search = True
    if isinstance(variables, MachineModel):
        solver.parameters.symmetry_level = 0  # else OR-Tools 9.15 fails on residents that do not fit
    solver.parameters.random_seed = int(search.rng.integers(2**31))
    if search.is_timed:
        solver.parameters.max_time_in_seconds = max(0.0, search.seconds_left())
    found: list[Schedule] = []

    class Collect(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            found.append(variables.schedule(self.value))

    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(solver.solve(variables.model, Collect()))
        except (IndexError, RuntimeError) as error:
            search.note(f"cp-sat gave up: OR-Tools failed with {error}")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(POLL_SECONDS)
        _offer(search, found)
        if is_over(search) or search.is_optimal:
            solver.stop_search()
    _offer(search, found)
    if not outcome:
        raise OutOfTimeError
    if outcome[0] == cp_model.MODEL_INVALID:
        reason = variables.model.validate()
        raise SchedoptError(f"{search.problem.graph.name}: cp-sat cannot take this model: {reason}")
    return solver, outcome[0]


def _offer(search: Search, found: list[Schedule]) -> None:
    while found:
        search.spend(1)
        search.offer(found.pop(0))
