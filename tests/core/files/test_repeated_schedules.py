"""Files of schedules that run ops several times, and of graphs that say which ops may not."""

import json

import numpy as np
import pytest
import schedopt
from schedopt.core.base.errors import FormatError, ScheduleError
from schedopt.core.files.costgraph import read_graph, write_graph
from schedopt.core.files.schedule_json import read_schedule, steps_document
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule


def skip_connection(**first):
    """a -> b -> c -> d, and d reads a: computing a again frees 100 bytes while c runs; w waits for c."""
    builder = schedopt.GraphBuilder("skip")
    a = builder.add_op("a", outputs=[100], runtime=1.5, **first)
    b = builder.add_op("b", inputs=[(a, 0)], outputs=[10], runtime=1.0)
    c = builder.add_op("c", inputs=[(b, 0)], outputs=[10], workspace=200, runtime=1.0)
    builder.add_op("d", inputs=[(c, 0), (a, 0)], outputs=[1], final=True, runtime=1.0)
    builder.add_op("w", control=[c], outputs=[1], runtime=1.0)
    return builder.build()


ORDER = [0, 1, 2, 0, 3, 4]


def written(tmp_path, graph, **changes):
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
    loaded = read_schedule(written(tmp_path, graph), graph)
    totals = loaded.verify()
    assert (totals.peak, totals.runtime) == (220, 7.0)
    steps = json.loads((tmp_path / "s.json").read_text())["steps"]
    assert [step["op"] for step in steps] == ["a", "b", "c", "a", "d", "w"]
    assert [step.get("frees", []) for step in steps] == [[], ["a:0"], ["b:0"], [], ["a:0", "c:0"], ["w:0"]]


@pytest.mark.parametrize(
    ("step", "field", "value"),
    [(3, "start_us", 3.0), (3, "end_us", 4.0), (1, "frees", []), (4, "frees", ["c:0"]), (3, "frees", ["a:0"])],
)
def test_what_a_step_claims_wrongly_is_found(tmp_path, step, field, value):
    graph = skip_connection()
    written(tmp_path, graph)
    document = json.loads((tmp_path / "s.json").read_text())
    document["steps"][step][field] = value
    (tmp_path / "s.json").write_text(json.dumps(document))
    with pytest.raises(ScheduleError, match=f"step {step}"):
        read_schedule(tmp_path / "s.json", graph).verify()


def test_repeated_ops_have_to_be_announced(tmp_path):
    graph = skip_connection()
    with pytest.raises(ScheduleError, match="runs twice"):
        read_schedule(written(tmp_path, graph, recompute=False), graph).verify()
    with pytest.raises(FormatError, match="'recompute' has the wrong type"):
        read_schedule(written(tmp_path, graph, recompute=1), graph)


def test_names_one_per_line_run_as_often_as_they_are_named(tmp_path):
    graph = skip_connection()
    (tmp_path / "order").write_text("\n".join(graph.op_names[op] for op in ORDER))
    loaded = read_schedule(tmp_path / "order", graph)
    assert loaded.verify().peak == 220
    with pytest.raises(ScheduleError, match="op 'a' runs twice, but may only run once"):
        read_schedule(tmp_path / "order", skip_connection(once=True)).verify()


@pytest.mark.parametrize("suffix", [".pbtxt", ".pb", ".pb.gz"])
def test_which_ops_may_not_run_twice_is_kept_by_files(tmp_path, suffix):
    graph = skip_connection(once=True)
    write_graph(graph, tmp_path / f"g{suffix}")
    read = read_graph(tmp_path / f"g{suffix}")
    assert read == graph
    assert read.runs_once.tolist() == [True, False, False, False, False]


def test_where_it_is_not_known_any_more_no_op_may(tmp_path):
    write_graph(skip_connection(once=True), tmp_path / "g.pbtxt")
    text = (tmp_path / "g.pbtxt").read_text()
    (tmp_path / "g.pbtxt").write_text(text.replace('name: "b"', 'name: "other"'))
    notes = []
    assert read_graph(tmp_path / "g.pbtxt", notes.append).runs_once.all()
    assert any("which ops may not run twice is not known any more" in note for note in notes)
