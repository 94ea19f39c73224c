"""The search that every method works on: incumbent, budget, and each reason to stop."""

import math
import threading
import time

import numpy as np
import pytest
from schedopt import GraphBuilder, Problem, Schedule, Search
from schedopt.core.search.search import Watcher, interrupted_by

# Two branches of one input: program order (WIDE) peaks at 26 bytes, branch by branch (DEEP) at 19.
WIDE, DEEP = np.array([0, 1, 2, 3, 4, 5]), np.array([0, 1, 3, 2, 4, 5])


def diamond():
    builder = GraphBuilder("diamond")
    builder.add_op("start", outputs=[10])
    for number in (1, 2):
        builder.add_op(f"wide{number}", inputs=[(0, 0)], outputs=[8])
    for number in (1, 2):
        builder.add_op(f"narrow{number}", inputs=[(number, 0)], outputs=[1])
    builder.add_op("join", inputs=[(3, 0), (4, 0)], outputs=[1])
    return builder.build()


def test_the_best_schedule_is_kept_with_the_name_of_what_found_it():
    search = Search(Problem(diamond()))
    assert (search.best, search.best_value) == (None, math.inf)
    for working, order, best in (("one", WIDE, 26), ("two", DEEP, 19), ("three", WIDE, 19), ("four", DEEP, 19)):
        assert search.offer_order(order, by=working).peak == (26 if order is WIDE else 19)
        assert search.best_value == search.best_simulation.peak == best
    assert search.found_by == "two"
    assert search.best.op_order().tolist() == DEEP.tolist()
    assert search.evaluations == 4
    search.offer(Schedule.single_device(DEEP))
    assert search.evaluations == 4


def test_feasible_schedules_replace_infeasible_ones():
    """Under a limit of 20 bytes the makespan of both is 0; the excess decides."""
    search = Search(Problem(diamond(), "runtime", memory_limit=20))
    search.offer_order(WIDE)
    assert search.best_fitness == (6, 0.0)
    assert not search.is_optimal
    search.offer_order(DEEP)
    assert search.best_fitness == (0, 0.0)
    assert search.is_optimal


@pytest.mark.parametrize(
    ("values", "stops"),
    [
        ({}, False),
        ({"max_evaluations": 2}, False),
        ({"max_evaluations": 1}, True),
        ({"max_evaluations": 1.9}, True),
        ({"lower_bound": 25}, False),
        ({"lower_bound": 26}, True),
        ({"deadline": time.monotonic() + 1e6}, False),
        ({"deadline": time.monotonic() - 1}, True),
    ],
)
def test_each_reason_to_stop(values, stops):
    asked = []
    search = Search(Problem(diamond()), watcher=Watcher(on_progress=asked.append), **values)
    search.offer_order(WIDE)
    assert search.exhausted() == stops
    assert asked == [search]
    assert search.timed_out == ("deadline" in values and stops)
    assert search.is_timed == ("deadline" in values)
    assert search.seconds_left() == pytest.approx(values.get("deadline", math.inf) - time.monotonic(), abs=5)


def test_a_part_of_the_budget_is_not_more_than_the_whole():
    search = Search(Problem(diamond()), max_evaluations=10)
    for asked, left in ((3, 3), (3, 3), (50, 4)):
        with search.part(evaluations=asked):
            assert search.evaluations_left == left
            search.spend(left)
            assert search.exhausted()
    assert search.evaluations_left == 0
    timed = Search(Problem(diamond()), deadline=time.monotonic() + 1e6)
    with timed.part(evaluations=5, until=time.monotonic() - 1):
        assert timed.exhausted()
    assert (timed.timed_out, timed.depends_on_time, timed.exhausted()) == (False, True, False)
    late = Search(Problem(diamond()), deadline=time.monotonic() - 1)
    with late.part(evaluations=5, until=time.monotonic() + 1e6):
        assert late.exhausted()
    assert late.timed_out
    untimed = Search(Problem(diamond()))
    with untimed.part(evaluations=5):
        untimed.exhausted()
    assert not untimed.depends_on_time


def test_an_event_stops_every_search_that_begins_within():
    event = threading.Event()
    with interrupted_by(event):
        within = Search(Problem(diamond()))
        own = Search(Problem(diamond()), watcher=Watcher(threading.Event()))
        with interrupted_by(threading.Event()):
            deeper = Search(Problem(diamond()))
    after = Search(Problem(diamond()))
    event.set()
    assert [search.exhausted() for search in (within, own, deeper, after)] == [True, False, False, False]


def test_an_interrupt_from_outside_stops_it():
    interrupt = threading.Event()
    search = Search(Problem(diamond()), watcher=Watcher(interrupt))
    assert not search.exhausted()
    interrupt.set()
    assert search.exhausted()
    assert not search.timed_out
