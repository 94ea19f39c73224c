"""What holds of every runtime: orders are written and measured as asked, and only where the results stay the same."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from models import tflite_models
from models.orders import random_order, write_schedule
from schedopt import FormatError, Problem, Schedule, ScheduleError, UsageError
from schedopt.core.model.simulator import simulate
from schedopt.core.programs import pipeline
from schedopt.core.programs import runtime as runtimes
from schedopt.core.programs.importers import IMPORTERS, read_model
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import Observer, apply, measure
from schedopt.core.programs.runtime import (
    PROGRAM_ORDER,
    Runtime,
    check_output,
    load_runtime,
    runtime_kind,
    time_sentences,
)
from schedopt.core.solve.solve import solve

TIMES = {"microseconds": 5.0, "runs": [4.0, 5.0, 6.0], "page_faults": 0.0, "kept_microseconds": 5.0}
OF_A_FRAMEWORK = {"head": 1000, "tail": 10, "arena": 1010, "not_run": []}


def ignore(text):
    """Drop a remark."""


def pytorch_model(folder):
    return "models.torch_models:branches"


def onnx_model(folder):
    from models.onnx_models import branches, save

    return save(folder / "model.onnx", branches())


def tflite_model(folder):
    pytest.importorskip("tflite_micro")
    (folder / "model.tflite").write_bytes(tflite_models.branches().build())
    return str(folder / "model.tflite")


@pytest.fixture(autouse=True)
def runs_here(request, monkeypatch):
    """Run models in this process, but for what is slow: a process for each run takes most of the time."""
    if request.node.get_closest_marker("slow") is not None:
        return
    monkeypatch.setattr("schedopt.core.programs.pytorch.runtime.ask", lambda *_: 1000)  # what the own call holds
    if find_spec("tflite_micro"):
        tflite_models.run_here(monkeypatch, "tflite.runtime", "tflite.interpreter")


MODELS = {"pytorch": pytorch_model, "onnx": onnx_model, "tflite": tflite_model}


@pytest.fixture(scope="module", params=MODELS)
def program(request, tmp_path_factory):
    """A runtime, and its graph."""
    runtime = load_runtime(MODELS[request.param](tmp_path_factory.mktemp("model")), ImportOptions(), ignore)
    return runtime, runtime.graph("roofline", ignore)


@pytest.fixture
def loaded(program, monkeypatch):
    """Have `apply` and `measure` take the runtime that is loaded."""
    monkeypatch.setattr(pipeline, "load_runtime", lambda *_: program[0])


@pytest.fixture
def output(program, tmp_path):
    return tmp_path / f"out{runtime_kind(program[0].model).suffix}"


def kinds(names):
    """Return names without their numbers, which PyTorch gives anew when it reads a file."""
    return [re.sub(r"_\d+$", "", name) for name in names]


def test_every_kind_that_is_written_has_a_runtime():
    assert {name for name, kind in IMPORTERS.items() if kind.suffix} == set(MODELS)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("a/b.onnx", IMPORTERS["onnx"]),
        ("a.b.pt2", IMPORTERS["pytorch"]),
        ("package.module:function", IMPORTERS["pytorch"]),
    ],
)
def test_the_models_name_says_its_kind(model, kind):
    assert runtime_kind(model) == kind


@pytest.mark.parametrize("model", ["graph.pb.gz", "net", "a:b:c", "a b:c", ":f", "m:", "x.dot"])
def test_other_models_are_refused(model):
    with pytest.raises(UsageError, match="not a program that can be run"):
        runtime_kind(model)


@pytest.mark.slow
def test_a_program_is_a_runtime_of_its_kind(program):
    runtime, graph = program
    assert isinstance(runtime, Runtime)
    assert read_model(runtime.model, ImportOptions(), ignore) == graph
    assert runtime.held(graph) >= graph.persistent.sum()


def test_what_is_written_runs_in_that_order_with_the_same_results(program, output):
    runtime, graph = program
    order = random_order(graph, 3)
    notes = []
    runtime.write(graph, order, str(output), notes.append)
    again = load_runtime(str(output), ImportOptions(), ignore)
    written = again.graph("roofline", ignore).op_names
    if output.suffix == ".onnx":  # whose program order is not that of the file
        written = [node.name for node in again.program.model.graph.node]
    assert kinds(written) == kinds(graph.op_names[op] for op in order) != kinds(graph.op_names)
    assert list(again.results(None).values()) == list(runtime.results(None).values())
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    assert all(note.startswith(str(output)) for note in notes)


@pytest.mark.parametrize(
    ("changed", "message"), [(lambda order: order[::-1], "runs"), (lambda order: order[:-1], "never runs")]
)
def test_what_is_no_order_is_neither_written_nor_run(program, loaded, output, tmp_path, changed, message):
    runtime, graph = program
    order = changed(graph.input_order.tolist())
    with pytest.raises(ScheduleError, match=message):
        runtime.write(graph, order, str(output), ignore)
    schedule = write_schedule(tmp_path / "s.json", graph, order)
    with pytest.raises(ScheduleError, match=message):
        measure(runtime.model, [schedule], 1, ImportOptions(), Observer())
    assert not output.exists()


@pytest.mark.parametrize(
    ("names", "devices", "kind", "message"),
    [
        (lambda graph: tuple(f"other{op}" for op in range(graph.num_ops)), 1, FormatError, "of another model"),
        (lambda graph: graph.op_names, 2, UsageError, "uses 2 devices, and a program runs on one"),
    ],
)
def test_schedules_of_other_models_or_devices_are_refused(program, loaded, tmp_path, names, devices, kind, message):
    runtime, graph = program
    output = tmp_path / f"out{runtime_kind(runtime.model).suffix}"
    graph = replace(graph, op_names=names(graph))
    schedule = write_schedule(tmp_path / "s.json", graph, graph.input_order, devices)
    with pytest.raises(kind, match=message):
        apply(runtime.model, schedule, str(output), ImportOptions(), ignore)
    with pytest.raises(kind, match=message):
        measure(runtime.model, [schedule], 1, ImportOptions(), Observer())
    assert not output.exists()


def test_results_that_differ_are_never_written(program, output, monkeypatch):
    runtime, graph = program
    name = list(runtime.results(None))[-1]
    monkeypatch.setattr(runtime, "results", lambda version: {"first": "same", name: str(version is None)})
    with pytest.raises(ScheduleError, match=f"^{runtime.model}: {name} would not be bitwise what it is in program"):
        runtime.write(graph, graph.input_order.tolist(), str(output), ignore)
    assert not output.exists()


@pytest.mark.slow
def test_ops_run_again(program, output):
    runtime, graph = program
    op = next(op for op in reversed(range(1, graph.num_ops)) if not graph.runs_once[op])
    order = [*range(op), op, *range(op, graph.num_ops)]
    runtime.write(graph, order, str(output), ignore)
    again = load_runtime(str(output), ImportOptions(), ignore).graph("roofline", ignore)
    assert again.num_ops == graph.num_ops + 1


def test_files_of_another_kind_are_refused(program, tmp_path):
    with pytest.raises(UsageError, match="must end in"):
        check_output(program[0].model, str(tmp_path / "out.pb"))


def test_orders_run_in_turns_and_are_compared_with_program_order(program, monkeypatch):
    """Each round begins with another order; what one process says of its results decides whether they are equal."""
    runtime, graph = program
    order, asked = random_order(graph, 1), []

    def answered(module, question, about):
        assert module == runtime.runs
        json.dumps(question)
        model, label = about.split(", ")
        assert model == runtime.model
        asked.append(label)
        return {**OF_A_FRAMEWORK, **TIMES, "peak": 1000 + len(asked), "digests": ["wrong"[: label == "bad"]]}

    monkeypatch.setattr(runtimes, "ask", answered)
    told = []
    rows = runtime.measure(graph, {"good": order, "bad": order}, 2, ignore, lambda *run: told.append(run))
    assert asked == [PROGRAM_ORDER, "good", "bad", "good", "bad", PROGRAM_ORDER]
    assert told == [(number, 6, label) for number, label in enumerate(asked, start=1)]
    assert [(row.order, row.is_equal) for row in rows] == [(PROGRAM_ORDER, True), ("good", True), ("bad", False)]
    held = runtime.held(graph)
    assert rows[1].measured_peaks == (held + 1002, held + 1004)
    assert rows[1].predicted_peak == rows[2].predicted_peak == held + runtime.predicted(graph, order)[0]
    simulated = simulate(Problem(graph), Schedule.single_device(np.array(order)))
    assert rows[1].predicted_peak <= simulated.peak + held - graph.persistent.sum()
    assert rows[1].predicted_microseconds == simulated.runtime


def test_ctrl_c_keeps_the_orders_that_ran(program, monkeypatch):
    runtime, graph = program

    def answered(module, question, about):
        if not about.endswith(PROGRAM_ORDER):
            raise KeyboardInterrupt
        return {**OF_A_FRAMEWORK, **TIMES, "peak": 1, "digests": []}

    monkeypatch.setattr(runtimes, "ask", answered)
    rows = runtime.measure(graph, {"order": random_order(graph, 1)}, 2, ignore)
    assert [row.order for row in rows] == [PROGRAM_ORDER]


def test_an_order_that_is_program_order_is_not_run_against_itself(program, monkeypatch):
    runtime, graph = program
    asked = []
    answer = {**OF_A_FRAMEWORK, **TIMES, "peak": 1, "digests": []}
    monkeypatch.setattr(runtimes, "ask", lambda module, question, about: asked.append(about) or answer)
    monkeypatch.setattr(runtime, "predicted", lambda graph, order: (1, 1.0))
    first, row = runtime.measure(graph, {"found": graph.input_order.tolist()}, 5, ignore)
    assert asked == [f"{runtime.model}, {PROGRAM_ORDER}"] * 5
    assert time_sentences(row, first) == ["found is program order, so it was not run again."]


@pytest.mark.slow
def test_a_better_order_takes_what_was_predicted(program, tmp_path):
    """In real processes, from measured costs to the schedule and its runs."""
    runtime, _ = program
    graph = read_model(runtime.model, ImportOptions(costs="measured"), ignore)
    assert graph.runtime.sum() > 0
    result = solve(Problem(graph), "lpmf")
    result.save(tmp_path / "s.json")
    rows = measure(runtime.model, [str(tmp_path / "s.json")], 1, ImportOptions(), Observer())
    assert [row.order for row in rows] == [PROGRAM_ORDER, str(tmp_path / "s.json")]
    assert all(row.is_equal and abs(row.error) < 0.05 for row in rows)
    is_depth_first = runtime.model.endswith(".onnx")  # already, which is the best order of these branches
    assert rows[1].measured_peak < (1.01 if is_depth_first else 0.9) * rows[0].measured_peak
