"""DOT and node-link JSON: exact round trips, what attributes mean, what tools write, and every way to be wrong."""

import json
from dataclasses import replace
from pathlib import Path

import naive
import networkx as nx
import numpy as np
import pytest
import yaml
from models.seeds import seeds
from schedopt import FormatError, GraphBuilder, GraphError
from schedopt.core.graph.annotations import PHASES, Annotations
from schedopt.core.programs.graphs import attributed_graph
from schedopt.core.programs.options import ImportOptions

FORMATS = {
    ".dot": (attributed_graph.read_dot, attributed_graph.format_dot),
    ".json": (attributed_graph.read_node_link, attributed_graph.format_node_link),
}

DOT_OF_OTHERS = "digraph { node [size=1 runtime=1]; a [phase=liquid]; b [phase=backward]; a -> b }"
JSON_OF_OTHERS = json.dumps(
    {"nodes": [{"id": 0, "size": 1, "phase": 2, "module": "m"}, {"id": 1, "size": 1, "phase": "backward", "module": 3}]}
    | {"edges": []}
)


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text (DOT unless it begins with a brace) and gives the graph and the notes."""

    def read_text(text, default_size=None):
        suffix = ".json" if text.startswith("{") else ".dot"
        path = tmp_path / f"graph{suffix}"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        notes = []
        graph = FORMATS[suffix][0](str(path), ImportOptions(default_size=default_size), notes.append)
        return graph, notes

    return read_text


def arcs(graph):
    """Return each op with what it reads, by name."""
    pointers, reads = graph.inputs
    names = [graph.tensor_name(t) for t in reads]
    return {name: names[pointers[op] : pointers[op + 1]] for op, name in enumerate(graph.op_names)}


def random_graph(seed):
    """Views, finals per port, repeated and control inputs, ops without outputs; ids from 0 on in file order."""
    rng = np.random.default_rng([60, seed])
    graph, _ = naive.random_graph(rng, int(rng.integers(1, 25)))
    builder = GraphBuilder("graph")
    producer, start = graph.tensor_producer, graph.output_ptr
    for op, name in enumerate(graph.op_names):
        read = graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist()
        data = [t for t in read if not graph.is_control[t]]
        ports = [t for t in graph.outputs(op) if not graph.is_control[t]]
        builder.add_op(
            name,
            inputs=[(int(producer[t]), int(t - start[producer[t]])) for t in data],
            control=[int(producer[t]) for t in read if graph.is_control[t]],
            outputs=[int(graph.tensor_size[t]) for t in ports],
            aliases=[data.index(graph.alias_of[t]) if graph.alias_of[t] >= 0 else -1 for t in ports],
            final=[bool(graph.is_final[t]) for t in ports],
            runtime=float(graph.runtime[op]),
            workspace=int(graph.workspace[op]),
            persistent=int(graph.persistent[op]),
        )
    return builder.build()


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_a_round_trip_changes_nothing(read, seed, suffix):
    graph = random_graph(seed)
    text = FORMATS[suffix][1](graph)
    again, _ = read(text)
    assert again == graph
    assert FORMATS[suffix][1](again) == text


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    "name", ['quo"te\\', "end\\\\", "line\nbreak\t", "µ/名", " x ", "#", "a->b", "graph", "<b>", "1.5"]
)
def test_names_of_any_kind_survive(read, name, suffix):
    builder = GraphBuilder("graph")
    builder.add_op(name, outputs=[3])
    builder.add_op("b", inputs=[(0, 0)], outputs=[1])
    graph = builder.build()
    assert read(FORMATS[suffix][1](graph))[0] == graph


@pytest.mark.parametrize("key", ["edges", "links"])
@pytest.mark.parametrize("seed", range(8))
def test_networkx_reads_what_is_written_and_is_read_again(read, seed, key):
    """networkx orders edges by their sources; what is a view of what stays."""
    graph = random_graph(seed)
    loaded = nx.node_link_graph(json.loads(attributed_graph.format_node_link(graph)), edges="edges")
    assert nx.is_directed_acyclic_graph(loaded)
    again, _ = read(json.dumps(nx.node_link_data(loaded, edges=key)))
    assert {name: sorted(reads) for name, reads in arcs(again).items()} == {
        name: sorted(reads) for name, reads in arcs(graph).items()
    }
    assert again.tensor_size.tolist() == graph.tensor_size.tolist()
    assert again.alias_of.tolist() == graph.alias_of.tolist()
    assert again.is_final.tolist() == graph.is_final.tolist()


TEXTS = ("", "encoder.layer.0", "my model.py:31", "a,b", 'quo"te\\', "it's\nnew", "true", "12", "名")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("seed", range(10))
def test_modules_lines_and_phases_of_ops_stay(read, seed, suffix):
    rng = np.random.default_rng([61, seed])
    graph = random_graph(seed)
    modules, lines, phases = (
        tuple(texts[int(at)] for at in rng.integers(0, len(texts), graph.num_ops)) for texts in (TEXTS, TEXTS, PHASES)
    )
    annotations = Annotations(modules, lines, () if seed % 3 else phases)
    text = FORMATS[suffix][1](replace(graph, annotations=annotations))
    again, notes = read(text)
    assert again == graph
    for name in ("modules", "lines", "phases"):
        written = getattr(annotations, name)
        assert getattr(again.annotations, name) == (written if any(written) else ())
    assert not any("ignored" in note for note in notes)


@pytest.mark.parametrize("text", [DOT_OF_OTHERS, JSON_OF_OTHERS])
def test_what_other_tools_call_a_phase_or_a_module_is_ignored_with_a_note(read, text):
    graph, notes = read(text)
    assert graph.annotations.phases == ("", "backward")
    assert graph.annotations.modules == (("m", "") if text is JSON_OF_OTHERS else ())
    assert any("were ignored: " in note and "phase; it reads" in note for note in notes)


def test_sizes_of_nodes_are_shared_and_those_of_edges_are_not(read):
    graph, _ = read(
        """digraph {
        a [size=10]; b [size="2KiB, 3"]; c [output_size=5]
        a -> c; a -> b; b -> c [port=1]
        a -> c [size=7]; a -> b [size=8, port=out]; a -> c [size=8, port=out]
        }"""
    )
    sizes = {graph.tensor_name(t): int(graph.tensor_size[t]) for t in range(graph.num_tensors)}
    assert sizes == {"a:0": 10, "a:1": 7, "a:2": 8, "b:0": 2048, "b:1": 3, "c:0": 5}
    assert arcs(graph) == {"a": [], "b": ["a:0", "a:2"], "c": ["a:0", "b:1", "a:1", "a:2"]}


def test_every_attribute_of_nodes_and_edges(read):
    text = """digraph {
        a [size="4,6" runtime="2ms" workspace="1KiB" persistent=12 final="false,true"]
        b [size="0,1" final=yes]; c [size=""]
        a -> b [alias=0]; a -> c [control=true]
        }"""
    graph, notes = read(text)
    assert (graph.runtime[0], graph.workspace[0], graph.persistent[0]) == (2000, 1024, 12)
    named = {graph.tensor_name(t): t for t in range(graph.num_tensors)}
    assert [graph.tensor_name(t) for t in np.flatnonzero(graph.is_final)] == ["a:1", "b:0", "b:1"]
    views = {name: int(graph.alias_of[t]) for name, t in named.items() if graph.alias_of[t] >= 0}
    assert views == {"b:0": named["a:0"]}
    assert arcs(graph)["c"] == ["a:control"]
    assert notes == []


def test_a_size_of_every_edge_is_enough_and_a_default_serves_the_rest(read):
    graph, _ = read("digraph { a -> b [size=3]; a -> c [size=4]; b -> c [size=5] }")
    assert graph.tensor_size.tolist() == [3, 4, 5]
    graph, _ = read("digraph { a -> b [size=3]; a -> c; b -> c [size=5] }", default_size=100)
    assert graph.tensor_size.tolist() == [100, 3, 5]
    assert arcs(graph)["c"] == ["a:0", "b:0"]
    graph, _ = read("digraph { a -> b; a [size=1] }", default_size=7)
    assert graph.tensor_size.tolist() == [1, 7]


def test_remarks(read):
    _, notes = read('digraph { a -> b; node [size=1]; a [size=1 label="A" flops=3 fillcolor=red]; b [size=2 kind=x] }')
    assert [note.split(": ", 1)[1] for note in notes] == [
        "attributes that schedopt does not use were ignored: flops, kind; it reads size, output_size, runtime, "
        "workspace, persistent, final, once, module, line, phase of nodes and size, port, alias, control of edges",
        "no node has a runtime, so every op takes 0 us",
    ]
    graph, notes = read("digraph { b [size=1 runtime=1]; a [size=1]; a -> b }")
    assert [note.split(": ", 1)[1] for note in notes] == [
        "the nodes are not in a topological order; the first one that is ready is taken next"
    ]
    assert [graph.op_names[op] for op in graph.input_order] == ["a", "b"]


def test_the_grammar_of_dot(read):
    graph, _ = read(
        """/* by some tool */ // comment
# 1 "preprocessed.c"
strict DiGraph "some" + " name" {
  graph [fontsize=10] rankdir = LR; size="7,5"
  node [shape=record, size=8,]; edge [color="#ff00ff"];
  "a" [label=<<b>bold</b> <i>x</i>>];
  a:out:n -> b:in -> { c d } -> e [weight=2; style=dotted]
  subgraph cluster_0 { node [size=16] label=inner; f; g -> h }
  subgraph { a } -> f
  "two
lines" [label="with \\"quotes\\" }"] -1.5 ü_1
  a -> b
}
"""
    )
    assert arcs(graph) == {
        **{"a": [], "b": ["a:0"], "c": ["b:0"], "d": ["b:0"], "e": ["c:0", "d:0"], "f": ["a:0"], "g": [], "h": ["g:0"]},
        **{"two\nlines": [], "-1.5": [], "ü_1": []},
    }
    assert graph.tensor_size.tolist() == [8] * 5 + [16] * 3 + [8] * 3


def test_strict_graphs_have_one_edge_of_a_kind(read):
    graph, _ = read("strict digraph { a -> b [size=3]; a -> b [size=4] }")
    assert graph.tensor_size.tolist() == [4]


def test_byte_order_marks_and_line_continuations(read):
    graph, _ = read('\ufeffdigraph { "a\\\nb" [size=1] }')
    assert graph.op_names == ("ab",)


WRONG_DOT = yaml.safe_load(Path(__file__).with_name("wrong_dot.yaml").read_text())
WRONG_DOT["digraph " + "{" * 2000] = "truncated|nested too deeply"


@pytest.mark.parametrize(("text", "message"), WRONG_DOT.items())
def test_wrong_dot(read, text, message):
    with pytest.raises(FormatError, match=message):
        read(text)


@pytest.mark.parametrize("text", ["digraph { node [size=1] a -> b -> c -> a }", "cycle"])
def test_a_cycle_names_its_ops(read, text):
    if text == "cycle":
        made = nx.DiGraph()
        made.add_nodes_from("abc", size=1)
        nx.add_cycle(made, "abc")
        text = json.dumps(nx.node_link_data(made, edges="links"))
    with pytest.raises(GraphError, match=r"the graph has a cycle: [abc] -> [abc] -> [abc] -> [abc]"):
        read(text)


def linked(**changes):
    document = {
        "directed": True,
        "nodes": [{"id": "a", "size": 4}, {"id": "b", "size": 4}],
        "links": [{"source": "a", "target": "b"}],
    }
    return json.dumps({key: value for key, value in {**document, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (linked(nodes=None), "it has no list of nodes"),
        (linked(links=None), r"it has no list of edges \(or links\)"),
        (linked(directed=False), "the graph is undirected"),
        (linked(nodes=[]), "the graph is empty"),
        (linked(nodes=[{"size": 4}]), "node 0 has no id"),
        (linked(nodes=[{"id": "a"}, {"id": "a"}]), "two nodes have the id 'a'"),
        (linked(links=[{"source": "a"}]), "entry 0 of links has no source and target"),
        (linked(edges=[{"source": "a", "target": "z"}]), "entry 0 of edges names node 'z', which is not in the graph"),
        (linked(nodes=[{"id": "a", "size": 1.5}, {"id": "b", "size": 1}]), "node 'a' has the size 1.5"),
        (linked(nodes=[{"id": "a", "size": None}, {"id": "b", "size": 1}]), "node 'a' has the size None"),
        (linked(nodes=[{"id": "a", "size": True}, {"id": "b", "size": 1}]), "node 'a' has the size True"),
        (linked(nodes=[{"id": "a", "size": float("inf")}, {"id": "b", "size": 1}]), "node 'a' has the size inf"),
        (linked(nodes=[{"id": "a", "size": 1, "runtime": float("nan")}, {"id": "b", "size": 1}]), "the runtime nan"),
        (linked(nodes=[{"id": "a", "size": [1, {}]}, {"id": "b", "size": 1}]), "node 'a' has the size {}"),
        (linked()[:-10], "the JSON is truncated at line 1"),
        ('{"nodes": x}', "not JSON: Expecting value at line 1, column 11"),
        ('{"nodes": ' + "[" * 10**5, "truncated|nested too deeply"),
    ],
)
def test_wrong_node_link(read, text, message):
    with pytest.raises(FormatError, match=message):
        read(text)


def test_negative_sizes_and_files_that_are_no_text(read, tmp_path):
    with pytest.raises(GraphError, match="op 'a' has an output of -4 bytes"):
        read(linked(nodes=[{"id": "a", "size": -4}, {"id": "b", "size": 1}]))
    path = tmp_path / "latin.dot"
    path.write_bytes("digraph { é }".encode("latin-1"))
    with pytest.raises(FormatError, match="not UTF-8 text at byte 10"):
        attributed_graph.read_dot(str(path), ImportOptions(), print)
    with pytest.raises(FormatError, match="cannot be read: Is a directory"):
        attributed_graph.read_dot(str(tmp_path), ImportOptions(), print)
