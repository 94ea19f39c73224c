"""How a graph was imported goes with it: into its schedule, and from there to whoever runs the program."""

import json

import pytest
from models.small_graphs import sketch
from schedopt import FormatError, Problem, UsageError, read_schedule
from schedopt.core.programs.importers import options_for, with_imported
from schedopt.core.programs.options import ImportOptions
from schedopt.core.solve.solve import solve


@pytest.fixture
def graph():
    return sketch("op -> 8", "one")


def saved(path, graph, **options):
    """Write the schedule of a graph that was imported so."""
    result = solve(Problem(with_imported(graph, "net:model", ImportOptions(**options))), "input")
    path.write_text(result.json())
    return str(path)


@pytest.mark.parametrize(
    "options", [{}, {"training": "adam"}, {"shapes": {"batch": 3}, "device": "cuda"}, {"costs": "measured"}]
)
def test_what_was_said_once_is_known(tmp_path, graph, options):
    path = saved(tmp_path / "s.json", graph, **options)
    assert json.loads((tmp_path / "s.json").read_text())["imported"] == {"model": "net:model", **options}
    read_schedule(path, graph).verify()
    expected = {name: value for name, value in options.items() if name != "costs"}
    assert options_for([path], {}, pytest.fail) == ImportOptions(**expected)


def test_a_graph_that_was_built_says_nothing(tmp_path, graph):
    document = solve(Problem(graph), "input").document()
    assert "imported" not in document


def test_what_is_given_wins_and_is_told(tmp_path, graph):
    path, notes = saved(tmp_path / "s.json", graph, training="sgd"), []
    assert options_for([path], {"training": "adam"}, notes.append).training == "adam"
    assert notes == [f"{path}: its graph was imported with --training sgd; --training adam is used, as given"]
    assert options_for([path], {"training": "sgd"}, pytest.fail).training == "sgd"


def test_schedules_that_contradict_each_other_are_refused(tmp_path, graph):
    one, other = saved(tmp_path / "a.json", graph, training="sgd"), saved(tmp_path / "b.json", graph)
    with pytest.raises(UsageError, match=r"a\.json .* --training sgd, .*b\.json .* --training none; .* give"):
        options_for([one, other], {}, pytest.fail)
    assert options_for([one, other], {"training": "sgd"}, lambda text: None).training == "sgd"


def test_files_that_do_not_say_have_no_part_in_it(tmp_path, graph):
    (tmp_path / "names.txt").write_text("op\n")
    (tmp_path / "plan.json").write_text('{"steps": [{"op": "op", "device": 0}]}')
    path = saved(tmp_path / "s.json", graph, training="sgd")
    paths = [str(tmp_path / "names.txt"), path, str(tmp_path / "plan.json")]
    assert options_for(paths, {}, pytest.fail).training == "sgd"


@pytest.mark.parametrize(
    "imported", [7, {"training": 1}, {"shapes": {"batch": 0}}, {"shapes": {"batch": "1"}}, {"shapes": [1]}]
)
def test_another_form_is_refused(tmp_path, imported):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"imported": imported, "steps": []}))
    with pytest.raises(FormatError, match=r"s\.json: the field 'imported' has"):
        options_for([str(path)], {}, pytest.fail)
