"""TFLite files in other orders: what changes in them, what they take, and that they give the same results."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite_micro")

import schedopt
import tflite
from models.orders import random_order
from models.tflite_models import (
    Model,
    branches,
    control_flow,
    random_model,
    repeated,
    run_here,
    stateful,
    with_plan,
    with_variables,
)
from schedopt import ProgramError, Schedule
from schedopt.core.files.buffers_csv import header_text
from schedopt.core.model.verifier import verify
from schedopt.core.programs import pipeline
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.runtime import load_runtime, problem_of
from schedopt.core.programs.tflite.interpreter import MicroInterpreter, least_arena, run_file
from schedopt.core.programs.tflite.planner import head_of
from schedopt.core.programs.tflite.program import parse_program
from schedopt.core.programs.tflite.runtime import TfliteRuntime, ask_bytes, planned


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    run_here(monkeypatch, "runtime", "tflite.runtime", "tflite.interpreter")


MODELS = {
    "branches": branches,
    "control flow": control_flow,
    "stateful": stateful,
    "variables": with_variables,
    "a plan of its own": with_plan,
    "random 1": lambda: random_model(1),
    "random 2": lambda: random_model(2),
    "random 3": lambda: random_model(3, ops=20),
}


def run_bytes(data, about):
    return ask_bytes(TfliteRuntime.runs, data, about, times=False)


def saved(folder, model, name="model.tflite"):
    path = folder / name
    path.write_bytes(model.build())
    return str(path)


def loaded(path):
    runtime = load_runtime(path, ImportOptions(), lambda text: None)
    return runtime, runtime.graph("roofline", lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_order_gives_the_same_bits_and_the_predicted_arena(name, tmp_path):
    runtime, graph = loaded(saved(tmp_path, MODELS[name]()))
    scratch = runtime.found(False).scratch
    before = run_bytes(runtime.program.data, "m")
    assert head_of(runtime.program, scratch) == before["head"]
    for seed in range(2):
        order = random_order(graph, seed)
        new = planned(runtime.program, graph, order, scratch)
        after = run_bytes(new.data, "m")
        assert after["digests"] == before["digests"]
        assert after["head"] == new.head


def test_only_the_order_of_the_operators_changes(tmp_path):
    path = saved(tmp_path, branches())
    runtime, graph = loaded(path)
    order = random_order(graph, 3)
    runtime.write(graph, order, str(tmp_path / "new.tflite"), lambda text: None)
    old, new = runtime.program.data, (tmp_path / "new.tflite").read_bytes()
    assert new.endswith(old)
    assert tflite.Model.GetRootAsModel(new, 0).Description() == tflite.Model.GetRootAsModel(old, 0).Description()
    written, program = parse_program(new, "new"), runtime.program
    moved = len(new) - len(old)
    assert [replace(t, position=t.position - moved) for t in written.main.tensors] == list(program.main.tensors)
    assert {replace(o, position=o.position - moved) for o in written.main.operators} == set(program.main.operators)
    assert written.names == [graph.op_names[op] for op in order[1:]]


def test_applied_twice_the_old_plan_is_replaced(tmp_path):
    runtime, graph = loaded(saved(tmp_path, branches()))
    scratch = runtime.found(False).scratch
    once = planned(runtime.program, graph, random_order(graph, 1), scratch)
    program = parse_program(once.data, "once")
    (tmp_path / "once.tflite").write_bytes(once.data)
    again, graph = loaded(str(tmp_path / "once.tflite"))
    twice = planned(again.program, graph, random_order(graph, 2), again.found(False).scratch)
    assert parse_program(twice.data, "twice").offsets != program.offsets
    assert run_bytes(twice.data, "m")["digests"] == run_bytes(runtime.program.data, "m")["digests"]
    metadata = tflite.Model.GetRootAsModel(twice.data, 0)
    assert metadata.MetadataLength() == 1


@pytest.mark.slow
def test_operators_may_run_again(tmp_path):
    path = saved(tmp_path, repeated())
    runtime, graph = loaded(path)
    names = ["inputs", "large", "first", "middle", "wide", "other", "small", "large", "second", "y"]
    order = [graph.op_names.index(name) for name in names]
    problem = problem_of(graph, order)
    verify(problem, Schedule.single_device(np.array(order)))
    runtime.write(graph, order, str(tmp_path / "again.tflite"), lambda text: None)
    new = parse_program((tmp_path / "again.tflite").read_bytes(), "again")
    assert new.names == ["large (run 1)", *names[2:]]
    assert len(new.main.operators) == graph.num_ops
    heads = [run_bytes(program.data, "m")["head"] for program in (runtime.program, new)]
    assert heads[1] < heads[0]


@pytest.mark.slow
def test_recomputation_end_to_end(tmp_path):
    path = saved(tmp_path, repeated())
    limit = 3100
    graph = schedopt.import_model(path)
    result = schedopt.solve(graph, recompute=True, memory_limit=limit, seed=0)
    assert result.peak_memory <= limit and len(result.schedule) > graph.num_ops
    result.save(tmp_path / "plan.json")
    rows = pipeline.measure(path, [str(tmp_path / "plan.json")], 1, ImportOptions(), pipeline.Observer())
    assert [row.is_equal for row in rows] == [True, True]
    assert [row.predicted_peak for row in rows] == [row.measured_peak for row in rows]
    assert rows[1].measured_peak <= limit < rows[0].measured_peak


@pytest.mark.slow
def test_fit_lets_operators_run_again(tmp_path):
    path = saved(tmp_path, repeated())
    answer = schedopt.fit(path, 3100 + run_bytes(repeated().build(), "m")["tail"] + 64)
    assert [way.verdict for way in answer.ways[:2]] == ["no", "not found"]
    assert answer.ways[2].verdict == "yes" and answer.ways[2].peak <= answer.memory
    tight = schedopt.fit(path, 2900)
    assert [way.verdict for way in tight.ways] == ["no", "no", "not found"]


def test_a_view_lies_at_the_address_of_its_input(tmp_path):
    model = Model()
    main = model.subgraph()
    source = main.input([1, 64])
    shape = main.constant(np.array([8, 8], np.int32))
    wide = main.apply("ADD", [source, source], [1, 64], name="wide")
    view = main.apply("RESHAPE", [wide, shape], [8, 8], name="view")
    main.outputs = [main.apply("ADD", [view, view], [8, 8], name="y")]
    runtime, graph = loaded(saved(tmp_path, model))
    new = planned(runtime.program, graph, range(graph.num_ops), {})
    offsets = parse_program(new.data, "m").offsets
    assert offsets[wide] == offsets[view]
    assert run_bytes(new.data, "m")["digests"] == run_bytes(runtime.program.data, "m")["digests"]


@pytest.mark.slow
def test_the_arena_is_a_c_header(tmp_path):
    runtime, graph = loaded(saved(tmp_path, repeated()))
    order = random_order(graph, 1)
    for output in ("net.tflite", "net.h"):
        runtime.write(graph, order, str(tmp_path / output), lambda text: None)
    lines = (tmp_path / "net.h").read_text().splitlines()
    values = {name: int(value) for _, name, value in (line.split() for line in lines if line.count(" ") == 2)}
    new = parse_program((tmp_path / "net.tflite").read_bytes(), "net")
    assert values.pop("NET_ARENA_BYTES") == least_arena(str(tmp_path / "net.tflite")) > values.pop("NET_HEAD_BYTES")
    tensors = zip(new.main.tensors, new.offsets, strict=True)
    assert values == {f"NET_{t.name.upper()}_OFFSET": at for t, at in tensors if not t.is_constant}
    assert "NET_0_X_OFFSET_1 16" in header_text("net", {}, [("0:x", 0), ("0/x", 16)])


def test_what_the_runtime_refuses_is_not_written(tmp_path):
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4], "UINT8")
    main.outputs = [main.apply("CONCATENATION", [source, source], [1, 8], "UINT8", name="y", Axis=1)]
    notes = []
    runtime = load_runtime(saved(tmp_path, model), ImportOptions(), notes.append)
    graph = runtime.graph("roofline", notes.append)
    assert any("tflite-micro" in note and "scratch buffers" in note for note in notes)
    assert runtime.arena(graph) is runtime.arena(graph, [0, 1]) is None
    with pytest.raises(ProgramError, match="tflite-micro"):
        runtime.write(graph, [0, 1], str(tmp_path / "new.tflite"), notes.append)
    assert not (tmp_path / "new.tflite").exists()


def layers(sizes):
    """Fully connected layers one after another, whose tensors take less than what the runtime needs to start."""
    model = Model()
    main = model.subgraph()
    last = main.input([1, sizes[0]])
    for at, (given, taken) in enumerate(pairwise(sizes)):
        weight, bias = (main.constant(np.ones(shape, np.float32)) for shape in ((taken, given), (taken,)))
        last = main.apply("FULLY_CONNECTED", [last, weight, bias], [1, taken], name=f"y{at}")
    main.outputs = [last]
    return model


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[4, 16, 16, 1], [*[8] * 14, 2]])
def test_the_least_arena_is_that_in_which_the_runtime_starts(tmp_path, sizes):
    path = saved(tmp_path, layers(sizes))
    least, kept = least_arena(path), run_file(path, False)
    assert least > kept["head"] + kept["tail"]
    MicroInterpreter(Path(path).read_bytes(), least).invoke()
    with pytest.raises(ProgramError, match="tflite-micro refuses it"):
        MicroInterpreter(Path(path).read_bytes(), least - 1)


@pytest.mark.slow
def test_fit_asks_for_the_least_arena(tmp_path):
    path = saved(tmp_path, branches())
    least = least_arena(path)
    answer = schedopt.fit(path, least)
    assert answer.ways[0].peak == least > answer.ways[0].lower_bound and answer.ways[0].verdict == "yes"
    less = schedopt.fit(path, least - 1, confirm=True)
    assert [way.verdict for way in less.ways] == ["no", "yes"]
    assert less.ways[1].measured == less.ways[1].peak
