"""A model where a graph is read: imported on the fly, with a note that says so."""

import pytest
import schedopt
from schedopt import FormatError, UsageError
from schedopt.core.programs.importers import is_model, read_any

DOT = 'digraph { a [size="4MiB"]; b [size="1MiB"]; c [size="2MiB", final=true]; a -> b -> c; a -> c }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.dot").write_text(DOT)
    schedopt.write_graph(schedopt.import_model("small.dot"), "small.pbtxt")
    return tmp_path


def test_models_are_told_from_graphs_by_name(folder):
    for name in ("net.onnx", "net.pt2", "package.module:function", "graph.dot", "graph.gv", "graph.json"):
        assert is_model(name)
    for name in ("net.pbtxt", "net.pb.gz", "net", "-", "folder/", "net.txt"):
        assert not is_model(name)
    (folder / "a:b").write_text("a file")
    assert not is_model("a:b")


def test_a_model_is_imported_and_a_note_says_how_to_say_more(folder):
    notes = []
    graph = read_any("small.dot", notes.append)
    assert graph == read_any("small.pbtxt", pytest.fail)
    assert graph.annotations.imported == {"model": "small.dot"}
    assert notes[-1] == (
        "small.dot is imported with default options; schedopt import small.dot --output GRAPH takes others "
        "(--default-size, --reverse, --graph)"
    )


def test_the_front_door_takes_models(folder):
    result = schedopt.solve("small.dot")
    assert result.problem.graph == schedopt.read_graph("small.pbtxt")
    assert any("schedopt import small.dot" in note for note in result.notes)
    assert schedopt.compare("small.dot", ["input", "dfs"]).is_complete


def test_a_missing_option_is_told_with_the_command_that_takes_it(folder):
    (folder / "bare.dot").write_text("digraph { a -> b }")
    with pytest.raises((UsageError, FormatError), match="--default-size"):
        read_any("bare.dot")
