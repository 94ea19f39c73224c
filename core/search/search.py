"""One run of one method: the shared incumbent, the budget, and when to stop."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..bounds.bounds import is_met
from ..model.simulator import Simulation, simulate
from ..problem.problem import Problem
from ..problem.schedule import Schedule

Item = TypeVar("Item")
_LOOK_EVERY = 64
_interrupt: ContextVar[threading.Event | None] = ContextVar("interrupt", default=None)


class Stopped(Exception):
    """The search must stop in the middle of what gives no schedule before its end."""


@contextmanager
def interrupted_by(event: threading.Event) -> Iterator[None]:
    """Let an event stop every search that begins within, in this thread, as Ctrl-C does, unless it has a watcher."""
    before = _interrupt.set(event)
    try:
        yield
    finally:
        _interrupt.reset(before)


@dataclass(frozen=True)
class Watcher:
    """Who watches a run from outside: is told how it goes, and may stop it.

    Parameters
    ----------
    interrupt
        Set it from another thread or a signal handler to stop with the best so far; by default nobody does,
        but for who uses `interrupted_by`.
    on_progress
        Called with the `Search` whenever that is asked whether to stop; by default nothing is.
    """

    interrupt: threading.Event = field(default_factory=lambda: _interrupt.get() or threading.Event())
    on_progress: Callable[[Search], None] | None = None


class Search:
    """What a method works on: it offers schedules, and asks whether to go on.

    Parameters
    ----------
    problem
        What to solve.
    seed
        Seed of `rng`.
    jobs
        Worker threads that a method may use; its result must not depend on them.
    max_evaluations
        Budget of complete schedules priced; infinite by default.
    deadline
        `time.monotonic()` value at which to stop; infinite by default.
    watcher
        Who is told of progress, and may stop the run early, as Ctrl-C does.
    initial
        A schedule to start from, which has been offered already.
    lower_bound
        A value that no schedule can beat; reaching it ends the search.

    Attributes
    ----------
    kept_back
        Seconds of the time limit that are not for a method that has offered nothing yet, but for what is offered
        instead.
    notes
        What the user should know of the run: a sentence each, of which none is needed when all goes well.

    Examples
    --------
    A method offers schedules or orders until it must stop:

    >>> def solve(search, parameters):
    ...     graph = search.problem.graph
    ...     while not search.must_stop():
    ...         search.offer_order(graph.input_order)
    """

    def __init__(
        self,
        problem: Problem,
        *,
        seed: int = 0,
        jobs: int = 1,
        max_evaluations: float = math.inf,
        deadline: float = math.inf,
        watcher: Watcher | None = None,
        initial: Schedule | None = None,
        lower_bound: float = 0.0,
    ) -> None:
        self.problem = problem
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.jobs = jobs
        self.max_evaluations = max_evaluations
        self.deadline = deadline
        watcher = watcher or Watcher()
        self.interrupt, self.on_progress = watcher.interrupt, watcher.on_progress
        self.initial = initial
        self.lower_bound = lower_bound
        self.kept_back = 0.0
        self.evaluations = 0.0
        self.best: Schedule | None = None
        self.best_simulation: Simulation | None = None
        self.best_fitness: tuple[int, float] = (2**63, math.inf)
        self.found_by = ""
        self.working = ""
        self.notes: list[str] = []
        self.timed_out = False
        self.depends_on_time = False

    @property
    def best_value(self) -> float:
        """Value of the best schedule so far: bytes or microseconds; infinite before the first."""
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
    def is_timed(self) -> bool:
        """Whether a time limit was set."""
        return self.deadline < math.inf

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

    def must_stop(self) -> bool:
        """Whether time or evaluations have run out, Ctrl-C was pressed, or the bound is met."""
        return self.must_stop_at_once() or self.evaluations_left < 1 or self.is_optimal

    def must_stop_at_once(self) -> bool:
        """Whether time has run out or Ctrl-C was pressed: also amid what the result does not depend on."""
        if self.on_progress:
            self.on_progress(self)
        if time.monotonic() >= self.deadline - (self.kept_back if self.best is None else 0.0):
            self.timed_out = True
        return self.timed_out or self.interrupt.is_set()

    def heeding(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items of some work, and raise `Stopped` among them if the search must stop."""
        for number, item in enumerate(items):
            if number % _LOOK_EVERY == 0 and self.must_stop():
                raise Stopped
            yield item

    @contextmanager
    def limited(self, evaluations: float, until: float = math.inf) -> Iterator[None]:
        """Let what runs within have a part of the budget; what is left of the whole is there again afterwards.

        Parameters
        ----------
        evaluations
            How many it may price, of those left.
        until
            `time.monotonic()` value at which it must stop; the run is not repeatable if that comes to pass.
        """
        whole, deadline = self.max_evaluations, self.deadline
        self.max_evaluations, self.deadline = min(whole, self.evaluations + evaluations), min(deadline, until)
        try:
            yield
        finally:
            self.max_evaluations, self.deadline = whole, deadline
            self.depends_on_time |= self.timed_out
            self.timed_out = time.monotonic() >= deadline

    def raise_lower_bound(self, bound: float) -> None:
        """Record a proof that no schedule is better than `bound`."""
        self.lower_bound = max(self.lower_bound, bound)

    def branch(self, number: int, watcher: Watcher) -> Search:
        """Return a search of the same problem in the same time, with one worker, that knows nothing of this one.

        Parameters
        ----------
        number
            What it draws from: 0 for the seed of this one, another for a seed of its own.
        watcher
            Who watches it.
        """
        branch = Search(
            self.problem,
            seed=self.seed,
            deadline=self.deadline,
            watcher=watcher,
            initial=self.initial,
            lower_bound=self.lower_bound,
        )
        if number:
            branch.rng = np.random.default_rng([self.seed, number])
        branch.kept_back = self.kept_back
        return branch

    def adopt(self, branch: Search) -> None:
        """Take over what a search of the same problem has proven, and what it has found if that is better."""
        self.raise_lower_bound(branch.lower_bound)
        if branch.best_fitness < self.best_fitness:
            self.best, self.best_simulation = branch.best, branch.best_simulation
            self.best_fitness, self.found_by = branch.best_fitness, branch.found_by

    def offer(self, schedule: Schedule) -> Simulation:
        """Price a schedule and keep it if it is the best so far; does not count as an evaluation."""
        simulation = simulate(self.problem, schedule)
        time = self.problem.time_of(len(schedule), simulation.runtime)
        fitness = self.problem.fitness(simulation.peak_per_device.tolist(), time)
        if fitness < self.best_fitness:
            self.best, self.best_simulation, self.best_fitness = schedule, simulation, fitness
            self.found_by = self.working
        return simulation

    def offer_order(self, order: NDArray[Any]) -> Simulation:
        """Price an order with all ops on device 0, counting one evaluation; on a machine, on each sort of device.

        Where no device can run all, each op is where it ends first.
        """
        self.evaluations += 1
        if self.problem.is_plain:
            return self.offer(Schedule.single_device(order))
        from .plans import Plans

        offered = [self.offer(schedule) for schedule in Plans(self.problem).schedules_along(order)]
        return min(offered, key=lambda costs: self.problem.fitness(costs.peak_per_device.tolist(), costs.runtime))
