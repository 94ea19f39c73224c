"""What `measure` prints and draws of plans of several streams, and what `apply --format device-map` refuses."""

import dataclasses
import json

import numpy as np
import pytest
from schedopt.core.programs import pipeline
from schedopt.core.programs.stream_plans import Spans, StreamPlan
from schedopt.core.programs.stream_report import StreamReport, StreamRow

PLAN = StreamPlan((0, 1, 2, 3, 4, 5), (0, 0, 1, 0, 1, 1), 6000.0)


@pytest.fixture
def report(diamond):
    spans = Spans(np.array([0.0, 1, 1, 3, 3, 5]), np.array([1.0, 3, 3, 4, 4, 7]))
    own = StreamRow("one stream", (8000.0, 9000.0), ((8000.0,), (9000.0,)), ((0.0,), (0.0,)), True)
    own = dataclasses.replace(own, plan=StreamPlan(PLAN.order, (0,) * 6), predicted=8500.0)
    plan = dataclasses.replace(own, label="[p].json", microseconds=(4000.0, 4500.0), plan=PLAN, predicted=4250.0)
    return StreamReport(diamond, (own, dataclasses.replace(plan, spans=spans, predicted_spans=spans)), 20.0, 0.01, 4)


@pytest.fixture
def faked(monkeypatch, report):
    """Let measuring return a report of streams; what it returns can be replaced."""
    found = [report]
    monkeypatch.setattr(pipeline, "measure", lambda *_, force: found[0])
    monkeypatch.setattr("schedopt.core.programs.imported.read_imported", lambda path: {})
    return found


def lines_of(text):
    return [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]


def test_the_table_says_what_was_predicted_and_measured(run, faked, tmp_path):
    plot = tmp_path / "gantt.svg"
    done = run("measure", "net.onnx", "-s", "[p].json", "--repeats", "2", "--plot", plot)
    assert done.exit_code == 0, done.stderr
    lines = lines_of(done.stdout)
    assert "net.onnx: time, 2 runs of each in turns, 2 rounds, each in a new process" in lines
    assert "one stream 1 8.50 ms 8.50 ms 0.0% equal" in lines
    assert "[p].json 2 4.25 ms 4.25 ms 0.0% 2.00 equal" in lines
    assert "[p].json was planned to take 6 ms; 2 results cross streams." in lines
    drawn = plot.read_text()
    assert all(text in drawn for text in ("stream 0, predicted", "stream 1, predicted", "measured", "wide2", "join"))


def test_every_op_is_in_the_document(run, faked):
    document = json.loads(run("measure", "net.onnx", "-s", "[p].json", "--repeats", "2", "--json").stdout)
    own, plan = document["ways"]
    assert "ops" not in own and own["streams"] == 1 and plan["planned_microseconds"] == 6000.0
    assert plan["ops"][2] == {
        **{"op": "wide2", "stream": 1, "start_us": 1.0, "end_us": 3.0},
        **{"predicted_start_us": 1.0, "predicted_end_us": 3.0},
    }
    assert plan["time_difference"]["change"] == pytest.approx(-0.5)


def test_results_that_differ_and_rounds_that_miss_are_told_by_the_exit_code(run, faked, report):
    assert run("measure", "net.onnx", "-s", "[p].json", "--repeats", "3").exit_code == 130
    own, plan = report.rows
    faked[0] = dataclasses.replace(report, rows=(own, dataclasses.replace(plan, is_equal=False)))
    done = run("measure", "net.onnx", "-s", "[p].json", "--repeats", "2")
    assert done.exit_code == 1
    assert "[p].json 2 4.25 ms 4.25 ms 0.0% 2.00 differ" in lines_of(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("measure", "net.onnx", "--plot", "p.html"), "p.html: the name must end in one of .png (a picture), .svg"),
        (("apply", "net.onnx", "s.json", "-o", "m.json", "--format", "device-map"), "a device map is of the modules"),
        (("apply", "m:f", "s.json", "-o", "m.pt2", "--format", "device-map"), "m.pt2: a device map is written as JSON"),
        (("apply", "m:f", "s.json", "-o", "m.pt2", "--format", "map"), "one of program, device-map, not 'map'"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
