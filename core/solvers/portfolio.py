"""The default method: quick heuristics, then the searches of the first row of a table that fits the problem."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

from ..base.errors import UsageError
from ..problem.problem import Problem
from ..problem.residents import first_home
from ..search.method_spec import MethodSpec, check_supported
from ..search.parameters import Parameters
from ..search.registry import INPUT_METHOD, parameters_of
from ..search.search import Search, Watcher

ORDERS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
PLACEMENTS = ("heft", "peft", "cpop", "gp-dfs")
SHARE_OF_HEURISTICS = 0.1  # of the time: later only the input order and the first list schedule begin
LARGEST_ORDERED = 10_000  # ops: on several devices, in larger graphs, orders of one are no start for the makespan
LOOK_SECONDS = 0.05  # between looks at searches side by side
MOST_CELLS = 2**31  # tensors times devices that kernels number; beyond, only the heuristics are run
Course = Callable[[Search], None]  # a way to search: a method, or several in turn


class Step(NamedTuple):
    """A method of a row: its share of the budget left, at most so many evaluations, and its parameters."""

    method: str
    share: float = 1.0
    evaluations: float = math.inf
    parameters: Mapping[str, Any] = {}


class Row(NamedTuple):
    """The steps for some kinds of problem, see `kind_of`, up to a number of ops."""

    kinds: tuple[str, ...]
    most_ops: float
    steps: tuple[Step, ...]


# Used within a time limit alone, since it has no end of its own, and on so many devices
PROOF, MOST_DEVICES_PROVEN = "cp-sat", 8
_PROVE = Step(PROOF, parameters={"hint": 0})
_COPIES = [Step(PROOF, parameters={"hint": 0, "copies": copies}) for copies in (2, 3, 4)]
_HOT_CYCLES = {"hot": 0.01, "cycle": 500}
# The first row that fits counts; one that ends in a proof fits where `cp-sat` can be used
ROWS = (
    Row(("recompute",), 25, (Step("recompute", evaluations=20_000), *_COPIES)),
    Row(("recompute",), math.inf, (Step("recompute"),)),
    Row(("order",), math.inf, (Step("order-search"),)),
    Row(("peak", "free"), 30, (Step("annealing", 0.1), Step("step-search", 0.1), _PROVE)),
    Row(("peak",), 64, (Step("annealing", 0.75), Step("step-search", 0.5), _PROVE)),
    Row(("free",), 64, (Step("annealing", 0.95), Step("step-search", 0.5), _PROVE)),
    Row(("costly",), 64, (Step("annealing", 0.1), Step("step-search", 0.6, parameters=_HOT_CYCLES), _PROVE)),
    Row(("peak", "free"), 64, (Step("annealing", 0.6), Step("step-search"))),
    Row(("peak", "free"), math.inf, (Step("annealing"),)),
    Row(("costly",), 300, (Step("annealing", 0.4), Step("step-search"))),
    Row(("costly",), math.inf, (Step("annealing", 0.9), Step("step-search"))),
)


def kind_of(problem: Problem) -> str:
    """Return which rows are for a problem."""
    if problem.recompute:
        return "recompute"
    if problem.task == "memory":
        return "order" if problem.devices == 1 else "peak"
    return "costly" if problem.transfers_take_time or problem.is_limited else "free"


def steps_for(problem: Problem, *, is_counted: bool) -> list[Step]:
    """Return the steps of the first row that fits; one before a method that refuses the problem has its share, too."""
    kind, ops = kind_of(problem), first_home(problem.graph)
    rows = [row.steps for row in ROWS if kind in row.kinds and ops <= row.most_ops]
    proves = [all(_can_run(step, problem, is_counted) for step in steps if step.method == PROOF) for steps in rows]
    steps: list[Step] = []
    for step in rows[proves.index(True)]:
        if _can_run(step, problem, is_counted):
            steps.append(step)
        elif steps:
            steps[-1] = steps[-1]._replace(share=1 - (1 - steps[-1].share) * (1 - step.share))
    return steps


def _can_run(step: Step, problem: Problem, is_counted: bool) -> bool:
    """Whether a method takes a problem and a budget."""
    if step.method == PROOF and problem.devices > MOST_DEVICES_PROVEN:
        return False
    spec = MethodSpec(step.method, step.method, parameters_of(step.method, **step.parameters))
    try:
        check_supported(spec, problem, 1 if is_counted else None)
    except UsageError:
        return False
    return True


def _heuristics(problem: Problem) -> tuple[str, ...]:
    if problem.devices == 1:
        return ORDERS
    is_large = problem.task == "runtime" and problem.graph.num_ops > LARGEST_ORDERED
    placements = PLACEMENTS if problem.is_symmetric else (PLACEMENTS[0], "list-scheduling", *PLACEMENTS[1:])
    return (*((INPUT_METHOD,) if is_large else ORDERS), *placements)


def parts(problem: Problem, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods used for a problem, with or without a limit of the evaluations."""
    used = [step.method for step in steps_for(problem, is_counted=is_counted)]
    if jobs > 1 and not is_counted:
        used += [step.method for step in _rivals(problem)]
    return list(dict.fromkeys((*_heuristics(problem), *used)))


def solve(search: Search, parameters: Parameters) -> None:
    """Search with one worker, or with several at once if time alone is limited."""
    # Every second runs another method as it is without `auto`, the first of them with the seed of the run.
    if search.jobs == 1 or search.is_counted or not search.is_timed:
        _search_alone(search)
        return
    rivals = iter(_rivals(search.problem))
    courses: list[tuple[Course, int]] = []
    for number in range(search.jobs):
        rival = next(rivals, None) if number % 2 == 0 else None
        courses.append((partial(_run, step=rival), 0) if rival else (_search_alone, number))
    search_side_by_side(search, courses)


def search_side_by_side(search: Search, courses: Sequence[tuple[Course, int]]) -> None:
    """Follow courses, each with the number of its seed, until time ends or the best value meets the bound."""
    # Each has a search of its own, and what others find does not change it: one from the seed of the run, number 0,
    # finds what it would find alone in the same time, if as many cores are free as there are courses.
    ended, lock = threading.Event(), threading.Lock()
    search.steered_by_time()

    def collect(branch: Search) -> None:
        with lock:
            search.adopt(branch)
            if search.is_optimal:
                ended.set()

    def follow(course: Course, branch: Search) -> None:
        if search.initial is not None:
            branch.offer(search.initial, by="initial")
        course(branch)
        collect(branch)

    watcher = Watcher(ended, collect)
    branches = [search.branch(number, watcher) for _, number in courses]
    pairs = zip(courses, branches, strict=True)
    with ThreadPoolExecutor(len(courses)) as pool:
        try:
            followed = [pool.submit(follow, course, branch) for (course, _), branch in pairs]
            while wait(followed, LOOK_SECONDS).not_done:
                if search.exhausted() or any(future.done() and future.exception() for future in followed):
                    ended.set()
        finally:
            ended.set()
    for future in followed:
        future.result()
    search.exhausted()


def _rivals(problem: Problem) -> list[Step]:
    """Return the methods worth a worker of their own, the one with the largest share first."""
    steps = sorted(steps_for(problem, is_counted=False), key=lambda step: step.share, reverse=True)
    methods = list(dict.fromkeys(step.method for step in steps))
    if problem.devices == 1:
        return [Step(methods[0])]
    return [*map(Step, methods), Step("brkga", parameters={"decoder": "lazy"}), Step("local-search")]


def _search_alone(search: Search) -> None:
    """Run the heuristics, then each step from the best schedule known; stop when the lower bound is met."""
    problem = search.problem
    enough = search.share_of_time(SHARE_OF_HEURISTICS)
    always = (INPUT_METHOD, *PLACEMENTS[: problem.devices > 1 and problem.task == "runtime"])
    for name in _heuristics(problem):
        if name in always or not search.is_past(enough):
            _run(search, Step(name))
        if search.exhausted():
            return
    if problem.graph.num_tensors * problem.devices >= MOST_CELLS:
        return
    *steps, last = steps_for(problem, is_counted=search.is_counted or not search.is_timed)
    for step in steps:
        with search.part(step.share, evaluations=step.evaluations):
            if not search.exhausted():
                _run(search, step)
        if search.best_fitness[0] and last.method != PROOF and not search.exhausted():
            _run(search, step)
        if search.exhausted() or math.isinf(search.lower_bound):
            return
    _run(search, last)
    searches = [step for step in (*steps, last) if step.method != PROOF]
    if not search.exhausted():
        _run(search, searches[-1])


def _run(search: Search, step: Step) -> None:
    search.run(step.method, **step.parameters)
