"""ONNX files as they are deployed: control flow, fused and quantised nodes, sizes that only a run tells, bad files."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from models.onnx_models import branches, model_of, quantized, save, value, with_control_flow, with_function
from models.orders import random_order, write_schedule
from onnx import TensorProto, helper
from schedopt import FormatError, ProgramError, UsageError
from schedopt.core.programs.importers import options_for, read_model
from schedopt.core.programs.onnx import session
from schedopt.core.programs.onnx.program import read_program
from schedopt.core.programs.onnx.runtime import graph_of, load_program
from schedopt.core.programs.onnx.session import random_inputs
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import Observer, apply, measure
from schedopt.core.programs.runtime import load_runtime

FLOAT = 4


def test_unknown_sizes_are_asked_for_as_the_inputs_stand(tmp_path):
    """A negative size, a `?` and none at all are unknown, each for itself; a name is one size wherever it stands."""
    inputs = [value("x", ["batch", 3, "?", "?"]), value("u", ["batch", -1, None])]
    nodes = [helper.make_node("Neg", ["x"], ["y"], "a"), helper.make_node("Neg", ["u"], ["z"], "b")]
    path = save(tmp_path / "m.onnx", model_of(nodes, inputs, [value("y", [-1, 3, None, None]), value("z", [None] * 3)]))
    with pytest.raises(UsageError) as caught:
        load_program(path, {})
    assert "x: [batch, 3, ?, ?], u: [batch, ?, ?] have no size" in str(caught.value)
    assert "--shape batch=VALUE --shape x.2=VALUE --shape x.3=VALUE --shape u.1=VALUE" in str(caught.value)
    assert "or all " in str(caught.value) and "x=1x3x1x1" in str(caught.value)
    program = load_program(path, {"x": (2, 3, 8, 5), "u.1": 4, "u.2": 6})
    assert program.types["y"].shape == (2, 3, 8, 5)
    assert program.types["z"].shape == (2, 4, 6)
    for shapes, message in (
        ({"x": (2, 4, 8, 5)}, r"--shape x=2x4x8x5 does not fit input x: \[batch, 3, \?, \?\]"),
        ({"x": (2, 3, 8)}, "does not fit"),
        ({"x": (2, 3, 8, 5), "u": (3, 4, 6)}, "makes dimension 'batch' 3, another one 2"),
        ({"x": range(1, 9)}, "--shape x=1..8 is a range, which only optimize takes"),
        ({"w": (1, 2)}, "no symbolic dimension 'w'; it has batch, x.2"),
    ):
        with pytest.raises(UsageError, match=message):
            load_program(path, shapes)


@pytest.mark.slow
def test_the_value_of_a_whole_number_steers_the_run(tmp_path):
    """A size that depends on an input's value is that of a run with the value given; schedules keep it."""
    nodes = [
        helper.make_node("Range", ["zero", "n", "one"], ["r"], "range"),
        helper.make_node("Cast", ["r"], ["y"], "cast", to=TensorProto.FLOAT),
    ]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    model = model_of(nodes, [value("n", [], TensorProto.INT64)], [value("y", [None])], constants)
    path = save(tmp_path / "m.onnx", model)
    notes = []
    program = load_program(path, {"n": 500}, notes.append)
    assert program.types["y"].shape == (500,)
    assert random_inputs(program)["n"] == 500
    assert any("sizes of 2 values, such as 'r', depend on data; those of one run count" in note for note in notes)
    schedule = tmp_path / "s.json"
    graph = graph_of(program)
    schedule.write_text(json.dumps({"imported": {"model": path, "shapes": {"n": 500, "x": [1, 2]}}, "steps": []}))
    assert options_for([str(schedule)], {}, print).shapes == {"n": 500, "x": (1, 2)}
    assert graph.num_ops == 2


@pytest.mark.slow
@pytest.mark.parametrize(("make", "opaque"), [(with_control_flow, "1 If, 1 Loop"), (with_function, "2 Twice")])
def test_opaque_nodes_are_ops_that_can_be_reordered(tmp_path, make, opaque):
    """What ONNX does not describe is one op; constants inside are held; results and peaks are as predicted."""
    path = save(tmp_path / "m.onnx", make(128))
    notes = []
    graph = read_model(path, ImportOptions(), notes.append)
    assert any(f"nodes are opaque ({opaque})" in note for note in notes)
    order = random_order(graph, 0)
    schedule = write_schedule(tmp_path / "s.json", graph, order)
    apply(path, schedule, str(tmp_path / "o.onnx"), ImportOptions(), print)
    (row,) = measure(str(tmp_path / "o.onnx"), [], 1, ImportOptions(), Observer(print))
    assert row.is_equal
    if make is with_control_flow:
        matrix = FLOAT * 128 * 128
        held = {resident.name: resident.size for resident in graph.annotations.residents}
        assert held["choose/constants"] == 2 * matrix
        assert graph.workspace[graph.op_names.index("repeat")] >= matrix
        # An If takes what the heap has at hand, so that one matrix more or less is there at the peak.
        assert abs(row.predicted_peak - row.measured_peak) <= matrix


@pytest.mark.slow
def test_what_onnx_runtime_has_saved_is_scheduled(tmp_path):
    """Offline optimisation fuses nodes into its own domains: these import, reorder, and run bitwise the same."""
    path = save(tmp_path / "m.onnx", branches())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    domains = {node.domain for node in onnx.load(tmp_path / "fused.onnx").graph.node}
    assert domains & {"com.microsoft", "com.microsoft.nchwc"}
    graph = read_model(str(tmp_path / "fused.onnx"), ImportOptions(), print)
    schedule = write_schedule(tmp_path / "s.json", graph, random_order(graph, 1))
    rows = measure(str(tmp_path / "fused.onnx"), [schedule], 1, ImportOptions(), Observer(print))
    assert all(row.is_equal and abs(row.error) < 0.05 for row in rows)
    assert graph.runtime.min() >= 0
    assert graph.num_ops < read_model(path, ImportOptions(), print).num_ops


@pytest.mark.slow
def test_quantised_weights_count_as_stored(tmp_path):
    channels, width = 64, 32
    path = save(tmp_path / "m.onnx", quantized(channels, width))
    notes = []
    graph = read_model(path, ImportOptions(), notes.append)
    weight, image = channels * channels * 9, FLOAT * channels * width * width
    sizes = {resident.name: resident.size for resident in graph.annotations.residents}
    assert sizes["w"] == weight
    assert graph.persistent.sum() == weight + image + sum(sizes[name] for name in ("xs", "ws", "ys", "zero"))
    assert "dequantize_weight" in graph.op_names
    assert any("1 constants count as they are stored, quantised" in note for note in notes)
    (row,) = measure(path, [], 1, ImportOptions(), Observer(print))
    assert abs(row.error) < 0.05


@pytest.mark.slow
def test_a_custom_op_that_cannot_run_is_said(tmp_path):
    """With its sizes in the file it is imported, and what is not known is said."""
    node = helper.make_node("Fast", ["x"], ["y"], "mine", domain="com.example")
    notes = []
    path = save(tmp_path / "known.onnx", model_of([node], [value("x", [4])], [value("y", [8])]))
    graph = read_model(path, ImportOptions(), notes.append)
    assert graph.tensor_size.tolist() == [FLOAT * 8]
    assert any("cannot load" in note and "is unknown and not counted" in note for note in notes)


def test_random_nodes_keep_their_order(tmp_path):
    """In the graph, or inside of others."""
    draws = [helper.make_node("RandomNormalLike", ["x"], [name], name) for name in "abc"]
    branch = helper.make_graph(draws[2:], "draw", [], [value("c", [4])])
    nodes = [*draws[:2], helper.make_node("If", ["k"], ["y"], "y", then_branch=branch, else_branch=branch)]
    inputs, outputs = [value("x", [4]), value("k", [], TensorProto.BOOL)], [value(name, [4]) for name in "aby"]
    graph = graph_of(read_program(save(tmp_path / "m.onnx", model_of(nodes, inputs, outputs)), {}))
    assert list(zip(*graph.edges, strict=True)) == [(0, 1), (1, 2)]


def test_the_model_is_overwritten_only_if_asked(tmp_path):
    """By its own name, or by a second one of the same file."""
    path = save(tmp_path / "m.onnx", branches())
    before = Path(path).read_bytes()
    graph = read_model(path, ImportOptions(), print)
    order = random_order(graph, 2)
    schedule = write_schedule(tmp_path / "s.json", graph, order)
    (tmp_path / "hard.onnx").hardlink_to(path)
    for output in (path, str(tmp_path / "hard.onnx")):
        with pytest.raises(UsageError, match="is the model itself; name another file, or write over it by --overwrite"):
            apply(path, schedule, output, ImportOptions(), print)
    assert Path(path).read_bytes() == before
    apply(path, schedule, path, ImportOptions(), print, overwrite=True)
    assert [node.name for node in onnx.load(path).graph.node] == [graph.op_names[op] for op in order]


def damaged():
    """`(what is done to a good model, what the message must say)`, one per way to be damaged."""

    def initializer(change):
        def apply_to(model):
            change(model.graph.initializer[0])

        return apply_to

    yield initializer(lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-3])), r"needs \d+ bytes and has \d+"
    yield initializer(lambda tensor: setattr(tensor, "data_type", 999)), "is of the unknown type 999"
    yield initializer(lambda tensor: tensor.dims.__setitem__(0, 2**61)), "which no machine can hold"
    yield initializer(lambda tensor: tensor.dims.__setitem__(0, -2)), "has the negative size -2"
    for location, offset, message in (
        ("/etc/passwd", "0", "is no file next to the model"),
        ("../../x", "0", "is no file next to the model"),
        ("", "0", "is no file next to the model"),
        ("w" * 5000, "0", "which is missing"),
        ("data.bin", "-5", "is no number of bytes"),
        ("data.bin", "x", "is no number of bytes"),
    ):

        def move(tensor, location=location, offset=offset):
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, entry in (("location", location), ("offset", offset)):
                tensor.external_data.add(key=key, value=entry)

        yield initializer(move), message
    yield lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 77), "is of the unknown type 77"


def test_damaged_files_are_one_sentence(tmp_path):
    (tmp_path / "data.bin").write_bytes(b"x" * 10**6)
    for change, message in damaged():
        model = branches()
        change(model)
        path = save(tmp_path / "m.onnx", model)
        with pytest.raises((FormatError, ProgramError), match=message) as caught:
            read_model(path, ImportOptions(), print)
        assert "\n" not in str(caught.value)
    model = branches().SerializeToString().replace(b"conv00", b"co\xff\xfe00")
    (tmp_path / "m.onnx").write_bytes(model)
    with pytest.raises(FormatError, match="no UTF-8 text"):
        read_model(str(tmp_path / "m.onnx"), ImportOptions(), print)


@pytest.mark.parametrize(
    ("element", "note", "left_out"),
    [
        (TensorProto.FLOAT16, "it adds 5 casts and holds results of 3 nodes in float32", "casts"),
        (TensorProto.BFLOAT16, "cannot run on this machine: ONNX Runtime cannot load .*bfloat16", "does not run"),
    ],
)
def test_what_the_session_casts_or_cannot_load_is_said(tmp_path, element, note, left_out, monkeypatch):
    """Of a chain of convolutions: the weights, the input and the output are cast."""
    monkeypatch.setattr(session, "as_loaded", lambda program: session.load_file(**program.question))
    weights = [helper.make_tensor(f"w{step}", element, [8, 8, 3, 3], [1.0] * 576) for step in range(3)]
    nodes = [helper.make_node("Conv", [f"v{step}", f"w{step}"], [f"v{step + 1}"], pads=[1] * 4) for step in range(3)]
    shape, notes = [1, 8, 16, 16], []
    model = model_of(nodes, [value("v0", shape, element)], [value("v3", shape, element)])
    model.graph.initializer.extend(weights)
    graph = read_model(save(tmp_path / "m.onnx", model), ImportOptions(), notes.append)
    assert graph.tensor_size.tolist() == [2 * 8 * 16 * 16] * 3
    assert [bool(re.search(note, found)) for found in notes] == [True]
    assert left_out in graph.annotations.left_out[0]


def test_casts_in_a_saved_file_are_its_own(tmp_path, monkeypatch):
    """They are counted, so nothing is said; and the order of a file that gets casts is not kept."""
    monkeypatch.setattr(session, "as_loaded", lambda program: session.load_file(**program.question))
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    given = partial(value, element=TensorProto.FLOAT16)
    weights = {"w": np.ones((2, 2, 1, 1), np.float16)}
    path = save(tmp_path / "m.onnx", model_of(nodes, [given("x", [1, 2, 8, 8])], [given("y", [1, 2, 8, 8])], weights))
    options = session.session_options()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    session.session_of(onnx.load(path), tmp_path, options)
    for name, casts, said in (("m.onnx", 3, 0), ("saved.onnx", 0, 1)):
        notes = []
        runtime = load_runtime(str(tmp_path / name), ImportOptions(), notes.append)
        assert runtime.program.observed["casts"] == casts
        assert sum("casts change the order" in note for note in notes) == 1 - said
        notes.clear()
        runtime.save(runtime.reordered(None, range(len(runtime.program.names))), str(tmp_path / "o.onnx"), notes.append)
        assert sum("keeps this order" in note for note in notes) == said


def test_casts_that_the_session_leaves_out_are_said(tmp_path, monkeypatch):
    """A file's own casts to float16 and back go: what is between them is held in float32."""
    cast = partial(helper.make_node, "Cast")
    nodes = [cast("x", "h", to=TensorProto.FLOAT16), helper.make_node("Relu", "h", "a"), cast("a", "y", to=1)]
    path, notes = save(tmp_path / "m.onnx", model_of(nodes, [value("x", [4])], [value("y", [4])])), []
    monkeypatch.setattr(session, "as_loaded", lambda program: session.load_file(**program.question))
    load_program(path, {}, notes.append)
    assert "0 casts and holds results of 1 nodes in float32" in notes[0]


@pytest.mark.parametrize("data", [b"x" * 5000, [0.5] * 1250, ["text"] * 1250])
def test_data_in_attributes_counts(tmp_path, data):
    """As the trees of a classifier, or what a compiler puts into a node; settings do not."""
    node = helper.make_node("Fast", ["x"], ["y"], "mine", domain="com.example", data=data, axis=1, axes=[0, 1])
    model = model_of([node], [value("x", [4])], [value("y", [8])])
    graph = graph_of(read_program(save(tmp_path / "m.onnx", model), {}))
    held = {resident.name: resident.size for resident in graph.annotations.residents}
    assert held == {"x": 16, "mine/constants": 5000}


def adds(size, output=None):
    """Return a model that reads the shape of its input, and adds the input to itself."""
    nodes = [helper.make_node("Shape", ["x"], ["dims"]), helper.make_node("Add", ["x", "x"], ["y"])]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, size)
    gives = output or helper.make_tensor_value_info("y", TensorProto.FLOAT, size)
    graph = helper.make_graph(nodes, "adds", [given], [gives])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_list_of_two_thousand_million_numbers_is_no_shape(tmp_path):
    """ONNX would take fifty bytes for each of them."""
    graph = read_model(save(tmp_path / "m.onnx", adds([2**31 - 1])), ImportOptions(), print)
    assert graph.num_ops == 2
    assert int(graph.persistent.sum()) == 4 * (2**31 - 1)


def test_more_elements_than_a_tensor_can_have_are_one_sentence(tmp_path):
    model = adds([4, 2**62])
    model.graph.node.append(helper.make_node("Unknown", ["x"], ["z"], domain="of.others"))
    model.opset_import.append(helper.make_opsetid("of.others", 1))
    with pytest.raises(FormatError, match=r"'x' has more elements than a tensor can have: \[4, 4611686018427387904\]$"):
        read_model(save(tmp_path / "m.onnx", model), ImportOptions(), print)


def test_what_onnx_runtime_runs_is_imported(tmp_path):
    """Outputs without a shape, nodes in any order, and domains without a version; ONNX's checker takes none of them."""
    nodes = [helper.make_node("Relu", ["b"], ["y"], "second"), helper.make_node("Sigmoid", ["x"], ["b"], "first")]
    nodes += [helper.make_node("Gelu", ["x"], ["g"], "third", domain="com.microsoft")]
    model = model_of(nodes, [value("x", [1, 8, 16, 16])], [value("y", None), value("g", None)])
    del model.opset_import[1:]
    path = save(tmp_path / "m.onnx", model)
    graph = graph_of(load_program(path, {}))
    assert graph.op_names == ("third", "first", "second")
    assert graph.tensor_size.tolist() == [FLOAT * 8 * 16 * 16] * 3
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_an_input_that_is_an_output_of_no_type_has_its_own(tmp_path):
    output = helper.make_tensor_value_info("x", TensorProto.UNDEFINED, [4, 2, 5])
    assert read_model(save(tmp_path / "m.onnx", adds([3, 5], output)), ImportOptions(), print).num_ops == 2
