"""CSV lists of edges, WfCommons' workflows, and edges that lead from users to what they depend on."""

import json

import pytest
from schedopt import FormatError, UsageError
from schedopt.core.model.simulator import input_peak
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions


def imported(folder, name, text, **options):
    notes = []
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return read_model(str(path), ImportOptions(**options), notes.append), notes


@pytest.mark.parametrize(
    "text",
    [
        "source,target,size\na,b,4KiB\na,c,3\nb,c,10\n",
        "a;b;4096\na;c;3\n\nb;c;10\n",
        "size\tDst\tSRC\n4096\tb\ta\n3\tc\ta\n10\tc\tb\n",
    ],
)
def test_a_list_of_edges_with_or_without_names_of_columns(tmp_path, text):
    graph, _ = imported(tmp_path, "net.csv", text)
    assert graph.op_names == ("a", "b", "c")
    assert graph.tensor_size.tolist() == [4096, 3, 10]
    assert graph.predecessors[1].tolist() == [0, 0, 1]


def test_a_name_with_a_line_break_is_another(tmp_path):
    graph, _ = imported(tmp_path, "net.csv", 'source,target,size\n"a\nb",c,4\nab,d,5\n')
    assert graph.op_names == ("a\nb", "c", "ab", "d")


def test_columns_are_the_attributes_of_edges(tmp_path):
    text = "from,to,port,control,alias,weight\na,b,0,,0,5\nb,c,,,,\na,c,,true,,\n"
    graph, notes = imported(tmp_path, "net.csv", text, default_size=8)
    assert "were ignored: weight" in notes[0]
    assert graph.alias_of.tolist() == [-1, -1, 0, -1]
    assert graph.is_control.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,1\nb\n", "line 2 is no edge"),
        ("a,b\nb,c,4\n", "line 2 is no edge"),
        ("source,target\n", "the graph is empty"),
        ("a,b,much\n", "edge 'a' -> 'b' has the size 'much', which is not understood"),
        ("a,b\n", "node 'a' has no size"),
    ],
)
def test_what_is_no_edge_is_named(tmp_path, text, message):
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, "net.csv", text)


def test_edges_from_users_are_noted_and_turned_around(tmp_path):
    dot = "digraph { node [size=4]; loss -> conv; conv -> input_1; conv -> weight; input_1 [label=x] }"
    graph, notes = imported(tmp_path, "net.dot", dot)
    assert any("no edge leaves 'input_1', which looks like an input" in note for note in notes)
    turned, notes = imported(tmp_path, "net.dot", dot, reverse=True)
    assert not any("--reverse" in note for note in notes)
    assert sorted(zip(*turned.edges, strict=True)) == sorted((b, a) for a, b in zip(*graph.edges, strict=True))
    forward = "digraph { node [size=4]; input_1 -> conv; weight -> conv; conv -> loss }"
    assert not any("--reverse" in note for note in imported(tmp_path, "net.dot", forward)[1])
    with pytest.raises(UsageError, match="no use for --reverse"):
        imported(tmp_path, "wf.json", {"workflow": {}}, reverse=True)


def test_a_workflow_of_the_newest_format(tmp_path):
    tasks = [
        {"name": "split", "id": "1", "parents": [], "children": ["2"], "inputFiles": ["in"], "outputFiles": ["a", "b"]},
        {"name": "work", "id": "2", "parents": ["1"], "children": [], "inputFiles": ["a", "in"], "outputFiles": []},
        {"name": "join", "id": "3", "parents": ["2"], "children": [], "inputFiles": ["a"], "outputFiles": ["out"]},
    ]
    files = [{"id": name, "sizeInBytes": size} for name, size in (("in", 100), ("a", 10), ("b", 20), ("out", 1))]
    executed = {"tasks": [{"id": "1", "runtimeInSeconds": 1.5}]}
    document = {"name": "w", "workflow": {"specification": {"tasks": tasks, "files": files}, "execution": executed}}
    graph, notes = imported(tmp_path, "w.json", document)
    assert graph.op_names == ("1", "2", "3")
    assert graph.runtime.tolist() == [1.5e6, 0, 0]
    assert [(t, graph.tensor_name(t)) for t in graph.is_final.nonzero()[0]] == [(1, "1:1"), (3, "3:0")]
    assert input_peak(graph) == 100 + 10 + 20 + 1
    (held,) = graph.annotations.residents
    assert (held.name, held.size, held.readers) == ("in", 100, (0, 1))
    assert graph.annotations.left_out == ("other memory of its tasks",)
    assert graph.is_control.sum() == 1, "join waits for work, and reads what split wrote"
    assert any("the workflow's files are its tensors" in note for note in notes)
    files.pop()
    with pytest.raises(FormatError, match="file 'out' has no size; give it sizeInBytes"):
        imported(tmp_path, "w.json", document)
    assert imported(tmp_path, "w.json", document, default_size=1)[0] == graph


def test_a_workflow_of_an_old_format_and_what_is_none(tmp_path):
    first = {"link": "output", "name": "x", "size": 7}
    jobs = [
        {"name": "one_ID1", "runtime": 2, "files": [first]},
        {"name": "two_ID2", "runtime": 3, "parents": ["one_ID1"], "files": [{**first, "link": "input"}]},
    ]
    graph, _ = imported(tmp_path, "w.json", {"workflow": {"jobs": jobs}})
    assert (graph.op_names, graph.tensor_size.tolist()) == (("one_ID1", "two_ID2"), [7])
    assert graph.runtime.tolist() == [2e6, 3e6]
    for broken in ({}, {"jobs": []}, {"jobs": [{}]}, {"jobs": [*jobs, jobs[0]]}, {"jobs": [{"name": 1, "files": [3]}]}):
        with pytest.raises(FormatError, match=r"workflow"):
            imported(tmp_path, "w.json", {"workflow": broken})
