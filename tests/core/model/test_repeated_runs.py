"""Schedules that run ops several times: simulator against verifier, and every rule by hand."""

import numpy as np
import pytest
from models.small_graphs import SKIPPED, sketch
from schedopt import Problem, Schedule, ScheduleError
from schedopt.core.model.unrolled import unrolled
from schedopt.core.model.verifier import Replay, verify


def replayed(graph, order):
    return Replay(Problem(graph, recompute=True), Schedule.single_device(np.array(order))).run()


def skip_connection(first=""):
    """a -> b -> c -> d, and d reads a: computing a again frees 100 bytes while c runs."""
    return sketch(f"a -> 100 us=1 {first}; {SKIPPED}", "skip")


def verified(graph, order, **settings):
    return verify(Problem(graph, recompute=True, **settings), Schedule.single_device(np.array(order)))


def test_views_share_the_memory_of_the_run_that_they_were_made_from():
    graph = sketch("a -> 100; view: a -> 0@0; reader: view -> 1f", "views")
    assert verified(graph, [0, 1, 0, 2]).peak == 200  # the view holds the first run's bytes
    assert replayed(graph, [0, 1, 0, 1, 2]).steps == [100, 100, 100, 100, 101]


def test_what_is_final_is_kept_of_the_last_run():
    graph = sketch("a -> 100f; b -> 1", "final")
    assert replayed(graph, [0, 1, 0, 1]).steps == [100, 1, 100, 101]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1, 2], "op 'd' never runs"),
        ([1, 0, 2, 3], "op 'b' runs before its input 'a:0'"),
        ([0, 1, 2, 3, 9], "the schedule names item 9"),
    ],
)
def test_broken_rules_are_named(order, message):
    with pytest.raises(ScheduleError, match=message):
        verified(skip_connection(), order)


def test_an_op_that_may_run_once_is_not_run_twice():
    with pytest.raises(ScheduleError, match="op 'a' runs twice, but may only run once"):
        verified(skip_connection("once"), [0, 1, 2, 0, 3])
    with pytest.raises(ScheduleError, match="op 'a' runs twice"):
        verify(Problem(skip_connection()), Schedule.single_device(np.array([0, 1, 2, 0, 3])))


def test_no_run_comes_after_what_waits_for_its_op():
    graph = sketch("a -> 8; reader: a -> 8; writer: a !reader -> 0@0 once; last: reader -> 1f", "in-place")
    for check in (unrolled, replayed):
        with pytest.raises(ScheduleError, match="op 'reader' runs again after op 'writer'"):
            check(graph, [0, 1, 2, 1, 3])
        check(graph, [0, 1, 1, 2, 3])


def test_limits_of_memory_and_time_are_checked():
    graph = skip_connection()
    assert verified(graph, [0, 1, 2, 0, 3], memory_limit=220, runtime_limit=5.0).peak == 220
    with pytest.raises(ScheduleError, match="over the limit of 219"):
        verified(graph, [0, 1, 2, 0, 3], memory_limit=219)
    with pytest.raises(ScheduleError, match=r"takes 5.0 us, over the limit of 4.5 us"):
        verified(graph, [0, 1, 2, 0, 3], runtime_limit=4.5)
