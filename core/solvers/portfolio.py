"""The default: the best of the other methods within the time limit, never worse than the input order."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ..problem.problem import Problem
from ..problem.residents import first_home
from ..search.parameters import Parameters
from ..search.registry import load, parameters_of
from ..search.search import Search
from .side_by_side import Course, search_side_by_side

RECOMPUTING, PROVING = "recompute", "cp-sat"
MOST_OPS_PROVEN, MOST_OPS_PLACED, MOST_DEVICES_PROVEN = 25, 64, 8
"""Up to so many, `cp-sat` proves what others do not, or finds it: repeated runs and free transfers; several devices."""
COPIES = (2, 3, 4)
PRICED_BEFORE = 20_000  # edits: what `recompute` finds of such graphs, it finds in these
HEURISTICS = ("input", "lpmf", "dfs-postorder", "dfs", "bfs")
LIST_SCHEDULERS = ("heft", "peft", "cpop")
MOST_CELLS = 2**31
LARGEST_PARTITIONED = 20_000  # edges: one second
LARGEST_ORDERED = 10_000
"""Ops above which a makespan is searched from a list schedule at once, as `annealing` makes one, and a peak from any
order that is good on one device."""
LARGEST_TINY = 30  # ops, where transfers are not free: most are proven optimal
SHARE_OF_LISTS = 0.1
"""Of the time: beyond it only the first list scheduler is run."""
SHARE_OF_ANNEALING, SHARE_OF_STEPS, SHARE_IF_LARGE = 0.4, 0.5, 0.9
LARGEST_STEPPED = 300
"""Ops up to which `step-search` has most of the time if transfers take time, as each of its moves runs all of them; but
`MOST_OPS_PLACED` where memory is limited, too, which makes a move longer, or evaluations are: it needs many."""
ENOUGH_IF_TINY = 20_000
"""Evaluations on machines before `cp-sat` has its try."""
SHARE_IF_TINY, SHARE_IF_TINY_AND_FREE, SHARE_IF_FREE, SHARE_OF_PROOFS = 0.1, 0.35, 0.85, 0.6
SHARE_IF_SMALL, SHARE_OF_PEAKS = 0.96, 0.75
SHARE_IF_PAID, STEPS_IF_PAID, STEPS_IF_TINY_AND_PAID = 0.1, 0.9, 0.4
HOT_IF_PAID, CYCLE_IF_PAID = 0.01, 500
"""Where transfers of a small graph take time, in longer and hotter cycles: sequences send no tensor early."""
ENOUGH_SECONDS_IF_TINY = 0.5
"""For each search before `cp-sat`, which may need most of the time for a proof, if a tenth of the time is not more."""


def _is_order_only(problem: Problem) -> bool:
    return problem.task == "memory" and problem.devices == 1 and problem.is_plain


def _is_small(problem: Problem) -> bool:
    return problem.devices > 1 and problem.is_plain and problem.graph.num_ops <= MOST_OPS_PLACED


def _is_proven(problem: Problem) -> bool:
    if problem.is_plain:
        return _is_small(problem) and problem.devices <= MOST_DEVICES_PROVEN
    is_placed = problem.task == "runtime" and 1 < problem.devices <= MOST_DEVICES_PROVEN
    return is_placed and first_home(problem.graph) <= MOST_OPS_PLACED


def _proves(search: Search) -> bool:
    """Whether `cp-sat` has its try: it has no end of its own."""
    return _is_proven(search.problem) and search.is_timed and math.isinf(search.evaluations_left)


def _is_annealed_first(search: Search) -> bool:
    """Whether the first that is done is all that `annealing` does, in cycles, so that no time makes that one better.

    Other orders for one device than the input order would change its course.
    """
    problem = search.problem
    return _proves(search) and problem.is_plain and (problem.task == "memory" or not problem.transfers_cost)


def _is_paid(search: Search) -> bool:
    """Whether a small graph is searched for its makespan with transfers that take time, and no memory limit."""
    problem = search.problem
    is_placed = _proves(search) and problem.is_plain and problem.task == "runtime"
    return is_placed and problem.memory_limit is None and problem.transfers_cost


def _is_tiny(search: Search) -> bool:
    """Whether `cp-sat` is likely to end with a proof, so that most of the time is for it."""
    largest = MOST_OPS_PROVEN if _is_annealed_first(search) else LARGEST_TINY
    return _proves(search) and search.problem.graph.num_ops <= largest


def parts(problem: Problem, is_counted: bool, jobs: int = 1) -> list[str]:
    """Return the methods used for a problem, with or without a limit of the evaluations."""
    alone = _parts_of_one(problem, is_counted)
    others = [name for name, _ in _rivals(problem)] if jobs > 1 and not is_counted else []
    return list(dict.fromkeys((*alone, *others)))


def _parts_of_one(problem: Problem, is_counted: bool) -> list[str]:
    """Return the methods that one worker uses."""
    if problem.recompute:
        return [
            *HEURISTICS,
            "order-search",
            RECOMPUTING,
            *([PROVING] if problem.graph.num_ops <= MOST_OPS_PROVEN else []),
        ]
    if _is_order_only(problem):
        return [*_heuristics(problem), "order-search"]
    more = [
        *(["step-search"] if _moves_steps(problem) else []),
        *([PROVING] if _is_proven(problem) and not is_counted else []),
    ]
    return [*_heuristics(problem), "annealing", *more]


def _moves_steps(problem: Problem) -> bool:
    """Whether when a tensor is sent matters, or the graph is small enough for every plan to be reached."""
    if problem.devices == 1 or not problem.is_plain:
        return False
    return _is_small(problem) or (problem.task == "runtime" and problem.transfers_cost)


def _heuristics(problem: Problem) -> tuple[str, ...]:
    """Few transfers are worth a partition where they cost time or room; on machines it is list schedulers that do.

    These come before other orders for one device, which all take the same time. So there is one of them for large
    graphs whose makespan alone counts. For the peak `annealing` begins with the input order, as it does by itself: from
    the others it is no better by and large, and where bad luck has it worse it would be behind itself. Equal devices
    where weights have a home have both, list schedulers and a partition.
    """
    is_partitioned = problem.transfers_cost and len(problem.graph.inputs[1]) <= LARGEST_PARTITIONED
    if not problem.is_plain:
        first, *others = HEURISTICS
        partition = ("gp-dfs",) if is_partitioned and problem.machine is None and problem.task == "runtime" else ()
        return (first, *LIST_SCHEDULERS, *partition, *others)
    if problem.devices == 1:
        return HEURISTICS
    if problem.task == "memory":
        return HEURISTICS[:1] if problem.graph.num_ops <= LARGEST_ORDERED else HEURISTICS
    if problem.memory_limit is None and problem.graph.num_ops > LARGEST_ORDERED:
        return HEURISTICS[:1]
    return (*HEURISTICS, "gp-dfs") if is_partitioned else HEURISTICS


def solve(search: Search, parameters: Parameters) -> None:
    """Search with one worker, or with several at once, if time alone is limited.

    With several, every second one runs another method as it is without `auto`, the first with the seed of the run, so
    that in the same time it finds nothing better alone; the others do what one worker does, from seeds of their own.
    """
    if search.jobs == 1 or not search.is_timed or search.evaluations_left < math.inf:
        _search_alone(search)
        return
    rivals = iter(_rivals(search.problem))
    courses: list[tuple[Course, int]] = []
    for number in range(search.jobs):
        name, settings = next(rivals, ("", {})) if number % 2 == 0 else ("", {})
        courses.append((partial(_run, name=name, **settings), 0) if name else (_search_alone, number))
    search_side_by_side(search, courses)


def _rivals(problem: Problem) -> list[tuple[str, dict[str, Any]]]:
    """Return the methods worth a worker of their own, with parameters, the one that is likely to find most first."""
    if problem.recompute:
        return [(RECOMPUTING, {})]
    if _is_order_only(problem):
        return [("order-search", {})]
    searches = [
        *(["step-search"] if _moves_steps(problem) else []),
        "annealing",
        *([PROVING] if _is_proven(problem) else []),
    ]
    if not (problem.transfers_cost and _is_stepped(problem, is_counted=False)):
        searches.sort(key="annealing".__ne__)
    return [*((name, {}) for name in searches), ("brkga", {"decoder": "lazy"}), ("local-search", {})]


def _search_alone(search: Search) -> None:
    """Try the heuristics, then search; stop at once when the lower bound is met.

    Peak memory on one device: `order_search`. Otherwise: `annealing`, from the best heuristic or
    greedy decoding; then `step_search`, where the graph is small or transfers cost time or room. All go on from the
    best schedule known, as does `recompute` where ops may run again; after them `cp-sat` for graphs small enough to be
    solved to the end, and on machines `annealing` again in the time that is left. `cp-sat` has no end of its own, so it
    is used within a time limit only.
    """
    problem = search.problem
    if problem.recompute:
        _recompute(search)
        return
    enough = search.share_of_time(SHARE_OF_LISTS)
    heuristics = _heuristics(problem)
    for name in heuristics[:1] if _is_annealed_first(search) else heuristics:
        if name in LIST_SCHEDULERS[1:] and search.is_past(enough):
            continue
        _run(search, name)
        if search.must_stop():
            return
    if _is_order_only(problem):
        _run(search, "order-search")
    elif problem.graph.num_tensors * problem.devices < MOST_CELLS:
        _search_placements(search)


def _search_placements(search: Search) -> None:
    """Share the budget out between the searches on several devices."""
    problem = search.problem
    proves, is_tiny = _proves(search), _is_tiny(search)
    if not _moves_steps(problem):
        if proves:
            with search.limited(ENOUGH_IF_TINY if is_tiny else math.inf):
                _run_for(search, "annealing", SHARE_IF_TINY if is_tiny else SHARE_OF_ANNEALING)
            _run_for(search, PROVING, SHARE_OF_PROOFS, hint=0)
        if not search.must_stop():
            _run(search, "annealing")
        return
    _run_for(search, "annealing", _share_of_annealing(search))
    if search.best_fitness[0] and not proves and not search.must_stop():
        _run(search, "annealing")
    if proves:
        _search_steps(search)
        if not search.must_stop():
            _run(search, PROVING, hint=0)
    if not search.must_stop():
        _run(search, "step-search")


def _search_steps(search: Search) -> None:
    """Run `step-search` for its share of the time before `cp-sat`."""
    is_tiny = _is_tiny(search)
    if _is_paid(search):
        share = _share_if_tiny(search, STEPS_IF_TINY_AND_PAID) if is_tiny else STEPS_IF_PAID
        _run_for(search, "step-search", share, hot=HOT_IF_PAID, cycle=CYCLE_IF_PAID)
    else:
        _run_for(search, "step-search", SHARE_IF_TINY if is_tiny else SHARE_OF_STEPS)


def _share_if_tiny(search: Search, share: float) -> float:
    """Return a share of the time left that is enough, which is less of a longer time."""
    return max(SHARE_IF_TINY, min(share, ENOUGH_SECONDS_IF_TINY / max(search.seconds_left(), 1e-9)))


def _share_of_annealing(search: Search) -> float:
    """Return its share of the budget: most of it where transfers are free, so that sending early gains little."""
    problem, proves = search.problem, _proves(search)
    if _is_paid(search):
        return SHARE_IF_PAID
    if _is_tiny(search):
        return _share_if_tiny(search, SHARE_IF_TINY_AND_FREE) if _is_annealed_first(search) else SHARE_IF_TINY
    if problem.task == "memory":
        return SHARE_OF_PEAKS if proves else SHARE_OF_ANNEALING
    if problem.transfers_cost:
        is_stepped = not problem.transfers_take_time or _is_stepped(problem, search.evaluations_left < math.inf)
        return SHARE_OF_ANNEALING if is_stepped else SHARE_IF_LARGE
    return SHARE_IF_SMALL if proves else SHARE_IF_FREE


def _is_stepped(problem: Problem, is_counted: bool) -> bool:
    """Whether `step-search` finds most where transfers take time or memory is limited."""
    is_hard = problem.transfers_take_time and (is_counted or problem.memory_limit is not None)
    return problem.graph.num_ops <= (MOST_OPS_PLACED if is_hard else LARGEST_STEPPED)


def _run_for(search: Search, name: str, share: float, **parameters: Any) -> None:
    """Run a method for a share of the budget that is left."""
    with search.limited(share * search.evaluations_left, search.share_of_time(share)):
        if not search.must_stop():
            _run(search, name, **parameters)


def _recompute(search: Search) -> None:
    for name in HEURISTICS:
        _run(search, name)
        if search.must_stop():
            return
    if search.problem.graph.num_ops > MOST_OPS_PROVEN or not search.is_timed:
        _run(search, RECOMPUTING)
        return
    with search.limited(PRICED_BEFORE):
        _run(search, RECOMPUTING)
    said = len(search.notes)
    for copies in COPIES:
        if search.must_stop() or math.isinf(search.lower_bound):
            return
        del search.notes[said:]  # what was proven of fewer copies
        _run(search, PROVING, hint=0, copies=copies)


def _run(search: Search, name: str, **parameters: Any) -> None:
    search.working = name
    load(name)(search, parameters_of(name, **parameters))
