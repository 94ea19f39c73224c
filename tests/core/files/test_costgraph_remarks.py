"""Runtimes below a microsecond and annotations in CostGraphDef: exact there and back, and never untrue."""

import json
import re
from dataclasses import replace

import naive
import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import UsageError
from schedopt.core.files import costgraph
from schedopt.core.files.costgraph import format_graph, graph_hash, parse_graph
from schedopt.core.files.messages import CostGraphDef
from schedopt.core.graph.annotations import NO_ANNOTATIONS, PHASES, ROLES, Annotations, Resident

NAMES = ("", "encoder.layer.0", "mödel.py:31", 'quo"te\\', "it's", "line\nbreak\t", "名\u2028\x85", "\ud800", "{}")
ENCODINGS = [(encoding, compress) for encoding in ("text", "binary") for compress in (False, True)]


def annotated(seed):
    """Return a random graph with runtimes of any size and random annotations, each kind of which may be missing."""
    rng = np.random.default_rng([80, seed])
    graph, _ = naive.random_graph(rng, int(rng.integers(1, 20)), whole_runtimes=True)
    ops = graph.num_ops

    def per_op(texts):
        chosen = tuple(texts[int(at)] for at in rng.integers(0, len(texts), ops))
        return chosen if rng.random() < 0.7 else ()

    def some_ops():
        return tuple(sorted({int(op) for op in rng.integers(0, ops, rng.integers(0, 3))}))

    residents = tuple(
        Resident(str(rng.choice(NAMES[:-2])), str(rng.choice(ROLES)), int(graph.persistent[rest[0]]) // 4, *rest)
        for rest in ((int(rng.integers(-1, ops)), some_ops(), some_ops()) for _ in range(int(rng.integers(0, 4))))
    )
    imported = {"model": "my:net", "shapes": {"n": 3}, "flops": 1e12} if rng.random() < 0.5 else {}
    runtime = rng.random(ops) * 10.0 ** rng.integers(-6, 7, ops) if rng.random() < 0.8 else graph.runtime
    texts = per_op(NAMES), per_op(NAMES[:3]), per_op(PHASES)
    annotations = Annotations(*texts, residents, imported, left_out=NAMES[: seed % 3])
    annotations.check(graph.persistent.tolist(), "g")
    return replace(graph, runtime=runtime, annotations=annotations)


def noted(data):
    """Return the graph of some bytes, and the notes."""
    notes = []
    return parse_graph(data, "g", notes.append), notes


def document_of(graph):
    """Return the JSON that the file of a graph holds."""
    (cost,) = CostGraphDef.FromString(format_graph(graph, "binary")).cost
    return json.loads(cost.dimension.removeprefix("schedopt/graph "))


def with_dimension(graph, *dimensions):
    """Return the bytes of a graph whose file holds other dimensions."""
    message = CostGraphDef.FromString(format_graph(graph, "binary"))
    del message.cost[:]
    for dimension in dimensions:
        message.cost.add(dimension=dimension)
    return message.SerializeToString()


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_a_round_trip_keeps_runtimes_to_the_last_bit_and_all_annotations(seed):
    graph = annotated(seed)
    for encoding, compress in ENCODINGS:
        data = format_graph(graph, encoding, compress)
        again, notes = noted(data)
        assert again == graph
        assert again.annotations == graph.annotations
        assert format_graph(again, encoding, compress) == data
        assert graph_hash(again) == graph_hash(graph)
        assert not [note for note in notes if "alias_input_port" not in note]


@pytest.mark.slow
@given(st.lists(st.floats(0, 1e18), min_size=1, max_size=9))
def test_any_runtime_is_kept(runtimes):
    graph = sketch("; ".join(f"op{op} -> us={runtime}" for op, runtime in enumerate(runtimes)), "g")
    for encoding in ("text", "binary"):
        assert parse_graph(format_graph(graph, encoding), "g").runtime.tolist() == runtimes


@pytest.mark.parametrize("seed", range(10))
def test_whatever_layout_the_text_has_it_is_read_alike(seed):
    graph = annotated(seed)
    message = CostGraphDef.FromString(format_graph(graph, "binary"))
    texts = [text_format.MessageToString(message, as_one_line=True), text_format.MessageToString(message, as_utf8=True)]
    nodes, cost, rest = format_graph(graph).decode().partition("cost {")
    if cost:
        texts += [cost + rest + nodes, nodes + cost + "\n  cost: 0.0" + rest]
        texts += [(nodes + cost + rest).replace("\n", "\r\n"), nodes + cost.replace(" {", ": {") + rest]
    for text in texts:
        again, _ = noted(text.encode())
        assert (again, again.annotations) == (graph, graph.annotations)


def test_whole_microseconds_without_annotations_are_written_as_ever():
    """Files and hashes made before stay what they are, byte for byte."""
    graph, _ = naive.random_graph(np.random.default_rng(81), 12, whole_runtimes=True)
    assert not CostGraphDef.FromString(format_graph(graph, "binary")).cost
    graph = sketch("a -> 4 us=3 keep=2", "g")
    written = b'node {\n  name: "a"\n  output_info {\n    size: 4\n    alias_input_port: -1\n  }\n  compute_cost: 3\n'
    assert format_graph(graph) == written + b"  persistent_memory_size: 2\n}\n"
    assert graph_hash(graph) == "3bc9a9a2043493ef84dec27592223ea86aae49cd9b848eacb6b045e37bdbd4cd"


@pytest.mark.parametrize("seed", range(10))
def test_other_tools_see_the_ops_that_they_would_see_without(seed):
    """Known fields alone, compute_cost in whole microseconds, and one aggregated cost of nothing."""
    graph = annotated(seed)
    message = CostGraphDef.FromString(format_graph(graph, "binary"))
    assert sum(cost.cost for cost in message.cost) == 0
    assert [node.compute_cost for node in message.node[: graph.num_ops]] == [round(r) for r in graph.runtime.tolist()]
    assert not any(node.compute_time for node in message.node)
    plain = replace(graph, runtime=np.round(graph.runtime), annotations=NO_ANNOTATIONS)
    del message.cost[:]
    assert message.SerializeToString(deterministic=True) == format_graph(plain, "binary")


def test_files_of_other_tools_mean_what_they_meant():
    """TensorFlow's microseconds in compute_time, and its aggregated costs, are dropped with a note as ever."""
    text = 'node { name: "a" compute_cost: 7 compute_time: 4 } cost { cost: 3 dimension: "memory" }'
    graph, (note,) = noted(text.encode())
    assert (graph.runtime.tolist(), graph.annotations) == ([7.0], NO_ANNOTATIONS)
    assert note.endswith("were dropped: compute_time, cost")
    ours = annotated(0)
    document = "schedopt/graph " + json.dumps(document_of(ours))
    again, notes = noted(with_dimension(ours, "memory", document))
    assert (again, again.annotations) == (ours, ours.annotations)
    assert [note for note in notes if "dropped" in note] == ["g: fields that schedopt does not use were dropped: cost"]


def small():
    """Return a graph of two ops with every kind of remark."""
    resident = Resident("w", "parameter", 8, 0, (0,), (1,))
    notes = Annotations(("m", ""), ("x.py:3", "x.py:4"), ("forward", ""), (resident,), {"model": "net"})
    return sketch("a -> 4 us=1.964 keep=8; b: a -> 4 us=0.25", "g", notes)


@pytest.mark.parametrize("encoding", ["text", "binary"])
def test_a_compute_cost_changed_by_hand_is_taken(encoding):
    graph = small()
    text = format_graph(graph).decode().replace("compute_cost: 2\n", "compute_cost: 5\n")
    data = text.encode() if encoding == "text" else text_format.Parse(text, CostGraphDef()).SerializeToString()
    again, (note,) = noted(data)
    assert again.runtime.tolist() == [5, 0.25]
    assert again.annotations == graph.annotations
    assert note.startswith("g: compute_cost of op 'a' was changed by hand, and replaces the exact time")
    both = text.replace('  name: "b"\n', '  name: "b"\n  compute_cost: 1\n')
    again, (note,) = noted(both.encode())
    assert again.runtime.tolist() == [5, 1]
    assert "of op 'a' and 1 more was changed" in note


@pytest.mark.parametrize(
    ("edit", "ops"),
    [
        (lambda text: text.replace('"b"', '"c"'), ("a", "c")),
        (lambda text: text.replace("cost {", 'node {\n  name: "c"\n  id: 7\n}\ncost {'), ("a", "b", "c")),
        (lambda text: text.replace('"a"', '"x"').replace('"b"', '"a"').replace('"x"', '"b"'), ("b", "a")),
        (lambda text: re.sub(r'node {\s+name: "b"(.|\n)*?\n}\n', "", text), ("a",)),
    ],
)
def test_ops_that_are_no_longer_those_lose_their_remarks_and_keep_their_costs(edit, ops):
    again, notes = noted(edit(format_graph(small()).decode()).encode())
    assert again.op_names == ops
    assert again.runtime.tolist() == [2, 0, 0][: len(ops)]
    assert again.annotations is NO_ANNOTATIONS
    (note,) = (note for note in notes if "were dropped" in note)
    assert note.endswith("were dropped from the file: the ops are no longer those that they were written for")


def test_residents_are_those_of_the_persistent_bytes():
    text = format_graph(small()).decode().replace("persistent_memory_size: 8", "persistent_memory_size: 9")
    again, notes = noted(text.encode())
    assert again.annotations == replace(small().annotations, residents=())
    assert again.runtime.tolist() == [1.964, 0.25]
    (note,) = (note for note in notes if "were dropped" in note)
    assert "persistent_memory_size was changed" in note


DAMAGED = {
    "no JSON": lambda text, d: "{",
    "cut": lambda text, d: text[:-5],
    "nested": lambda text, d: "[" * 100_000,
    "a list": lambda text, d: "[]",
    "no version": lambda text, d: json.dumps({key: value for key, value in d.items() if key != "version"}),
    "NaN": lambda text, d: json.dumps({**d, "runtimes": [float("nan"), 0.25]}),
    "too large": lambda text, d: text.replace("1.964", "1e400"),
    "negative": lambda text, d: text.replace("0.25", "-0.25"),
    "truth": lambda text, d: json.dumps({**d, "runtimes": [1.964, False]}),
    "few runtimes": lambda text, d: json.dumps({**d, "runtimes": [1.964]}),
    "no such text": lambda text, d: json.dumps({**d, "modules": {"texts": ["m"], "ops": [0, 1]}}),
    "text before the first": lambda text, d: json.dumps({**d, "modules": {"texts": ["m"], "ops": [0, -1]}}),
    "place that is none": lambda text, d: json.dumps({**d, "modules": {"texts": ["m"], "ops": [0, 0.0]}}),
    "phase": lambda text, d: text.replace("forward", "sideways"),
    "role": lambda text, d: text.replace("parameter", "stranger"),
    "resident of no op": lambda text, d: text.replace("8,0,[0],[1]", "8,7,[0],[1]"),
    "resident without writers": lambda text, d: text.replace("8,0,[0],[1]", "8,0,[0]"),
    "fraction of a byte": lambda text, d: text.replace("8,0,[0],[1]", "8.5,0,[0],[1]"),
    "negative size": lambda text, d: text.replace("8,0,[0],[1]", "-8,0,[0],[1]"),
    "imported as a list": lambda text, d: json.dumps({**d, "imported": ["net"]}),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_remarks_leave_the_graph_and_a_note(case):
    graph = small()
    document = document_of(graph)
    text = json.dumps(document, separators=(",", ":"))
    damaged = DAMAGED[case](text, document)
    assert damaged != text
    again, notes = noted(with_dimension(graph, "schedopt/graph " + damaged))
    assert (again.runtime.tolist(), again.annotations) == ([2, 0], NO_ANNOTATIONS)
    (note,) = (note for note in notes if "were dropped" in note)
    said = "g: annotations (modules, lines, ...) and exact times were dropped from the file: they are damaged"
    assert note == said


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"version": 2}, "another version of schedopt wrote them"), ({"colours": []}, "another version of schedopt")],
)
def test_remarks_of_another_version_are_dropped_and_said(change, reason):
    document = {**document_of(small()), **change}
    again, notes = noted(with_dimension(small(), "schedopt/graph " + json.dumps(document)))
    assert again.annotations is NO_ANNOTATIONS
    assert any(reason in note for note in notes)


@pytest.mark.parametrize("seed", seeds(80, quick=4))
def test_random_damage_leaves_a_valid_graph_with_the_costs_of_its_fields(seed):
    rng = np.random.default_rng([82, seed])
    graph = small()
    text = json.dumps(document_of(graph), separators=(",", ":"))
    at = int(rng.integers(len(text)))
    damaged = text[:at] + chr(int(rng.integers(32, 127))) + text[at + 1 :]
    again, _ = noted(with_dimension(graph, "schedopt/graph " + damaged))
    assert [round(runtime) for runtime in again.runtime.tolist()] == [2, 0]
    again.annotations.check(again.persistent.tolist(), "g")
    assert replace(again, runtime=graph.runtime) == graph


@pytest.mark.parametrize("imported", [{"model": print}, {"flops": float("nan")}, {"shapes": {1, 2}}])
def test_what_json_cannot_hold_is_refused(imported, tmp_path):
    graph = replace(small(), annotations=Annotations(imported=imported))
    with pytest.raises(UsageError, match="g: the annotations hold what no file can: "):
        costgraph.write_graph(graph, tmp_path / "g.pb")
    assert not list(tmp_path.iterdir())


def test_weights_beyond_the_persistent_bytes_are_dropped():
    large = replace(small(), persistent=np.array([7, 0]))
    assert noted(format_graph(large))[0].annotations == NO_ANNOTATIONS
