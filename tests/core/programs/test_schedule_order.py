"""The order that a schedule file gives to a program: of the model's graph, as files hold it now and held it before."""

import pytest
from models.small_graphs import sketch
from schedopt import OtherGraphError, Problem, UnknownNameError, UsageError
from schedopt.core.files.costgraph import format_graph, parse_graph
from schedopt.core.files.schedule_json import format_document
from schedopt.core.programs.runtime import read_order
from schedopt.core.solve.solve import solve


def model(size=4, extra=False):
    """Return the graph of a model that returns one result of an op with two."""
    more = "; more: log" if extra else ""
    return sketch(f"max -> {size}f {size} us=0.25; add: max.1 -> {size}f; log: max -> {size}{more}", "model")


def write(path, graph, **values):
    result = solve(Problem(graph, **values), "input")
    path.write_text(format_document(result.document()))
    return str(path)


def test_a_schedule_of_the_model_and_one_of_its_file_give_its_order(tmp_path):
    graph = model()
    for written in (graph, parse_graph(format_graph(graph), "g")):
        path = write(tmp_path / "s.json", written)
        assert read_order(path, graph)[0] == [0, 1, 2]
    (tmp_path / "order.txt").write_text("max\nlog\nadd\n")
    assert read_order(str(tmp_path / "order.txt"), graph)[0] == [0, 2, 1]


def test_a_schedule_of_another_model_is_taken_by_force_alone(tmp_path):
    path = write(tmp_path / "s.json", model(size=5))
    message = r"s\.json: made for another graph .*: it is of another model, or imported with other --training or"
    with pytest.raises(OtherGraphError, match=message):
        read_order(path, model())
    assert read_order(path, model(), force=True)[0] == [0, 1, 2]
    path = write(tmp_path / "s.json", model(extra=True))
    with pytest.raises(UnknownNameError, match="'more', which model does not have: it is of another model"):
        read_order(path, model(), force=True)


def test_a_program_runs_on_one_device(tmp_path):
    (tmp_path / "s.json").write_text('{"steps": [{"op": "max", "device": 0}, {"op": "add", "device": 1}]}')
    with pytest.raises(UsageError, match=r"s\.json: the schedule uses 2 devices, .* --devices 1, .* --format"):
        read_order(str(tmp_path / "s.json"), model())
