"""Plans of several streams under ONNX Runtime: the files that it reads, what it runs where, equal results."""

import dataclasses
import json
import os
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from models.onnx_models import branches, model_of, save, value  # noqa: E402
from onnx import helper  # noqa: E402
from schedopt.core.base.errors import ProgramError, ScheduleError  # noqa: E402
from schedopt.core.problem.problem import Problem  # noqa: E402
from schedopt.core.programs.onnx import stream_apply  # noqa: E402
from schedopt.core.programs.onnx.importer import graph_of  # noqa: E402
from schedopt.core.programs.onnx.loading import load_program  # noqa: E402
from schedopt.core.programs.onnx.session import kernel_spans, random_inputs, session_of  # noqa: E402
from schedopt.core.programs.onnx.stream_apply import partition_file, write_streams  # noqa: E402
from schedopt.core.programs.onnx.stream_chart import stream_figure  # noqa: E402
from schedopt.core.programs.onnx.stream_measure import _note_order  # noqa: E402
from schedopt.core.programs.onnx.stream_run import ONE_STREAM, OWN_WAYS, node_times, run_streams  # noqa: E402
from schedopt.core.programs.onnx.streams import silenced, stream_options, workers  # noqa: E402
from schedopt.core.programs.options import ImportOptions  # noqa: E402
from schedopt.core.programs.pipeline import Observer, apply, measure  # noqa: E402
from schedopt.core.programs.stream_plans import Spans, StreamPlan, predict  # noqa: E402
from schedopt.core.programs.stream_report import StreamReport  # noqa: E402


def quiet(_):
    pass


def by_branch(graph, streams):
    """A plan of the model of branches: each branch on one stream, what merges them on the first."""
    of = [int(name[-2]) % streams if name[-1].isdigit() else 0 for name in graph.op_names]
    return StreamPlan(tuple(range(graph.num_ops)), tuple(of))


def write_plan(path, graph, plan):
    """A schedule file of a plan, with the transfers that its placement needs."""
    steps, sent = [], set()
    homes = Problem(graph, devices=plan.count).graph
    stream_of = {op: plan.stream_of[op] for op in range(graph.num_ops)}
    for number, resident in enumerate(homes.held):
        home = graph.num_ops + number
        stream_of[home] = plan.stream_of[resident.readers[0]]
        steps.append({"op": homes.op_names[home], "device": stream_of[home]})
    pointers, tensors = homes.inputs
    for op in plan.order:
        for tensor in tensors[pointers[op] : pointers[op + 1]].tolist():
            source, target = stream_of[int(homes.tensor_producer[tensor])], stream_of[op]
            if source != target and (tensor, target) not in sent:
                sent.add((tensor, target))
                steps.append({"tensor": homes.tensor_name(tensor), "from": source, "to": target})
        steps.append({"op": graph.op_names[op], "device": plan.stream_of[op]})
    path.write_text(json.dumps({"steps": steps, "devices": plan.count}))
    return str(path)


@pytest.fixture
def program(tmp_path):
    return load_program(save(tmp_path / "net.onnx", branches(width=16)), {})


@pytest.mark.parametrize("streams", [2, 3])
def test_onnx_runtime_runs_each_stream_in_the_plans_order(program, tmp_path, streams):
    graph = graph_of(program)
    plan = by_branch(graph, streams)
    partition = write_streams(program, graph, plan, str(tmp_path / "streams.onnx"))
    assert partition == partition_file(str(tmp_path / "streams.onnx")) == tmp_path / "streams.partition.json"
    document = json.loads(partition.read_text())
    assert document["streams"] == [[graph.op_names[op] for op in stream] for stream in plan.streams]
    options = stream_options(plan.count, partition, str(tmp_path))
    model = onnx.load(tmp_path / "streams.onnx")
    session = session_of(model, tmp_path, options)
    inputs = random_inputs(program)
    expected = onnxruntime.InferenceSession(program.path, stream_options()).run(None, inputs)
    assert all(np.array_equal(*pair) for pair in zip(session.run(None, inputs), expected, strict=True))
    spans = {name: (start, start + length) for name, start, length in kernel_spans(session)}
    for stream in document["streams"]:
        for before, after in pairwise(stream):
            assert spans[after][0] >= spans[before][1] - 1


def test_the_file_is_of_onnx_runtimes_own_form(program, tmp_path):
    """Given a missing file ONNX Runtime writes one: all nodes on one stream, otherwise in the form that is written."""
    own = tmp_path / "own.json"
    session_of(program.model, tmp_path, stream_options(2, own))
    partition = write_streams(program, graph_of(program), by_branch(graph_of(program), 2), str(tmp_path / "two.onnx"))
    theirs, ours = (json.loads(path.read_text()) for path in (own, partition))
    assert theirs.keys() == ours.keys() and theirs["type"] == ours["type"]
    assert set(theirs["devices"]) == set(ours["devices"]) and len(ours["devices"]) == len(ours["streams"]) == 2
    assert sorted(theirs["streams"][0]) == sorted(name for stream in ours["streams"] for name in stream)


def test_constant_nodes_are_on_the_stream_of_their_first_reader(tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["two"], value=onnx.numpy_helper.from_array(np.float32(2))),
        helper.make_node("Sqrt", ["two"], ["root"]),
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Mul", ["x", "root"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, [value("x", ["rows", 4])], [value("y", ["rows", 4])])
    program = load_program(save(tmp_path / "net.onnx", model), {"rows": 3})
    plan = StreamPlan((0, 1, 2), (0, 1, 0))
    partition = write_streams(program, graph_of(program), plan, str(tmp_path / "two.onnx"))
    assert json.loads(partition.read_text())["streams"] == [["Abs_2", "Add_4"], ["Sqrt_1", "Mul_3"]]
    written = onnx.load(tmp_path / "two.onnx")
    assert written.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"


def test_a_node_that_runs_as_others_has_no_stream(tmp_path):
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Mish", ["a"], ["y"], "mish")]
    model = model_of(nodes, [value("x", [4])], [value("y", [4])])
    model.opset_import[0].version = 18
    program = load_program(save(tmp_path / "net.onnx", model), {})
    with pytest.raises(ProgramError, match="has no kernel for node 'mish' and runs 3 others for it, which no stream"):
        write_streams(program, graph_of(program), StreamPlan((0, 1), (0, 1)), str(tmp_path / "two.onnx"))
    assert not (tmp_path / "two.onnx").exists()


def test_nothing_is_written_where_results_differ(program, tmp_path, monkeypatch):
    def differ(*_):
        raise ScheduleError("output 'y' would differ")

    monkeypatch.setattr(stream_apply, "check_equal", differ)
    graph = graph_of(program)
    with pytest.raises(ScheduleError, match="would differ"):
        write_streams(program, graph, by_branch(graph, 2), str(tmp_path / "two.onnx"))
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_a_node_takes_until_the_next_one_starts():
    runs = [[("a", 0.0, 3.0), ("b", first, last)] for first, last in ((5.0, 2.0), (4.0, 9.0), (9.0, 4.0))]
    assert node_times(runs) == {"a": 5.0, "b": 4.0}
    body = [("if", 0.0, 9.0), ("in body", 1.0, 2.0), ("in body too", 4.0, 5.0), ("c", 11.0, 3.0)]
    assert node_times([body]) == {"if": 11.0, "c": 3.0}


@pytest.mark.slow
def test_plans_run_in_turns_and_agree(program):
    graph = graph_of(program)
    plan = by_branch(graph, 2)
    report = run_streams(program.path, {}, {"plan": [(graph.op_names[op], plan.stream_of[op]) for op in plan.order]})
    ways = report["ways"]
    assert list(ways) == [*OWN_WAYS, "plan"]
    assert len({len(way["runs"]) for way in ways.values()}) == 1
    assert ways["plan"]["digests"] == ways[ONE_STREAM]["digests"]
    assert len(ways["plan"]["digests"]) == 1
    assert sorted(report["node_microseconds"]) == sorted(name for name, _, _ in report["spans"]["plan"])
    assert report["hand_over"] >= 0


@pytest.mark.slow
def test_a_schedule_of_several_devices_is_applied_and_measured(program, tmp_path):
    graph = graph_of(program)
    schedule = write_plan(tmp_path / "plan.json", graph, by_branch(graph, 2))
    notes = []
    apply(program.path, schedule, str(tmp_path / "two.onnx"), ImportOptions(), notes.append)
    assert f"inter_op_num_threads = {workers(2)} that do not spin" in notes[-1]
    report = measure(program.path, [schedule], 1, ImportOptions(), Observer(notes.append))
    assert isinstance(report, StreamReport)
    assert [row.label for row in report.rows] == [*OWN_WAYS, schedule]
    assert all(row.is_equal for row in report.rows if row.plan is not None)
    row = report.rows[-1]
    assert row.plan.streams == by_branch(graph, 2).streams
    pointers, before = graph.predecessors
    for op in range(graph.num_ops):
        assert all(row.spans.end[other] <= row.spans.start[op] + 1 for other in before[pointers[op] : pointers[op + 1]])
    assert report.rows[0].predicted == pytest.approx(sum(row.predicted_spans.end - row.predicted_spans.start))
    texts = [text.get_text() for text in stream_figure(report).axes[0].get_yticklabels()]
    assert texts == ["stream 0, predicted", "measured", "stream 1, predicted", "measured"]


def test_a_plan_that_waits_for_ever_is_refused(program, tmp_path):
    graph = graph_of(program)
    plan = by_branch(graph, 2)
    backwards = dataclasses.replace(plan, order=tuple(reversed(plan.order)))
    schedule = write_plan(tmp_path / "plan.json", graph, backwards)
    for run in (
        lambda: apply(program.path, schedule, str(tmp_path / "two.onnx"), ImportOptions(), quiet),
        lambda: measure(program.path, [schedule], 1, ImportOptions(), Observer()),
    ):
        with pytest.raises(ScheduleError):
            run()


def test_an_order_that_was_not_followed_is_noted(program):
    graph = graph_of(program)
    plan = by_branch(graph, 2)
    spans = predict(graph, plan, [10.0] * graph.num_ops, 0.0)
    notes = []
    _note_order(program, "plan.json", plan, spans, notes.append)
    assert not notes
    start = spans.start.copy()
    start[plan.streams[1][2]] -= 5
    _note_order(program, "plan.json", plan, Spans(start, spans.end), notes.append)
    first, second = (program.names[op] for op in plan.streams[1][1:3])
    assert notes == [
        f"plan.json: ONNX Runtime began node '{second}' before '{first}' of the same stream had ended: the plan was "
        "not followed"
    ]


def test_what_onnx_runtime_prints_is_not_printed(tmp_path, capfd):
    """A pooled value that a view reuses: ONNX Runtime says so on standard output, where results are."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Abs", ["x"], ["absolute"]),
        helper.make_node("Exp", ["flat"], ["y"]),
    ]
    model = model_of(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 3]), value("absolute", [1, 3, 8, 8])])
    program = load_program(save(tmp_path / "net.onnx", model), {})
    graph = graph_of(program)
    plan = StreamPlan((0, 1, 2, 3), (0, 0, 1, 0))
    write_streams(program, graph, plan, str(tmp_path / "two.onnx"))
    assert capfd.readouterr().out == ""
    for wrapper in (silenced, nullcontext):
        with wrapper():
            os.write(1, b"of a library\n")
    print("after")
    assert capfd.readouterr().out == "of a library\nafter\n"
