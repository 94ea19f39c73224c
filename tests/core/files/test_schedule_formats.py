"""What a schedule file may hold beyond its steps, each claim verified; what else is read as a schedule; its schema."""

import copy
import json
from importlib.resources import files

import naive
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from models.seeds import seeds
from schedopt.core.base.errors import FormatError, OtherGraphError, ScheduleError, UnknownNameError
from schedopt.core.files.costgraph import structure_hash
from schedopt.core.files.schedule_json import format_document, read_schedule
from schedopt.core.graph.annotations import Annotations
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.programs.importers import with_imported
from schedopt.core.programs.options import ImportOptions
from schedopt.core.report.result import Result
from schedopt.core.solve.solve import solve


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


# What a file claims ------------------------------------------------------------------------------------------


def tampered(document, rng):
    """Yield `(what, document)` for each way to change one optional field, at a step that has it."""
    for key, change in (
        ("start_us", lambda value: value + 1),
        ("end_us", lambda value: value + 1),
        ("end_us", lambda value: value - 1),
        ("bytes", lambda value: value + 1),
        ("frees", lambda names: names[1:]),
        ("frees", lambda names: [*names, names[0] + "0"]),
    ):
        having = [number for number, step in enumerate(document["steps"]) if key in step]
        if not having:
            continue
        number = int(rng.choice(having))
        other = copy.deepcopy(document)
        other["steps"][number][key] = change(other["steps"][number][key])
        yield f"{key} of step {number}", other
    freeing = [number for number, step in enumerate(document["steps"]) if "frees" in step]
    others = [number for number in range(len(document["steps"])) if number not in freeing]
    if len(freeing) > 1:  # with none left, nothing is claimed
        other = copy.deepcopy(document)
        del other["steps"][freeing[0]]["frees"]
        yield "frees is missing", other
    if freeing and others:
        other = copy.deepcopy(document)
        other["steps"][others[0]]["frees"] = other["steps"][freeing[0]]["frees"]
        yield "frees twice", other


@pytest.mark.parametrize("seed", seeds(200, quick=4))
def test_every_claim_of_a_drawn_schedule_is_verified_and_no_other_passes(tmp_path, seed):
    devices = 1 + seed % 3
    costs = {} if seed % 4 else {"bandwidth": 3e6, "latency": 0.25}
    result, path = drawn(seed, devices, **costs), tmp_path / "s.json"
    document = written(result, path)
    Draft202012Validator(schema()).validate(document)
    totals = verified(path, result.problem.graph)
    assert totals.peak_per_device == result.simulation.peak_per_device.tolist()
    for what, other in tampered(document, np.random.default_rng(seed)):
        path.write_text(json.dumps(other))
        with pytest.raises((ScheduleError, UnknownNameError)):
            pytest.fail(f"{what}: {verified(path, result.problem.graph)}")


def small():
    """Return a result on two devices, by hand: a sends its 8 bytes and keeps a view; c reads the copy."""
    builder = GraphBuilder("small")
    builder.add_op("a", outputs=[8], runtime=2.0)
    builder.add_op("view", inputs=[(0, 0)], outputs=[8], aliases=[0], runtime=1.0)
    builder.add_op("c", inputs=[(0, 0)], outputs=[3], runtime=4.0, final=True)
    graph = builder.build()
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


@pytest.mark.parametrize(
    ("step", "change", "message"),
    [
        (2, {"start_us": 5.5}, "step 2, op 'view', starts at 4.5 us, but the schedule claims 5.5 us"),
        (3, {"end_us": 9.5}, "step 3, op 'c', ends at 8.5 us, but the schedule claims 9.5 us"),
        (1, {"end_us": 4.4}, "step 1, transfer of 'a:0', ends at 4.5 us"),
        (1, {"bytes": 7}, "step 1, transfer of 'a:0', sends 8 bytes, but the schedule claims 7"),
        (0, {"bytes": 8}, "step 0, op 'a', sends no bytes, but the schedule claims 8"),
        (2, {"frees": ["view:0"]}, "step 2, op 'view', frees 'a:0', but the schedule claims otherwise"),
        (2, {"frees": []}, "step 2, op 'view', frees 'a:0'"),
        (1, {"frees": ["a:0"]}, "step 1, transfer of 'a:0', does not free 'a:0', but the schedule claims otherwise"),
        (3, {"frees": ["a:0", "c:0"]}, "step 3, op 'c', does not free 'c:0'"),
    ],
)
def test_a_claim_that_does_not_hold_is_named(tmp_path, step, change, message):
    result, path = small(), tmp_path / "s.json"
    document = result.document()
    document["steps"][step] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(ScheduleError, match=f"^small: {message}"):
        verified(path, result.problem.graph)


# The schema ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("task", ["memory", "runtime"])
@pytest.mark.parametrize("method", ["input", "lpmf", "dfs", "brkga", "local-search", "gp-dfs", "auto"])
def test_what_solve_writes_is_what_the_schema_says(tmp_path, method, task, devices):
    graph, _ = naive.random_graph(np.random.default_rng([73, devices]), 12)
    graph = with_imported(graph, "net.pt2", ImportOptions(training="adam", shapes={"s0": 3}, device="cuda"))
    problem = Problem(graph, task, devices, memory_limit=10**6 if devices == 2 else 1, bandwidth=1e6, latency=1.0)
    budget = 20 if method in ("brkga", "local-search", "auto") else None
    result = solve(problem, method, evaluations=budget)
    document = written(result, tmp_path / "s.json")
    found = schema()
    Draft202012Validator(found).validate(document)
    asked_for = {"recompute", "runtime_limit_us", "machine", "replicate", "alignment", "arenas"}
    assert set(document) == set(found["properties"]) - asked_for  # which are there with options alone
    for step in document["steps"]:
        assert set(step) <= set(found["$defs"]["op" if "op" in step else "transfer"]["properties"])
    verified(tmp_path / "s.json", graph)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 3},
        {"graph_sha256": "abc"},
        {"imported": 1},
        {"task": "speed"},
        {"status": "limit"},
        {"devices": 0},
        {"memory_limit": 0.5},
        {"steps": [{"op": "a"}]},
        {"steps": [{"op": "a", "device": 0, "tensor": "a:0", "from": 0, "to": 1}]},
        {"steps": [{"op": "a", "device": 0, "frees": ["a:0", "a:0"]}]},
        {"steps": [{"op": "a", "device": 0, "start_us": -1}]},
        {"steps": [{"tensor": "a:0", "from": 0, "to": 1, "bytes": "8"}]},
    ],
)
def test_the_schema_refuses(change):
    assert not Draft202012Validator(schema()).is_valid({**small().document(), **change})


# Formats and graphs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [{"schedopt": "0.1.0"}, {"schedopt": "0.1.0", "format": 1}, {"format": 1}])
def test_format_1_is_refused_with_the_version_that_wrote_it(tmp_path, head):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**head, "steps": []}))
    with pytest.raises(FormatError, match=r"s\.json: schedopt 0\.1(\.0)? wrote it in format 1, .*; solve again"):
        read_schedule(path, chain())


def chain(**values):
    """Return a graph of two ops, with one thing different."""
    builder = GraphBuilder("chain")
    builder.add_op("a", outputs=[values.get("size", 4)], runtime=values.get("runtime", 1.0), op_id=values.get("id", 0))
    builder.add_op(
        values.get("name", "b"),
        op_id=1,
        inputs=[(values.get("id", 0), 0)],
        control=[values.get("id", 0)] * ("control" in values),
        outputs=[4],
        aliases=[values.get("alias", -1)],
        final=values.get("is_final", True),
        workspace=values.get("workspace", 0),
        persistent=values.get("persistent", 0),
    )
    return builder.build()


@pytest.mark.parametrize("key", ["size", "name", "control", "alias", "is_final", "persistent"])
def test_a_graph_that_differs_has_another_hash_and_its_schedules_are_refused(tmp_path, key):
    values = {"size": 5, "name": "c", "control": True, "alias": 0, "is_final": False, "persistent": 9}
    graph, other, path = chain(), chain(**{key: values[key]}), tmp_path / "s.json"
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


@pytest.mark.parametrize("values", [{"id": 7}, {"runtime": 2.0}, {"workspace": 3}])
def test_ids_and_measured_costs_make_no_other_graph_but_costs_are_verified(tmp_path, values):
    graph, other, path = chain(), chain(**values), tmp_path / "s.json"
    assert structure_hash(graph) == structure_hash(other)
    written(solve(Problem(graph), "input"), path)
    loaded = read_schedule(path, other)
    if "id" in values:
        loaded.verify()
    else:
        with pytest.raises(ScheduleError, match=r"but takes|but the schedule claims"):
            loaded.verify()


# Plans of other tools ------------------------------------------------------------------------------------------


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


# Where an op comes from ----------------------------------------------------------------------------------------


def annotated():
    """Return a graph of two ops, of which the second alone is in a module."""
    builder = GraphBuilder("annotated")
    first = builder.add_op("mm", outputs=[8])
    builder.add_op("relu", inputs=[(first, 0)], outputs=[8])
    return builder.build(Annotations(("", "net.act"), ("net.py:3", "net.py:4"), ("forward", "forward")))


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
