"""`schedopt apply` and `schedopt measure` from the command line."""

import json

import pytest
from schedopt.core.programs import pipeline
from schedopt.core.programs.runtime import PROGRAM_ORDER, Measurement

ROWS = [
    Measurement(PROGRAM_ORDER, 2048, (2048, 2040), (10.0, 30.0), True, ((10.0,), (30.0,)), (9.0, 9.0), (10.0, 30.0)),
    Measurement("[s].json", 1000, (1024, 1024), (20.0, 60.0), False, ((20.0,), (60.0,)), (90.0, 90.0), (10.0, 31.0)),
]


@pytest.fixture
def faked(monkeypatch):
    """Let measuring return rows of its own, and record how it is called."""
    calls = []

    def measure(model, schedules, repeats, options, observer, *, force, snapshot):
        calls.append((model, schedules, repeats, options, force))
        return ROWS[: 1 + len(schedules)]

    monkeypatch.setattr(pipeline, "measure", measure)
    monkeypatch.setattr("schedopt.core.programs.importers.read_imported", lambda path: {})
    return calls


def test_the_table_says_what_was_measured(run, faked):
    done = run("measure", "net.onnx", "-s", "[s].json", "--repeats", "2", "--shape", "batch=3")
    assert done.exit_code == 1, "results that differ are a failure"
    (model, schedules, repeats, options, force) = faked[0]
    assert not force
    assert (model, schedules, repeats) == ("net.onnx", ["[s].json"], 2)
    assert (options.training, options.shapes, options.device) == ("none", {"batch": 3}, "cpu")
    lines = [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]
    assert "net.onnx: peak memory, 2 runs of each order, each in a new process" in lines
    assert "program order 2.00 KiB 2.00 KiB 0.00% 20 us equal" in lines
    assert "[s].json 0.98 KiB 1.00 KiB -2.34% -50.00% 40 us differ" in lines
    assert "Time of [s].json: 100% slower (95% interval +100% to +100%)." in lines
    assert "It has 90 page faults a run, not 9: freed memory is given back." in lines
    assert any(line.startswith("If it is kept: no difference beyond noise (95%") for line in lines)


def test_raw_runs_are_in_the_document(run, faked):
    document = json.loads(run("measure", "net.onnx", "-s", "[s].json", "--repeats", "2", "--json").stdout)
    before, after = document["orders"]
    assert after["runs"] == [[20.0], [60.0]]
    assert after["time_difference"] == {"change": 1.0, "low": 1.0, "high": 1.0, "is_noise": False}
    assert "time_difference" not in before


def test_force_reaches_the_runner(run, faked):
    assert run("measure", "net.onnx", "-s", "[s].json", "--force", "--repeats", "2").exit_code == 1
    assert faked[0][-1] is True


def test_runs_that_ctrl_c_cut_short_are_shown(run, faked, monkeypatch):
    monkeypatch.setattr(pipeline, "measure", lambda *_, force, snapshot: ROWS[:1])
    done = run("measure", "net.onnx", "-s", "[s].json", "--repeats", "2")
    assert done.exit_code == 130
    assert "net.onnx: peak memory, 2 of 4 runs, each in a new process" in done.stdout
    assert "interrupted: 2 of 4 runs are done" in done.stderr
