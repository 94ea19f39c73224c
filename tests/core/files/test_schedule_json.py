"""The schedule JSON: what `solve` writes is what a reader gets back, and every way for a file to be wrong."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import naive
import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator
from models.small_graphs import SKIPPED, sketch
from schedopt import (
    FormatError,
    GraphBuilder,
    OtherGraphError,
    Problem,
    Result,
    Schedule,
    ScheduleError,
    UnknownNameError,
    read_graph,
    read_schedule,
    write_graph,
)
from schedopt.core.files.costgraph import structure_hash
from schedopt.core.files.schedule_json import format_document, order_text, steps_document
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.programs.importers import with_imported
from schedopt.core.programs.options import ImportOptions
from schedopt.core.solve.solve import solve
from schedopt.version import VERSION

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


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
        "format": 3,
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


WRONG = yaml.safe_load(Path(__file__).with_name("wrong_schedules.yaml").read_text()) | {
    "bandwidth out of range": ("bandwidth", 10**400, "'bandwidth' is out of range"),
    "long value": ("seed", "x" * 10**6, "'seed' is wrong: 'x{79}\\.\\.\\.$"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_way_to_be_wrong_has_a_message_that_names_file_and_field(tmp_path, case):
    field, value, message = WRONG[case]
    result = solved(3)
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**result.document(), field: value}))
    with pytest.raises(FormatError, match=rf"s\.json: .*{message}"):
        read_schedule(path, result.problem.graph)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a JSON file, or truncated"),
        (b'{"task": "memory", ', "not a JSON file, or truncated"),
        (b"\x1f\x8b\x00", "not a JSON file"),
        (b"[" * 200_000, "not a JSON file"),
        (b'{"devices": ' + b"9" * 5000 + b"}", "not a JSON file"),
        (b"[]", "not a schedule JSON, which is an object"),
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
        ({"status": "infeasible"}, "claims to be infeasible, but no limit is exceeded"),
        ({"status": "limit-not-met"}, "claims to be limit-not-met, but no limit is exceeded"),
        ({"status": "infeasible", "memory_limit": 10**9}, "claims to be infeasible"),
    ):
        path.write_text(json.dumps({**document, **change}))
        loaded = read_schedule(path, result.problem.graph)
        with pytest.raises(ScheduleError, match=message):
            loaded.verify()


def test_a_graph_whose_ops_look_like_json_reads_its_own_file(tmp_path):
    graph, path = sketch("{ -> 4; b: { -> 4", "odd"), tmp_path / "s.json"
    solve(Problem(graph), "input").save(path)
    assert read_schedule(path, graph).verify().peak == 8
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_schedule(path, graph).verify().peak == 8


def test_a_schedule_without_homes_is_told_what_it_lacks(tmp_path):
    notes = Annotations(residents=(Resident("w", "parameter", 400, 0, (0, 1)),))
    graph, path = sketch("one -> 8 us=5 keep=400; two: one -> 8 us=5", "shared", notes), tmp_path / "s.json"
    steps = [{"op": name, "device": 0} for name in ("one", "two")]
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": steps}))
    with pytest.raises(ScheduleError, match=r"home of 'w', one of 1 resident tensors: .* solve the graph again"):
        read_schedule(path, graph).verify()
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": [{"op": "w", "device": 1}, *steps]}))
    with pytest.raises(ScheduleError, match="'w:0' is read on device 0, but not sent there"):
        read_schedule(path, graph).verify()
    path.write_text(json.dumps({"devices": 2, "task": "runtime", "steps": [{"op": "w", "device": 0}, *steps]}))
    assert read_schedule(path, graph).verify().runtime == 10.0


def test_on_equal_devices_a_file_lists_the_homes_of_all_residents_or_of_shared_ones(tmp_path):
    notes = Annotations(residents=tuple(Resident(f"w{op}", "parameter", 400, op, (op,)) for op in (0, 1)))
    graph, path = sketch("one -> 8 us=5 keep=400; two: one -> 8 us=5 keep=400", "alone", notes), tmp_path / "s.json"
    ops = [{"op": "one", "device": 0}, {"op": "two", "device": 0}]
    homes, sent = [{"op": "w0", "device": 0}, {"op": "w1", "device": 1}], {"tensor": "w1:0", "from": 1, "to": 0}

    def verified(steps, **where):
        path.write_text(json.dumps({"steps": steps, **where}))
        return read_schedule(path, graph).verify().peak_per_device

    machine = {"devices": [{"name": "a"}, {"name": "b"}], "default_link": {}}
    assert verified(ops, machine=machine) == verified(ops, devices=2) == [816, 0]
    assert verified([*homes, sent, *ops], machine=machine) == [816, 400]
    with pytest.raises(ScheduleError, match="home of 'w1', one of 2 resident tensors"):
        verified([homes[0], *ops], machine=machine)
    with pytest.raises(UnknownNameError, match="step 1 names the op 'w0'"):
        verified([*homes, sent, *ops], devices=2)


def schema():
    text = files("schedopt.core.files").joinpath("schedule.schema.json").read_text("utf-8")
    found = json.loads(text)
    Draft202012Validator.check_schema(found)
    return found


def drawn(seed, devices, **values):
    """Return the result of a method that draws a placement and an order."""
    rng = np.random.default_rng([72, seed, devices])
    graph, plain = naive.random_graph(rng, int(rng.integers(2, 14)))
    schedule = Schedule.from_steps(*naive.schedule_of(plain, *naive.random_steps(rng, plain, devices)))
    problem = Problem(graph, "runtime" if seed % 2 else "memory", devices, **values)
    simulation = simulate(problem, schedule)
    words = {"method": "drawn", "found_by": "drawn", "status": "feasible"}
    numbers = {"lower_bound": 0, "evaluations": 1.0, "seconds": 0.0, "seed": seed, "is_repeatable": True}
    return Result(problem, schedule, simulation, **words, **numbers)


def written(result, path):
    """Write a result's file; returns its document."""
    document = result.document()
    path.write_text(format_document(document))
    assert json.loads(path.read_text()) == document
    return document


def verified(path, graph, **values):
    return read_schedule(path, graph, **values).verify()


def small():
    """Return a result on two devices, by hand: a sends its 8 bytes and keeps a view; c reads the copy."""
    graph = sketch("a -> 8 us=2; view: a -> 8@0 us=1; c: a -> 3f us=4", "small")
    schedule = Schedule.from_steps([0, ~0, 1, 2], [0, 0, 0, 1], [0, 1, 0, 1])
    problem = Problem(graph, devices=2, bandwidth=4e6, latency=0.5)
    numbers = {"lower_bound": 8, "evaluations": 1.0, "seconds": 0.0, "seed": 0, "is_repeatable": True}
    simulation = simulate(problem, schedule)
    return Result(problem, schedule, simulation, method="m", found_by="m", status="feasible", **numbers)


def test_steps_by_hand():
    document = small().document()
    assert document["steps"] == [
        {"op": "a", "device": 0, "start_us": 0.0, "end_us": 2.0},
        {"tensor": "a:0", "from": 0, "to": 1, "bytes": 8, "start_us": 2.0, "end_us": 4.5},
        {"op": "view", "device": 0, "start_us": 4.5, "end_us": 5.5, "frees": ["a:0", "view:0"]},
        {"op": "c", "device": 1, "start_us": 4.5, "end_us": 8.5, "frees": ["a:0"]},
    ]
    lines = format_document(document).splitlines()
    assert lines[-6:-2] == [f"  {json.dumps(step)}{',' * (at < 3)}" for at, step in enumerate(document["steps"])]


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("method", ["input", "brkga", "gp-dfs", "auto"])
def test_what_solve_writes_is_what_the_schema_says(tmp_path, method, task, devices):
    graph, _ = naive.random_graph(np.random.default_rng([73, devices]), 12)
    graph = with_imported(graph, "net.pt2", ImportOptions(training="adam", shapes={"s0": 3}, device="cuda"))
    problem = Problem(graph, task, devices, memory_limit=10**6 if devices == 2 else 1, bandwidth=1e6, latency=1.0)
    budget = 20 if method in ("brkga", "auto") else None
    result = solve(problem, method, evaluations=budget)
    document = written(result, tmp_path / "s.json")
    found = schema()
    Draft202012Validator(found).validate(document)
    asked_for = {"recompute", "runtime_limit_us", "machine", "replicate", "alignment", "arenas", "reserved"}
    asked_for |= {"peak_share", "peak_share_bound"}
    assert set(document) == set(found["properties"]) - asked_for  # which are there with options alone
    for step in document["steps"]:
        assert set(step) <= set(found["$defs"]["op" if "op" in step else "transfer"]["properties"])
    verified(tmp_path / "s.json", graph)


@pytest.mark.parametrize("change", TABLE["what the schema refuses"])
def test_the_schema_refuses(change):
    assert not Draft202012Validator(schema()).is_valid({**small().document(), **change})


@pytest.mark.parametrize("head", [{"schedopt": "0.1.0"}, {"schedopt": "0.1.0", "format": 1}, {"format": 1}])
def test_format_1_is_refused_with_the_version_that_wrote_it(tmp_path, head):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**head, "steps": []}))
    with pytest.raises(FormatError, match=r"s\.json: schedopt 0\.1(\.0)? wrote it in format 1, .*; solve again"):
        read_schedule(path, chain())


def chain(size=4, name="b", control=False, alias="", final="f", us=1, work=0, keep=0):
    """Return a graph of two ops, with one thing different."""
    waits = "!a" if control else ""
    return sketch(f"a -> {size} us={us}; {name}: a {waits} -> 4{final}{alias} work={work} keep={keep}", "chain")


@pytest.mark.parametrize(
    ("key", "value"), [("size", 5), ("name", "c"), ("control", True), ("alias", "@0"), ("final", ""), ("keep", 9)]
)
def test_a_graph_that_differs_has_another_hash_and_its_schedules_are_refused(tmp_path, key, value):
    graph, other, path = chain(), chain(**{key: value}), tmp_path / "s.json"
    written(solve(Problem(graph), "input"), path)
    with pytest.raises(OtherGraphError, match=r"s\.json: made for another graph than chain: .*--force") as error:
        read_schedule(path, other)
    assert structure_hash(graph)[:12] in str(error.value)
    assert structure_hash(other)[:12] in str(error.value)
    if key == "name":
        with pytest.raises(UnknownNameError, match="names the op 'b', which chain does not have"):
            read_schedule(path, other, force=True)
    else:
        assert read_schedule(path, other, force=True).schedule.items.tolist() == [0, 1]


def test_ids_and_measured_costs_make_no_other_graph_but_costs_are_verified(tmp_path):
    graph, path = chain(), tmp_path / "s.json"
    written(solve(Problem(graph), "input"), path)
    ids = replace(graph, op_ids=np.array([7, 1]))
    read_schedule(path, ids).verify()
    for other in (ids, chain(us=2), chain(work=3)):
        assert structure_hash(graph) == structure_hash(other)
        if other is not ids:
            with pytest.raises(ScheduleError, match=r"but takes|but the schedule claims"):
                read_schedule(path, other).verify()


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_steps_alone_are_a_schedule(tmp_path, seed, devices):
    result, path = drawn(seed, devices), tmp_path / "s.json"
    wanted = ("op", "device", "tensor", "from", "to")
    steps = [{key: step[key] for key in wanted if key in step} for step in result.document()["steps"]]
    path.write_text(json.dumps({"steps": steps}))
    loaded = read_schedule(path, result.problem.graph)
    used = 1 + int(result.schedule.targets.max())
    assert loaded.problem == Problem(result.problem.graph, "memory", used)
    assert (loaded.status, loaded.runtime, loaded.peak, loaded.peak_per_device) == ("feasible", None, None, None)
    assert loaded.verify().peak_per_device == result.simulation.peak_per_device.tolist()[:used]
    path.write_text(json.dumps({"steps": steps, "runtime_us": -5.0}))
    with pytest.raises(ScheduleError, match=r"claims -5\.0 us"):
        verified(path, result.problem.graph)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(5))
def test_op_names_one_per_line_are_an_order_on_one_device(tmp_path, seed, ending):
    result, path = drawn(seed, 1), tmp_path / "order.txt"
    graph = result.problem.graph
    path.write_bytes("".join(f"{graph.op_names[op]}{ending}" for op in result.schedule.op_order()).encode())
    loaded = read_schedule(path, graph)
    assert loaded.problem == Problem(graph)
    assert loaded.schedule.items.tolist() == result.schedule.items.tolist()
    assert loaded.verify().peak == result.simulation.peak
    path.write_bytes(path.read_bytes().removesuffix(ending.encode()))
    assert len(read_schedule(path, graph).schedule) == graph.num_ops


@pytest.mark.parametrize(
    "first", ["a\nb", "\ufeffa", '"a"', '"a', "{", " a\t\r", "\x1b[31m", "\ud800", "\u2028", "\\n"]
)
def test_an_order_of_any_names_is_read_again(tmp_path, first):
    builder, names, path = GraphBuilder("g"), (first, "a", "plain \u00e4"), tmp_path / "order.txt"
    for name in names:
        builder.add_op(name, outputs=[8])
    path.write_text(text := order_text(names), newline="")
    assert text.splitlines()[1:] == ["a", "plain \u00e4"]
    assert read_schedule(path, builder.build()).schedule.items.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("a\nc\n", UnknownNameError, r"order\.txt: line 2 is 'c', which is no op of chain"),
        ("hello", UnknownNameError, r"line 1 is 'hello', .*; a schedule is JSON, or op names, one per line"),
        ("a\n\nb\n", UnknownNameError, "line 2 is ''"),
        (" a\nb\n", UnknownNameError, "line 1 is ' a'"),
        ("x" * 200, UnknownNameError, f"line 1 is '{'x' * 80}',"),
        ("a\n", ScheduleError, "op 'b' never runs"),
        ("b\na\n", ScheduleError, "op 'b' runs on device 0 without its input 'a:0'"),
        ("\n", FormatError, "not a JSON file, or truncated"),
    ],
)
def test_an_order_that_is_wrong(tmp_path, text, error, message):
    path = tmp_path / "order.txt"
    path.write_text(text)
    with pytest.raises(error, match=message):
        verified(path, chain())


def annotated():
    """Return a graph of two ops, of which the second alone is in a module."""
    notes = Annotations(("", "net.act"), ("net.py:3", "net.py:4"), ("forward", "forward"))
    return sketch("mm -> 8; relu: mm -> 8", "annotated", notes)


def test_steps_say_the_module_and_the_line_of_their_op(tmp_path):
    result = solve(Problem(annotated()), "input")
    document = written(result, tmp_path / "s.json")
    Draft202012Validator(schema()).validate(document)
    origins = [{key: step[key] for key in ("module", "line") if key in step} for step in document["steps"]]
    assert origins == [{"line": "net.py:3"}, {"module": "net.act", "line": "net.py:4"}]
    verified(tmp_path / "s.json", annotated())


def test_a_broken_rule_names_the_op_with_its_module_and_line():
    problem = Problem(annotated())
    with pytest.raises(ScheduleError, match=r"op 'relu' \(net.act, net.py:4\) runs on device 0 without its input"):
        verify(problem, Schedule.single_device([1, 0]))
    with pytest.raises(ScheduleError, match=r"op 'mm' \(net.py:3\) never runs"):
        verify(problem, Schedule.single_device([1]))


def skip_connection(first=""):
    """a -> b -> c -> d, and d reads a: computing a again frees 100 bytes while c runs; w waits for c."""
    return sketch(f"a -> 100 us=1.5 {first}; {SKIPPED}; w: !c -> 1 us=1", "skip")


ORDER = [0, 1, 2, 0, 3, 4]


def written_file(tmp_path, graph, **changes):
    problem, schedule = Problem(graph, recompute=True), Schedule.single_device(np.array(ORDER))
    simulation = simulate(problem, schedule)
    document = {
        "recompute": True,
        "peak_memory": simulation.peak,
        "runtime_us": simulation.runtime,
        "steps": steps_document(problem, schedule, simulation),
    }
    (tmp_path / "s.json").write_text(json.dumps({**document, **changes}))
    return str(tmp_path / "s.json")


def test_a_schedule_file_holds_every_run_and_all_of_it_is_verified(tmp_path):
    graph = skip_connection()
    loaded = read_schedule(written_file(tmp_path, graph), graph)
    totals = loaded.verify()
    assert (totals.peak, totals.runtime) == (220, 7.0)
    steps = json.loads((tmp_path / "s.json").read_text())["steps"]
    assert [step["op"] for step in steps] == ["a", "b", "c", "a", "d", "w"]
    assert [step.get("frees", []) for step in steps] == [[], ["a:0"], ["b:0"], [], ["a:0", "c:0"], ["w:0"]]


def test_repeated_ops_have_to_be_announced(tmp_path):
    graph = skip_connection()
    with pytest.raises(ScheduleError, match="runs twice"):
        read_schedule(written_file(tmp_path, graph, recompute=False), graph).verify()
    with pytest.raises(FormatError, match="'recompute' has the wrong type"):
        read_schedule(written_file(tmp_path, graph, recompute=1), graph)


def test_names_one_per_line_run_as_often_as_they_are_named(tmp_path):
    graph = skip_connection()
    (tmp_path / "order").write_text("\n".join(graph.op_names[op] for op in ORDER))
    loaded = read_schedule(tmp_path / "order", graph)
    assert loaded.verify().peak == 220
    with pytest.raises(ScheduleError, match="op 'a' runs twice, but may only run once"):
        read_schedule(tmp_path / "order", skip_connection("once")).verify()


@pytest.mark.parametrize("suffix", [".pbtxt", ".pb", ".pb.gz"])
def test_which_ops_may_not_run_twice_is_kept_by_files(tmp_path, suffix):
    graph = skip_connection("once")
    write_graph(graph, tmp_path / f"g{suffix}")
    read = read_graph(tmp_path / f"g{suffix}")
    assert read == graph
    assert read.runs_once.tolist() == [True, False, False, False, False]


def test_where_it_is_not_known_any_more_no_op_may(tmp_path):
    write_graph(skip_connection("once"), tmp_path / "g.pbtxt")
    text = (tmp_path / "g.pbtxt").read_text()
    (tmp_path / "g.pbtxt").write_text(text.replace('name: "b"', 'name: "other"'))
    notes = []
    assert read_graph(tmp_path / "g.pbtxt", notes.append).runs_once.all()
    assert any("the marks of ops that may not run twice are lost" in note for note in notes)
