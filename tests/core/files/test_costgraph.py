"""CostGraphDef files: exact round trips, the conventions of the format, and every way for a file to be wrong."""

import gzip
import tracemalloc
from dataclasses import replace

import naive
import numpy as np
import pytest
from google.protobuf import text_format
from models.small_graphs import sketch
from schedopt import FormatError, GraphBuilder, GraphError, SchedoptError, read_graph, write_graph
from schedopt.core.files.costgraph import (
    encoding_of,
    find_graphs,
    format_graph,
    graph_hash,
    graph_name,
    parse_graph,
    structure_hash,
)
from schedopt.core.files.messages import CostGraphDef, RunMetadata

SUFFIXES = (".pbtxt", ".pb", ".pbtxt.gz", ".pb.gz")


def through_protobuf(text):
    """Let the protobuf library read a text and write it as binary."""
    return text_format.Parse(text, CostGraphDef()).SerializeToString()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("seed", range(15))
def test_a_round_trip_changes_nothing(tmp_path, seed, suffix):
    """Ids, order, repeated inputs and control edges, views, zero sizes: all as they were, and the bytes too."""
    rng = np.random.default_rng([30, seed])
    graph, _ = naive.random_graph(rng, int(rng.integers(1, 25)), whole_runtimes=True)
    path = tmp_path / f"some.graph{suffix}"
    write_graph(graph, path)
    again = read_graph(path)
    assert again == graph
    assert again.name == "some.graph"
    assert again.input_order.tolist() == graph.input_order.tolist()
    write_graph(again, tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == path.read_bytes()
    assert path.read_bytes().startswith(b"\x1f\x8b\x08\0\0\0\0\0") == suffix.endswith(".gz")  # without a time


@pytest.mark.parametrize("seed", range(10))
def test_text_is_what_protobuf_prints_and_binary_what_it_reads(seed):
    graph, _ = naive.random_graph(np.random.default_rng([31, seed]), 15)
    text, binary = format_graph(graph, "text").decode(), format_graph(graph, "binary")
    assert through_protobuf(text) == binary
    assert text_format.MessageToString(CostGraphDef.FromString(binary)) == text


def partly_final(seed):
    """Return a random graph in which at least one op has a final tensor and one that is not, and its plain twin."""
    rng = np.random.default_rng([32, seed])
    spec = naive.random_spec(rng, 10, whole_runtimes=True)
    spec.append({**spec[0], "name": "two", "op_id": 2**31 - 1, "outputs": [5, 6], "aliases": [-1, -1]})
    spec[-1] |= {"inputs": [], "control": [], "final": [False, True]}
    return naive.build(spec), naive.plain_of_spec(spec)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("encoding", ["text", "binary"])
def test_one_final_tensor_among_others_is_marked_by_a_view_of_no_bytes(seed, encoding):
    """The format knows final ops only; the marks in the file are no ops of the model, and reading takes them back."""
    graph, _ = partly_final(seed)
    data = format_graph(graph, encoding)
    read = parse_graph(data, "g")
    assert read == graph
    assert format_graph(read, encoding) == data
    message = CostGraphDef.FromString(format_graph(graph, "binary"))
    marks = {node.name: node for node in message.node[graph.num_ops :]}
    mixed = [t for t in np.flatnonzero(graph.is_final) if not graph.is_final[mixed_with(graph, t)].all()]
    assert list(marks) == [f"{graph.tensor_name(t)}/final" for t in mixed]
    assert "two:1/final" in marks
    for tensor, node in zip(mixed, marks.values(), strict=True):
        (read_by, output) = (*node.input_info, *node.output_info)
        assert read_by.preceding_node == graph.op_ids[graph.tensor_producer[tensor]]
        assert (output.size, output.alias_input_port, node.is_final) == (0, 0, True)
        assert node.device == "schedopt/final"
        assert node.id not in graph.op_ids


def mixed_with(graph, tensor):
    """Return the data tensors of the op that produces one."""
    outputs = graph.outputs(graph.tensor_producer[tensor])
    return [t for t in outputs if not graph.is_control[t]]


MARK = (
    'node { name: "m" device: "schedopt/final" id: 9 is_final: true input_info { preceding_node: 1 } output_info { } }'
)


@pytest.mark.parametrize(
    ("text", "is_op"),
    [
        (MARK, False),
        (MARK.replace("schedopt/final", "/gpu:0"), True),
        (MARK.replace("is_final: true", ""), True),
        (MARK.replace("is_final: true", "is_final: true compute_cost: 3"), True),
        (MARK.replace("output_info { }", "output_info { size: 4 }"), True),
        (MARK.replace("input_info", "control_input: 1 input_info"), True),
        (MARK + 'node { name: "r" id: 10 input_info { preceding_node: 9 } }', True),
        (MARK + 'node { name: "r" id: 10 control_input: 9 }', True),
    ],
)
def test_a_mark_that_does_more_than_mark_is_an_op(text, is_op):
    graph = parse_graph((SOURCE + text).encode(), "g")
    assert ("m" in graph.op_names) == is_op
    finals = [graph.tensor_name(t) for t in np.flatnonzero(graph.is_final)]
    assert finals == (["a:0"] if not is_op else ["m:0"] if "is_final" in text else [])


def test_a_mark_of_what_is_not_there_is_an_error():
    for wrong in ("preceding_node: 1 preceding_port: 7", "preceding_node: 5"):
        with pytest.raises(SchedoptError, match="op 'm' reads"):
            parse_graph((SOURCE + MARK.replace("preceding_node: 1", wrong)).encode(), "g")


@pytest.mark.parametrize("encoding", ["text", "binary"])
@pytest.mark.parametrize(
    "name", ["a" * 9, "n" * 32, 'quo"te\\', "line\nbreak\t", "µ/名\x85\u2028", " x ", "#", "node {"]
)
def test_names_of_any_kind_survive(name, encoding):
    builder = GraphBuilder("g")
    builder.add_op(name)
    alone = builder.build()
    builder.add_op("b", inputs=[], outputs=[3])
    for graph in (alone, builder.build()):
        assert parse_graph(format_graph(graph, encoding), "g") == graph


SOURCE = 'node { name: "a" id: 1 output_info { size: 8 alias_input_port: -1 } output_info { size: 4 } }\n'


def reader_of(alias, inputs=2):
    ports = "input_info { preceding_node: 1 }\n" * (inputs - 1) + "input_info { preceding_node: 1 preceding_port: 1 }"
    return f'node {{ name: "b" id: 2 {ports if inputs else ""} output_info {{ size: 8 alias_input_port: {alias} }} }}'


@pytest.mark.parametrize(
    ("alias", "inputs", "root"),
    [(-1, 2, "b:0"), (0, 2, "a:0"), (1, 2, "a:1"), (2, 3, "a:1"), (0, 0, "b:0"), (-1, 0, "b:0")],
)
def test_alias_input_port_counts_inputs_as_written(alias, inputs, root):
    graph = parse_graph((SOURCE + reader_of(alias, inputs)).encode(), "g")
    (tensor,) = graph.outputs(1)
    assert graph.tensor_name(graph.root[tensor]) == root
    assert graph.root[:2].tolist() == [0, 1]


def test_a_file_without_any_non_zero_alias_does_not_use_the_field():
    notes = []
    text = (SOURCE + reader_of(0)).replace("alias_input_port: -1", "")
    assert parse_graph(text.encode(), "net", notes.append).alias_of.tolist() == [-1, -1, -1]
    (note,) = notes
    assert note.startswith("net: ")
    assert "alias_input_port" in note
    # With no op that has both inputs and outputs there is nothing to remark.
    parse_graph(b"node { output_info { size: 1 } }", "net", notes.append)
    assert len(notes) == 1


def test_missing_and_repeated_names_are_made_unique_and_stay_so():
    ids = zip(["", "x", "x", "7", "x#3", "", "x"], [7, 2, 3, 4, 5, 6, 9], strict=True)
    text = "".join(f'node {{ name: "{name}" id: {op_id} }}\n' for name, op_id in ids)
    graph = parse_graph(text.encode(), "g")
    assert graph.op_names == ("7#7", "x", "x#3#3", "7", "x#3", "6", "x#9")
    assert parse_graph(format_graph(graph), "g") == graph


def test_fields_that_the_model_does_not_hold_are_dropped_with_one_note():
    text = """node { device: "/gpu:0" compute_time: 4 inaccurate: true output_info { dtype: DT_FLOAT shape { } } }
      node { id: 1 is_final: true } cost { cost: 1 }"""
    for data in (text.encode(), through_protobuf(text)):
        notes = []
        assert parse_graph(data, "net", notes.append) == parse_graph(b"node { output_info { } } node { id: 1 }", "")
        (note,) = notes
        for field in ("device", "compute_time", "inaccurate", "dtype", "shape", "cost", "is_final of an op without"):
            assert field in note


def test_the_message_is_tensorboards_but_for_its_package():
    """Both are loaded in one process; TensorBoard's is read off its descriptor."""
    theirs = pytest.importorskip("tensorboard.compat.proto.cost_graph_pb2").CostGraphDef
    ours, expected = (fields_of(message.DESCRIPTOR) for message in (CostGraphDef, theirs))
    assert len(expected) > 60
    assert ours.items() >= expected.items()


def fields_of(descriptor):
    """Return number, type and default of each field of a message and of those in it, and the values of enums."""
    found = {}
    for field in descriptor.fields:
        found[field.name] = (field.number, field.type, field.default_value)
        inner = fields_of(field.message_type) if field.message_type else {}
        if field.enum_type:
            inner = {value.name: value.number for value in field.enum_type.values}
        found |= {f"{field.name}.{name}": value for name, value in inner.items()}
    return found


def test_names_of_graphs_and_encodings():
    assert [graph_name(f"x/net.v2{suffix}") for suffix in SUFFIXES] == ["net.v2"] * 4
    assert (graph_name("-"), graph_name(".pb"), graph_name("a/net")) == ("stdin", ".pb", "net")
    assert encoding_of("a.pb.gz") == ("binary", True)
    assert encoding_of("-") == ("text", False)
    with pytest.raises(FormatError, match=r"a\.onnx.*\.pbtxt"):
        encoding_of("a.onnx")


def test_find_graphs_searches_folders_in_order(tmp_path):
    for name in ("b.pb", "a/c.pbtxt.gz", "notes.txt", "a/dataset.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    inside = [tmp_path / "a/c.pbtxt.gz", tmp_path / "b.pb"]
    assert find_graphs([tmp_path / "b.pb", tmp_path]) == [inside[1], *inside]
    (tmp_path / "empty").mkdir()
    for missing in ("empty", "nowhere.pb"):
        with pytest.raises(FormatError, match=missing):
            find_graphs([tmp_path / missing])


def test_unwritable_and_unreadable_paths(tmp_path):
    graph, _ = naive.random_graph(np.random.default_rng(35), 3)
    with pytest.raises(SchedoptError, match=r"nowhere/a\.pb: cannot be written"):
        write_graph(graph, tmp_path / "nowhere/a.pb")
    for path in (tmp_path, tmp_path / "none.pb"):
        with pytest.raises(FormatError, match=f"{path.name}: cannot be read"):
            read_graph(path)


@pytest.mark.parametrize("change", [lambda data: b"\xef\xbb\xbf" + data, lambda data: data.replace(b"\n", b"\r\n")])
def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(change):
    graph, _ = naive.random_graph(np.random.default_rng(3), 9)
    assert parse_graph(change(format_graph(graph, "text")), graph.name) == graph


def test_a_file_that_holds_too_much_is_refused_and_may_be_allowed(tmp_path, monkeypatch):
    graph, _ = naive.random_graph(np.random.default_rng(3), 9)
    path = tmp_path / "bomb.pb.gz"
    path.write_bytes(gzip.compress(format_graph(graph, "binary")))
    assert path.stat().st_size > 256
    with (tmp_path / "sparse.pb").open("wb") as file:
        file.truncate(10**10)
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"sparse.pb: it holds more than 1.00 GiB"):
        read_graph(tmp_path / "sparse.pb")
    assert tracemalloc.get_traced_memory()[1] < 2**24, "it is read"
    tracemalloc.stop()
    monkeypatch.setenv("SCHEDOPT_LARGEST_FILE", "256")
    with pytest.raises(FormatError, match=r"bomb.pb.gz: it holds more than 256 B; .*--largest-file"):
        read_graph(path)
    monkeypatch.setenv("SCHEDOPT_LARGEST_FILE", "1MiB")
    assert read_graph(path) == graph


def test_tensorflows_run_metadata_is_read_and_its_graph_def_is_named():
    graph = sketch("read -> 1024 us=2; multiply: read -> 16", "run")
    metadata = RunMetadata(cost_graph=CostGraphDef.FromString(format_graph(graph, "binary")))
    steps, said = b"\n\x0c\n\n\n\x08/job:cpu", "step_stats { dev_stats { device: 'cpu' } } "
    assert parse_graph(steps + metadata.SerializeToString(), "run") == graph
    assert parse_graph((said + text_format.MessageToString(metadata)).encode(), "run") == graph
    for data in (b"\x0a\x0c\x0a\x01b\x12\x04Relu\x1a\x01a", b'node { name: "a" op: "Relu" input: "x" }'):
        with pytest.raises(FormatError, match="run: a GraphDef of TensorFlow, which says neither sizes nor times"):
            parse_graph(data, "run")


@pytest.mark.parametrize(
    "text",
    [
        'node{name:"a" id:1 output_info{size:8}}node{id:2 input_info{preceding_node:1}}',
        'node: {\n name: "a"\n id: 0x10\n}\n# comment\nnode {\n  id: 010\n  id_: 3 }',
        'node: {\n name: "a"\n id: 0x10\n}\n# comment\nnode {\n  id: 010\n}\n',
        "node <\n id: 1\n output_info: < size: 3 >\n>\nnode { id: 2; control_input: [1, 1], is_final: t }",
        "node {\r\n  id: 1\r\n}\r\nnode {\r\n  id: 2\r\n  control_input: 1\r\n}\r\n",
        'node {\n name: "a\\n\\"\\303\\265\\x41"\n id: 3\n}',
        "node {\n name: 'single'\n}",
        'node {\n name: "one" "two"\n}',
        'node {\n  name: "a" # "b"\n}',
        "node {\n\n\t compute_cost :  12 \n  is_final: 1\n output_info {\n\n size: 4\n\n }\n}",
        "node {\n control_input: 5\n output_info {\n alias_input_port: -1\n size: 7\n }\n id: 4\n}\nnode {\n id: 5\n}",
        "node {\n compute_cost: 3\n compute_cost: 4\n}",
        "node {\n output_info {\n size: 3\n size: 4\n }\n}",
        "node {\n output_info {\n size: 0\n size: 4\n }\n}",
        "node {\n id: 00\n temporary_memory_size: -0\n}",
        "node {\n id: ٣\n}",
        "node {\n output_info {\n alias_input_port: -010\n }\n}",
        "node {\n id: 4294967296\n}",
        "node {\n id: 1\n} node {\n id: 2\n}",
        "node {\n id: 1\n}\n}",
        "node {\n output_info {\n size: 1\n }",
        "node {\n input_info {\n preceding_node: 0\n size: 1\n }\n}",
        'node {\n device: "x"\n is_final: TRUE\n}',
        'node {\n name: "\u00a0a"\u00a0\n}',
    ],
)
def test_text_is_read_as_the_protobuf_library_reads_it(text):
    try:
        binary = text_format.Parse(text, CostGraphDef()).SerializeToString()
    except text_format.ParseError:
        with pytest.raises(FormatError):
            parse_graph(text.encode(), "g")
        return
    results = []
    for data in (text.encode(), binary):
        try:
            results.append(parse_graph(data, "g"))
        except GraphError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_the_hash_is_of_the_content():
    graphs = [naive.random_graph(np.random.default_rng([75, seed]), 6, whole_runtimes=True)[0] for seed in range(2)]
    assert graph_hash(graphs[0]) == graph_hash(replace(graphs[0], name="other"))
    longer = graphs[0].runtime.copy()
    longer[0] += 0.25
    assert len({graph_hash(g) for g in (*graphs, replace(graphs[0], runtime=longer))}) == 3


def test_the_hash_is_of_the_graph_not_of_its_file():
    graph, _ = naive.random_graph(np.random.default_rng(74), 12)  # with runtimes that files round, and a part of an
    digest = structure_hash(graph)  # op's tensors final
    for encoding in ("text", "binary"):
        for compress in (False, True):
            assert structure_hash(parse_graph(format_graph(graph, encoding, compress), "other name")) == digest
    assert len(digest) == 64
