"""Rounds of runs: each order as often, in turn, and what Ctrl-C leaves; and how runs are timed."""

from collections import Counter

import pytest
from schedopt.core.programs import fresh_process
from schedopt.core.programs.runtime import PROGRAM_ORDER, Measurement, limit_sentences, run_rounds, time_sentences

ORDERS = [PROGRAM_ORDER, "a.json", "b.json"]


def test_orders_alternate_and_no_order_is_always_first():
    ran, told = [], []
    reports = run_rounds(lambda order: ran.append(order) or {"order": order}, ORDERS, 4, lambda *run: told.append(run))
    assert all([report["order"] for report in reports[order]] == [order] * 4 for order in ORDERS)
    rounds = [ran[start : start + 3] for start in range(0, 12, 3)]
    assert all(sorted(one) == sorted(ORDERS) for one in rounds)
    assert len({one[0] for one in rounds}) == 3
    assert told == [(number, 12, order) for number, order in enumerate(ran, start=1)]


@pytest.mark.parametrize("ends_at", [2, 5])
def test_ctrl_c_keeps_the_runs_that_are_done(ends_at):
    done = []

    def run(order):
        if len(done) == ends_at:
            raise KeyboardInterrupt
        done.append(order)
        return {}

    reports = run_rounds(run, ORDERS, 4, lambda *_: None)
    assert {order: len(found) for order, found in reports.items()} == {order: Counter(done)[order] for order in ORDERS}


def test_ctrl_c_before_program_order_has_run_is_an_interrupt():
    def run(order):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rounds(run, ORDERS, 4, lambda *_: None)


@pytest.mark.slow
def test_the_first_run_is_warm_up_unless_it_is_long(monkeypatch):
    """A clock that the runs move: the first takes ten times as long, and is left out where others follow."""
    now = [0]
    monkeypatch.setattr(fresh_process.time, "perf_counter_ns", lambda: now[0])
    times = iter([10_000_000] + [1_000_000] * 1000)

    def run():
        now[0] += next(times)

    found = fresh_process.time_runs(run)
    assert found["microseconds"] == found["kept_microseconds"] == 1000
    assert set(found["runs"]) == {1000.0}
    assert len(found["runs"]) == fresh_process.MOST_RUNS
    times = iter([2_000_000_000] * 3)
    assert fresh_process.time_runs(run)["runs"] == [2_000_000.0]


@pytest.mark.slow
def test_memory_that_faults_is_timed_again_with_what_is_freed_kept(monkeypatch):
    now, faults, kept = [0], [0], []
    monkeypatch.setattr(fresh_process.time, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(fresh_process, "_page_faults", lambda: faults[0])
    monkeypatch.setattr(fresh_process, "_keep_freed_memory", lambda: kept.append(True) or True)
    monkeypatch.setattr(fresh_process, "_give_freed_memory_back", lambda: kept.append(False))

    def run():
        now[0] += 1_000_000 if kept else 3_000_000
        faults[0] += 0 if kept else 500

    found = fresh_process.time_runs(run)
    assert (found["microseconds"], found["kept_microseconds"], found["page_faults"]) == (3000.0, 1000.0, 500.0)
    assert kept == [True, False], "the process is left as it was"


@pytest.mark.parametrize(
    ("limit", "sentences"),
    [
        (None, []),
        (2048, ["Memory limit of s.json: 2.00 KiB, kept in every run."]),
        (1024, ["Memory limit of s.json: 1.00 KiB, exceeded by up to 1.00 KiB in 2 of 3 runs."]),
    ],
)
def test_whether_a_limit_was_kept_is_said_of_all_runs(limit, sentences):
    row = Measurement("s.json", 1024, (1024, 2048, 1536), (1.0,) * 3, True, memory_limit=limit)
    assert limit_sentences(row) == sentences
    assert row.keeps_limit == {None: None, 2048: True, 1024: False}[limit]


def test_the_time_that_repeats_add_is_predicted():
    first, row = (
        Measurement(order, 1, (1,), (1.0,), True, predicted_microseconds=time)
        for order, time in ((PROGRAM_ORDER, 1000.0), ("s.json", 1100.0))
    )
    said = "Predicted: +10.00%, because ops run again: 1.1 ms for all, 1 ms in program order."
    assert said in time_sentences(row, first)
    assert len(time_sentences(first, first)) == 1
