"""The schedule JSON: what `solve` writes is what a reader gets back, and every way for a file to be wrong."""

import copy
import json

import naive
import numpy as np
import pytest
from schedopt.core.base.errors import FormatError, ScheduleError
from schedopt.core.files.costgraph import structure_hash
from schedopt.core.files.schedule_json import format_document, read_schedule
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.problem.problem import Problem
from schedopt.core.solve.solve import solve
from schedopt.version import VERSION


def solved(seed, method="brkga", **values):
    graph, _ = naive.random_graph(np.random.default_rng([70, seed]), 9)
    return solve(Problem(graph, **values), method, evaluations=30, seed=seed)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"devices": 2, "memory_limit": 90},
        {"task": "runtime", "devices": 3, "bandwidth": 1e6, "latency": 0.25},
        {"task": "runtime", "devices": 2, "memory_limit": 1},
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_result_survives_its_file(tmp_path, seed, values):
    result = solved(seed, **values)
    document = result.document()
    path = tmp_path / "schedule.json"
    path.write_text(format_document(document))
    assert json.loads(path.read_text()) == document

    loaded = read_schedule(path, result.problem.graph)
    assert loaded.problem == result.problem
    assert loaded.schedule.items.tolist() == result.schedule.items.tolist()
    assert loaded.schedule.sources.tolist() == result.schedule.sources.tolist()
    assert loaded.schedule.targets.tolist() == result.schedule.targets.tolist()
    assert loaded.status == result.status
    assert loaded.verify().peak == document["peak_memory"]


def test_the_document_of_a_result():
    """Every field of the format, by name and value."""
    result = solved(1, "auto", task="runtime", devices=2, memory_limit=1, latency=0.5)
    graph = result.problem.graph
    document = result.document()
    peaks = result.simulation.peak_per_device.tolist()
    steps = document.pop("steps")
    seconds = document.pop("seconds")
    assert 0 <= seconds < 1000
    assert document == {
        "schedopt": VERSION,
        "format": 2,
        "graph": "random",
        "graph_sha256": structure_hash(graph),
        "task": "runtime",
        "method": "auto",
        "status": "infeasible",
        "devices": 2,
        "memory_limit": 1,
        "bandwidth": None,
        "latency_us": 0.5,
        "seed": 1,
        "repeatable": True,
        "peak_memory": max(peaks),
        "peak_memory_per_device": peaks,
        "runtime_us": result.value,
        "lower_bound": result.lower_bound,
        "evaluations": round(result.evaluations, 3),
        "found_by": result.found_by,
    }
    ops = {step["op"]: step["device"] for step in steps if "op" in step}
    assert ops == dict(zip(graph.op_names, result.schedule.placement(graph).tolist(), strict=True))
    for step in steps:
        if "tensor" in step:
            assert ops[step["tensor"].rpartition(":")[0]] == step["from"] != step["to"]
    times = {"start_us", "end_us"}
    for step in steps:
        assert set(step) - {"frees"} in ({"op", "device"} | times, {"tensor", "from", "to", "bytes"} | times)


DELETED = object()
OP = {"op": "op1", "device": 0}
WRONG = {
    "no steps": ("steps", DELETED, "field 'steps' is missing"),
    "task": ("task", "speed", "unknown task 'speed'"),
    "task is a number": ("task", 3, "'task' has the wrong type: 3"),
    "devices is text": ("devices", "2", "'devices' has the wrong type"),
    "devices is a fraction": ("devices", 1.5, "'devices' has the wrong type"),
    "devices is true": ("devices", True, "'devices' has the wrong type"),
    "no devices": ("devices", 0, "devices must be from 1 to 64"),
    "negative limit": ("memory_limit", -5, "memory limit"),
    "limit out of range": ("memory_limit", 10**30, "'memory_limit' is out of range"),
    "no bandwidth": ("bandwidth", 0, "bandwidth must be positive"),
    "bandwidth out of range": ("bandwidth", 10**400, "'bandwidth' is out of range"),
    "infinite bandwidth": ("bandwidth", float("inf"), "'bandwidth' is out of range"),
    "latency is NaN": ("latency_us", float("nan"), "'latency_us' is out of range"),
    "negative latency": ("latency_us", -1.0, "latency"),
    "status is a list": ("status", [], "'status' has the wrong type"),
    "runtime is text": ("runtime_us", "1", "'runtime_us' has the wrong type"),
    "runtime is NaN": ("runtime_us", float("nan"), "'runtime_us' is out of range"),
    "peaks is a number": ("peak_memory_per_device", 4, "'peak_memory_per_device' has the wrong type"),
    "peaks are fractions": ("peak_memory_per_device", [4.5], "whole numbers"),
    "steps is an object": ("steps", {}, "'steps' has the wrong type"),
    "format of the future": ("format", 7, "format 7 is not known; this version reads 2"),
    "format by name": ("format", "2", 'format "2" is not known'),
    "format is true": ("format", True, "format true is not known"),
    "format is null": ("format", None, "format null is not known"),
    "another graph": ("graph_sha256", "0" * 64, "made for another graph than random: .* 000000000000.* --force"),
    "hash is a number": ("graph_sha256", 5, "'graph_sha256' has the wrong type: 5"),
    "peak is text": ("peak_memory", "5", "'peak_memory' has the wrong type"),
    "step is a number": ("steps", [7], "step 0 is neither an op .* nor a tensor .*: 7"),
    "step without device": ("steps", [{"op": "op1"}], "step 0 is neither"),
    "device is text": ("steps", [{"op": "op1", "device": "0"}], "step 0 is neither"),
    "transfer without target": ("steps", [{"tensor": "op1:0", "from": 0}], "step 0 is neither"),
    "unknown op": ("steps", [{"op": "conv", "device": 0}], "step 0 names the op 'conv', which random does not have"),
    "unknown tensor": ("steps", [{"tensor": "op1:9", "from": 0, "to": 1}], "step 0 names the tensor 'op1:9'"),
    "device out of range": ("steps", [{"op": "op1", "device": 2**40}], "step 0 names a device out of range"),
    "start is text": ("steps", [{**OP, "start_us": "1"}], "step 0: the field 'start_us' has the wrong type: '1'"),
    "end is null": ("steps", [{**OP, "end_us": None}], "step 0: the field 'end_us' has the wrong type: None"),
    "end is NaN": ("steps", [{**OP, "end_us": float("nan")}], "step 0: the field 'end_us' is out of range: nan"),
    "bytes is a fraction": ("steps", [{**OP, "bytes": 1.5}], "step 0: the field 'bytes' has the wrong type: 1.5"),
    "frees is a name": ("steps", [OP, {**OP, "frees": "op1:0"}], "step 1: the field 'frees' has the wrong type"),
    "frees a number": ("steps", [{**OP, "frees": [3]}], "step 0 frees the tensor 3, which random does not have"),
    "unknown status": ("status", "perfect", "unknown status 'perfect'; one of optimal, "),
    "bound is text": ("lower_bound", "5", "'lower_bound' has the wrong type"),
    "bound is true": ("lower_bound", True, "'lower_bound' has the wrong type"),
    "seed is negative": ("seed", -1, "'seed' is wrong: -1"),
    "seconds is NaN": ("seconds", float("nan"), "'seconds' is wrong: nan"),
    "method is null": ("method", None, "'method' is wrong: None"),
    "repeatable is a number": ("repeatable", 1, "'repeatable' is wrong: 1"),
    "long value": ("seed", "x" * 10**6, "'seed' is wrong: 'x{79}\\.\\.\\.$"),
    "device is true": ("steps", [{"op": "op1", "device": True}], "step 0 names a device out of range"),
    "both": ("steps", [{**OP, "tensor": "op1:0", "from": 0, "to": 1}], "step 0 is neither"),
    "frees twice": ("steps", [{**OP, "frees": ["op1:0", "op1:0"]}], "step 0 frees a tensor twice"),
    "frees an unknown": ("steps", [{**OP, "frees": ["op1:9"]}], "step 0 frees the tensor 'op1:9', which random"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_way_to_be_wrong_has_a_message_that_names_file_and_field(tmp_path, case):
    field, value, message = WRONG[case]
    result = solved(3)
    document = copy.deepcopy(result.document())
    if value is DELETED:
        del document[field]
    else:
        document[field] = value
    path = tmp_path / "s.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=rf"s\.json: .*{message}"):
        read_schedule(path, result.problem.graph)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a JSON file, or truncated"),
        (b'{"task": "memory", ', "not a JSON file, or truncated"),
        (b"\x1f\x8b\x00", "not a JSON file"),
        (b"\xff\xfe", "not a JSON file"),
        (b"[" * 200_000, "not a JSON file"),
        (b'{"devices": ' + b"9" * 5000 + b"}", "not a JSON file"),
        (b"[]", "not a schedule JSON, which is an object"),
        (b"{}", "field 'steps' is missing"),
        (b"\xef\xbb\xbf{}", "field 'steps' is missing"),
        (b'{"steps": [], "peak_memory": 5, "peak_memory": 6}', "the field 'peak_memory' is there twice"),
        (b'{"steps": [{"op": "op0", "device": 1, "device": 0}]}', "the field 'device' is there twice"),
        (None, "cannot be read"),
    ],
)
def test_files_that_are_no_schedule(tmp_path, data, message):
    path = tmp_path / "s.json"
    if data is not None:
        path.write_bytes(data)
    graph, _ = naive.random_graph(np.random.default_rng(71), 3)
    with pytest.raises(FormatError, match=rf"s\.json: .*{message}"):
        read_schedule(path, graph)


def test_a_schedule_that_claims_what_it_does_not_keep_is_read_and_then_rejected(tmp_path):
    result = solved(4, devices=2)
    document = result.document()
    path = tmp_path / "s.json"
    for change, message in (
        ({"steps": document["steps"][::-1]}, "without its input"),
        ({"peak_memory_per_device": [0, 0]}, "claims peaks of"),
        ({"peak_memory": 0}, "claims a peak of 0 bytes"),
        ({"runtime_us": 0.0}, "claims 0.0 us"),
        ({"lower_bound": document["peak_memory"] + 1}, "claims that none is below"),
        ({"lower_bound": document["peak_memory"] - 1, "status": "optimal"}, "claims to be optimal, but has"),
        ({"status": "infeasible"}, "claims to be infeasible, but no memory limit is exceeded"),
        ({"status": "limit-not-met"}, "claims to be limit-not-met, but no memory limit is exceeded"),
        ({"status": "infeasible", "memory_limit": 10**9}, "claims to be infeasible"),
    ):
        path.write_text(json.dumps({**document, **change}))
        loaded = read_schedule(path, result.problem.graph)
        with pytest.raises(ScheduleError, match=message):
            loaded.verify()


def test_a_graph_whose_ops_look_like_json_reads_its_own_file(tmp_path):
    builder = GraphBuilder("odd")
    builder.add_op("{", outputs=[4])
    builder.add_op("b", inputs=[(0, 0)], outputs=[4])
    graph, path = builder.build(), tmp_path / "s.json"
    solve(Problem(graph), "input").save(path)
    assert read_schedule(path, graph).verify().peak == 8
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_schedule(path, graph).verify().peak == 8


def test_a_schedule_without_homes_is_told_what_it_lacks(tmp_path):
    builder = GraphBuilder("shared")
    first = builder.add_op("one", outputs=[8], runtime=5.0, persistent=400)
    builder.add_op("two", inputs=[(first, 0)], outputs=[8], runtime=5.0)
    weights = (Resident("w", "parameter", 400, first, (0, 1)),)
    graph, path = builder.build(Annotations(residents=weights)), tmp_path / "s.json"
    steps = [{"op": name, "device": 0} for name in ("one", "two")]
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": steps}))
    with pytest.raises(ScheduleError, match=r"home of 'w', one of 1 resident tensors: .* solve the graph again"):
        read_schedule(path, graph).verify()
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": [{"op": "w", "device": 1}, *steps]}))
    with pytest.raises(ScheduleError, match="'w:0' is read on device 0, but not sent there"):
        read_schedule(path, graph).verify()
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": [{"op": "w", "device": 0}, *steps]}))
    assert read_schedule(path, graph).verify().runtime == 10.0
