"""Files that are wrong: each known way by name, and random damage; always a clean error or a valid graph."""

import gzip
import re

import naive
import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from schedopt import FormatError, GraphError, read_graph
from schedopt.core.base.arrays import INT64_MAX
from schedopt.core.files.costgraph import format_graph, parse_graph
from schedopt.core.files.messages import CostGraphDef

GRAPH = naive.build(naive.random_spec(np.random.default_rng(40), 7, whole_runtimes=True))
TEXT, BINARY = format_graph(GRAPH, "text"), format_graph(GRAPH, "binary")


def node(name, op_id, fields=""):
    return f'node {{ name: "{name}" id: {op_id} {fields} }}\n'


def output(size, alias=-1):
    return f"output_info {{ size: {size} alias_input_port: {alias} }}"


def reads(op_id, port=0):
    return f"input_info {{ preceding_node: {op_id} preceding_port: {port} }}"


A = node("a", 1, output(4))
HALF = 2**62
WRONG = {
    "empty file": (b"", FormatError, "empty"),
    "only a comment": (b"# node {}\n", FormatError, "graph is empty"),
    "no nodes": (b"cost { cost: 1 }", FormatError, "without nodes"),
    "empty gzip": (gzip.compress(b""), FormatError, "empty"),
    "JSON": (b'{"node": [{"name": "a"}]}', FormatError, "not a CostGraphDef"),
    "other protobuf": (b"\x0a\x04\x18\x01\xa0\x06", FormatError, "not a CostGraphDef"),
    "unknown field of a node": (b"\x0a\x05\x18\x01\xa0\x06\x07", FormatError, "fields that the format does not know"),
    "unknown field in text": (node("a", 1, "color: 3"), FormatError, 'no field named "color"'),
    "nested gzip": (gzip.compress(gzip.compress(TEXT)), FormatError, "not a CostGraphDef"),
    "truncated text": (TEXT[:-3], FormatError, "truncated"),
    "truncated binary": (BINARY[:-1], FormatError, "truncated"),
    "truncated gzip": (gzip.compress(BINARY)[:-9], FormatError, "truncated"),
    "gzip with a wrong checksum": (gzip.compress(TEXT)[:-8] + bytes(8), FormatError, "damaged"),
    "not UTF-8": (A.encode() + b'node { name: "\xff" }', FormatError, "UTF-8 text at byte"),
    "name that is not UTF-8": (node("\\377", 1), FormatError, "not a CostGraphDef"),
    "number too large": (node("a", 1, output(INT64_MAX + 1)), FormatError, str(INT64_MAX + 1)),
    "number without end": (
        node("a", 1, "compute_cost: " + "9" * 5000),
        FormatError,
        "integer: a number of 5,000 digits$",
    ),
    "fraction": (node("a", 1, "compute_cost: 1.5"), FormatError, "1.5"),
    "repeated id": (node("a", 3) + node("b", 3), GraphError, "'a' and 'b' both have the id 3"),
    "missing ids": ('node { name: "a" } node { name: "b" }', GraphError, "'a' and 'b'.* id 0 .*without an id"),
    "negative id": (node("a", -4), GraphError, "'a' has the id -4"),
    "edge to nowhere": (A + node("b", 2, reads(9)), GraphError, "'b' reads op id 9"),
    "control edge to nowhere": (A + node("b", 2, "control_input: 9"), GraphError, "'b' waits for op id 9"),
    "port past the end": (A + node("b", 2, reads(1, 1)), GraphError, "'b' reads port 1 of op 'a', which has 1 output"),
    "port of an op without": (node("a", 1) + node("b", 2, reads(1)), GraphError, "'b'.*'a', which has 0 outputs"),
    "alias past the inputs": (A + node("b", 2, reads(1) + output(4, 1)), GraphError, "'b'.*aliases its input 1"),
    "alias of a control input": (A + node("b", 2, "control_input: 1 " + output(4, 1)), GraphError, "'b'.*input 1"),
    "self loop": (node("a", 1, reads(1) + output(4)), GraphError, "cycle: a -> a"),
    "cycle": (
        A + node("b", 2, reads(1) + reads(3) + output(1)) + node("c", 3, reads(2) + output(1)),
        GraphError,
        "cycle: (b -> c -> b|c -> b -> c)",
    ),
    "cycle by control": (node("a", 1, "control_input: 2") + node("b", 2, "control_input: 1"), GraphError, "a -> b"),
    "negative size": (node("a", 1, output(-4)), GraphError, "'a' has an output of -4 bytes"),
    "negative runtime": (node("a", 1, "compute_cost: -1"), GraphError, "'a' has the runtime -1"),
    "negative workspace": (node("a", 1, "temporary_memory_size: -1"), GraphError, "'a' has the workspace -1"),
    "sum of sizes": (node("a", 1, output(HALF) + output(HALF)), GraphError, "sum of all sizes"),
    "sum of all bytes": (
        node("a", 1, output(HALF)) + node("b", 2, f"persistent_memory_size: {HALF}"),
        GraphError,
        "sum of all sizes",
    ),
    "sum of runtimes": ("".join(node("a", i, f"compute_cost: {HALF}") for i in (1, 2)), GraphError, "runtimes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_way_to_be_wrong_has_a_message_that_names_file_and_node(tmp_path, case):
    data, kind, message = WRONG[case]
    data = data.encode() if isinstance(data, str) else data
    path = tmp_path / "my net.pb"
    path.write_bytes(data)
    with pytest.raises(kind, match=f"my net.pb: .*{message}") as caught:
        read_graph(path)
    assert "\n" not in str(caught.value)
    if kind is GraphError:  # found in every encoding alike
        binary = text_format.Parse(data.decode(), CostGraphDef()).SerializeToString()
        with pytest.raises(GraphError, match=re.escape(str(caught.value))):
            parse_graph(binary, "my net", path=str(path))


def test_a_long_cycle_is_shortened():
    ring = "".join(node(f"op{i}", i, f"control_input: {(i - 1) % 50}") for i in range(50))
    with pytest.raises(GraphError, match=r"op\d+ -> (op\d+ -> )+\.\.\. -> op\d+ -> op\d+$") as caught:
        parse_graph(ring.encode(), "ring")
    names = re.findall(r"op\d+", str(caught.value))
    assert names[0] == names[-1]
    assert len(names) <= 9


def outcome(data):
    """Graph, "unreadable", or what is wrong with it in one line. Graphs that are read can be written."""
    try:
        graph = parse_graph(data, "g")
    except FormatError:
        return "unreadable"
    except GraphError as error:
        assert re.fullmatch(r"g: .+", str(error))
        return str(error)
    written = format_graph(graph, "binary")
    assert parse_graph(written, "g") == graph
    return graph


TOKENS = re.findall(rb'\s+|"[^"]*"|[\w-]+|.', TEXT)
ODD = [b"\n", b" ", *b"[ ] , ; # ' 0 -1 07 0x1 1e3 9999999999999999999 true < >".split()]


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data())
def test_swapped_tokens_are_judged_as_protobuf_judges_them(data):
    tokens = list(TOKENS)
    place = st.integers(0, len(tokens) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        one, two = data.draw(place), data.draw(place)
        match data.draw(st.sampled_from(["swap", "copy", "odd", "remove"])):
            case "swap":
                tokens[one], tokens[two] = tokens[two], tokens[one]
            case "copy":
                tokens[one] = tokens[two]
            case "odd":
                tokens[one] = data.draw(st.sampled_from(ODD))
            case "remove":
                tokens[one] = b""
    text = b"".join(tokens)
    try:
        message = text_format.Parse(text.decode(), CostGraphDef())
    except text_format.ParseError:
        assert outcome(text) == "unreadable"
    else:
        assert outcome(text) == outcome(message.SerializeToString())
