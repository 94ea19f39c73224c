"""One run of one method: the shared incumbent, the budget, and when to stop."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..bounds.bounds import is_met
from ..model.simulator import Simulation, simulate
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .parameters import Parameters
from .registry import load, parameters_of

Item = TypeVar("Item")
_LOOK_EVERY = 64
_interrupt: ContextVar[threading.Event | None] = ContextVar("interrupt", default=None)


class Cancelled(Exception):
    """The search must stop amid work that gives no schedule before its end."""


@contextmanager
def interrupted_by(event: threading.Event) -> Iterator[None]:
    """Let an event stop every search of this thread that begins within and has no watcher, as Ctrl-C does."""
    before = _interrupt.set(event)
    try:
        yield
    finally:
        _interrupt.reset(before)


@dataclass(frozen=True)
class Watcher:
    """Who watches a run from outside: is told how it goes, and may stop it."""

    # set it from another thread or a signal handler to stop with the best so far; by default nobody does, but for who
    # uses `interrupted_by`
    interrupt: threading.Event = field(default_factory=lambda: _interrupt.get() or threading.Event())
    # called with the `Search` whenever that is asked whether to stop; by default nothing is
    on_progress: Callable[[Search], None] | None = None


@dataclass(eq=False, repr=False)
class Search:
    """The run of a method: it offers schedules, spends its budget, and asks whether to go on.

    Methods read its attributes; only its own methods change them.

    Parameters
    ----------
    problem
        The problem to solve.
    seed
        Seed of `rng`, or a generator to draw from.
    jobs
        Worker threads that a method may use; its result must not depend on them.
    max_evaluations, deadline
        Complete schedules that may be priced, and the `time.monotonic()` at which to stop; infinite by default.
    watcher
        Who is told of progress, and may stop the run early, as Ctrl-C does.
    initial
        A schedule to start from.
    lower_bound
        A value that no schedule can beat; reaching it ends the search.
    kept_back
        Seconds of the time limit kept for a fallback while nothing has been offered.

    Attributes
    ----------
    evaluations
        Complete schedules priced so far.
    best, best_simulation, best_fitness, found_by
        The best schedule offered, its cost, its `(excess, value)`, and the method that offered it.
    notes
        Sentences that the user should read.
    depends_on_time
        Whether the clock steered the run, so that a seed does not repeat it.

    Examples
    --------
    A method offers schedules or orders until its budget is spent:

    >>> def solve(search, parameters):
    ...     graph = search.problem.graph
    ...     while not search.exhausted():
    ...         search.offer_order(graph.input_order)
    """

    problem: Problem
    _: KW_ONLY
    seed: int | np.random.Generator = 0
    jobs: int = 1
    max_evaluations: float = math.inf
    deadline: float = math.inf
    watcher: Watcher | None = None
    initial: Schedule | None = None
    lower_bound: float = 0.0
    kept_back: float = 0.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        watcher = self.watcher or Watcher()
        self.interrupt, self.on_progress = watcher.interrupt, watcher.on_progress
        self.evaluations = 0.0
        self.best: Schedule | None = None
        self.best_simulation: Simulation | None = None
        self.best_fitness: tuple[int, float] = (2**63, math.inf)
        self.found_by = self.working = ""
        self.notes: list[str] = []
        self.timed_out = self.depends_on_time = False
        self._adopted = 0.0

    @property
    def best_value(self) -> float:
        """Value of the best schedule so far, as `Problem.value` has it; infinite before the first."""
        return self.best_fitness[1]

    @property
    def evaluations_left(self) -> float:
        """Complete schedules that may still be priced."""
        return self.max_evaluations - self.evaluations

    @property
    def is_optimal(self) -> bool:
        """Whether the best schedule is feasible and meets the lower bound."""
        return self.best_fitness[0] == 0 and is_met(self.best_value, self.lower_bound)

    @property
    def is_settled(self) -> bool:
        """Whether no schedule is better than the best: it is optimal, or as little above a limit as is proven."""
        problem = self.problem
        is_alike = problem.counts_alike and len({*problem.memory_limits}) == 1 and not problem.recompute
        is_least = problem.task == "memory" and is_alike and self.best is not None  # less peak exceeds limits less
        return self.is_optimal or (is_least and is_met(self.best_value, self.lower_bound))

    @property
    def is_timed(self) -> bool:
        """Whether a time limit was set."""
        return self.deadline < math.inf

    @property
    def is_counted(self) -> bool:
        """Whether evaluations are limited."""
        return self.max_evaluations < math.inf

    def run(self, method: str, parameters: Parameters | None = None, **given: Any) -> None:
        """Run a method of the registry as a part of this search, with its parameters or some of them by name."""
        before, self.working = self.working, method
        load(method)(self, parameters or parameters_of(method, **given))
        self.working = before or method

    def credit(self, method: str) -> None:
        """Name the method that finds the schedules offered from now on."""
        self.working = method

    def note(self, sentence: str, *, instead_of: str = "") -> None:
        """Tell the user a sentence, in place of one that began with other words if these are given."""
        if instead_of:
            self.notes = [note for note in self.notes if not note.startswith(instead_of)]
        self.notes.append(sentence)

    def spend(self, evaluations: float) -> None:
        """Count complete schedules priced."""
        self.evaluations += evaluations

    def steered_by_time(self) -> None:
        """Record that the clock steered the run."""
        self.depends_on_time = True

    def seconds_left(self) -> float:
        """Wall time left, infinite without a limit."""
        return self.deadline - time.monotonic()

    def share_of_time(self, share: float) -> float:
        """Return the moment at which a share of the time left will have passed, infinite without a limit."""
        return time.monotonic() + share * self.seconds_left()

    def is_past(self, moment: float) -> bool:
        """Whether a moment has passed; a run that was told so is not repeatable."""
        if time.monotonic() < moment:
            return False
        self.depends_on_time = True
        return True

    def has_time_for(self, seconds: float) -> bool:
        """Whether so much time is left; a run that was told that it is not is not repeatable."""
        if self.seconds_left() >= seconds:
            return True
        self.depends_on_time = True
        return False

    def exhausted(self) -> bool:
        """Whether time or evaluations have run out, Ctrl-C was pressed, or the bound is met."""
        return self.cancelled() or self.evaluations_left < 1 or self.is_settled

    def cancelled(self) -> bool:
        """Whether time has run out or Ctrl-C was pressed: also amid work that the result does not depend on."""
        if self.on_progress:
            self.on_progress(self)
        if time.monotonic() >= self.deadline - (self.kept_back if self.best is None else 0.0):
            self.timed_out = True
        return self.timed_out or self.interrupt.is_set()

    def cancellable(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items of some work, and raise `Cancelled` among them if the search must stop."""
        for number, item in enumerate(items):
            if number % _LOOK_EVERY == 0 and self.exhausted():
                raise Cancelled
            yield item

    @contextmanager
    def part(self, share: float = 1.0, *, evaluations: float = math.inf, until: float = math.inf) -> Iterator[None]:
        """Let the code within have a share of the budget, at most so many evaluations, up to a moment."""
        whole, deadline = self.max_evaluations, self.deadline
        self.max_evaluations = min(whole, self.evaluations + min(evaluations, share * self.evaluations_left))
        self.deadline = min(deadline, until) if share == 1.0 else min(deadline, until, self.share_of_time(share))
        try:
            yield
        finally:
            self.max_evaluations, self.deadline = whole, deadline
            self.depends_on_time |= self.timed_out
            self.timed_out = time.monotonic() >= deadline

    @contextmanager
    def on(
        self,
        problem: Problem,
        *,
        evaluations: float = math.inf,
        until: float = math.inf,
        lower_bound: float = 0.0,
        jobs: int = 1,
        reports: bool = False,
    ) -> Iterator[Search]:
        """Yield a search of another problem that spends this budget, up to so many evaluations and a moment."""
        report = (lambda _: self.on_progress and self.on_progress(self)) if reports else None
        budget: dict[str, Any] = {"max_evaluations": evaluations, "deadline": min(self.deadline, until), "jobs": jobs}
        known: dict[str, Any] = {"watcher": Watcher(self.interrupt, report), "lower_bound": lower_bound}
        yield (inner := Search(problem, seed=int(self.rng.integers(2**31)), **budget, **known))
        self.spend(inner.evaluations)
        self.depends_on_time |= inner.timed_out or inner.depends_on_time

    def raise_lower_bound(self, bound: float) -> None:
        """Record a proof that no schedule is better than `bound`."""
        self.lower_bound = max(self.lower_bound, bound)

    def branch(self, number: int, watcher: Watcher) -> Search:
        """Return a search of the same problem in the same time, with one worker; number 0 draws as this one does."""
        assert isinstance(self.seed, int)
        seed = np.random.default_rng([self.seed, number]) if number else self.seed
        known: dict[str, Any] = {"initial": self.initial, "lower_bound": self.lower_bound, "kept_back": self.kept_back}
        return Search(self.problem, seed=seed, deadline=self.deadline, watcher=watcher, **known)

    def adopt(self, branch: Search) -> None:
        """Take over a branch's evaluations, proofs, and best schedule if that is better."""
        self.spend(branch.evaluations - branch._adopted)
        branch._adopted = branch.evaluations
        self.raise_lower_bound(branch.lower_bound)
        if branch.best_fitness < self.best_fitness:
            self.best, self.best_simulation = branch.best, branch.best_simulation
            self.best_fitness, self.found_by = branch.best_fitness, branch.found_by
            self.notes = branch.notes

    def offer(self, schedule: Schedule, *, by: str = "") -> Simulation:
        """Price a schedule and keep it if it is the best so far, found `by` the running method; counts nothing."""
        simulation = simulate(self.problem, schedule)
        time = self.problem.time_of(len(schedule), simulation.runtime)
        fitness = self.problem.fitness(simulation.peak_per_device.tolist(), time)
        if fitness < self.best_fitness:
            self.best, self.best_simulation, self.best_fitness = schedule, simulation, fitness
            self.found_by = by or self.working
        return simulation

    def offer_order(self, order: NDArray[Any], *, by: str = "") -> Simulation:
        """Price an order on device 0, counting one evaluation; on a machine on each sort of device that can run it."""
        self.spend(1)
        if self.problem.is_symmetric:
            return self.offer(Schedule.single_device(order), by=by)
        from .plans import Plans

        offered = [self.offer(schedule, by=by) for schedule in Plans(self.problem).schedules_along(order)]
        return min(offered, key=lambda costs: self.problem.fitness(costs.peak_per_device.tolist(), costs.runtime))
