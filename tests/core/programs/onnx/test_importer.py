"""ONNX models as graphs: what holds which bytes, what is folded, and one sentence for each model that cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models.onnx_models import branches, model_of, save, value, with_shape_arithmetic
from onnx import TensorProto, helper
from schedopt import FormatError, ProgramError, read_graph, write_graph
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.onnx.graph import ValueType
from schedopt.core.programs.onnx.runtime import load_program, node_flops
from schedopt.core.programs.options import ImportOptions

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FLOAT = 4


def graph_of_model(tmp_path, model, notes=None, **options):
    return read_model(save(tmp_path / "model.onnx", model), ImportOptions(**options), (notes or []).append)


def tensor(graph, name):
    return next(t for t in range(graph.num_tensors) if graph.tensor_name(t) == name)


def test_bytes_are_where_they_belong(tmp_path):
    """Each constant and input once, on its first reader; outputs final and never views; in place if sure."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["g"], "view_of_input"),
        helper.make_node("Neg", ["g"], ["z"], "negate"),
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("MatMul", ["a", "w"], ["b"], "second"),
        helper.make_node("Relu", ["b"], ["c"], "in_place"),
        helper.make_node("Flatten", ["a"], ["d"], "view"),
        helper.make_node("Relu", ["d"], ["e"], "shared"),
        helper.make_node("Add", ["c", "e"], ["f"], "sum"),
        helper.make_node("Identity", ["f"], ["y"], "copy"),
    ]
    outputs = [value("y", [8, 8]), value("z", [8, 8])]
    model = model_of(nodes, [value("x", [8, 8])], outputs, {"w": np.ones((8, 8), np.float32)})
    graph = graph_of_model(tmp_path, model)
    size = FLOAT * 64
    by_default = "first view shared second in_place sum copy view_of_input negate"
    assert graph.op_names == tuple(by_default.split())
    assert graph.persistent.tolist() == [2 * size] + [0] * 8
    alias = {graph.tensor_name(t): int(graph.alias_of[t]) for t in range(graph.num_tensors)}
    assert alias["in_place:0"] == tensor(graph, "second:0")
    assert alias["view:0"] == tensor(graph, "first:0")
    assert alias["shared:0"] == -1  # another op reads the buffer of `a`, perhaps later
    assert alias["copy:0"] == alias["negate:0"] == -1
    assert graph.tensor_size[tensor(graph, "view_of_input:0")] == 0
    assert graph.is_final.sum() == 2
    assert graph.is_final[tensor(graph, "copy:0")]
    assert graph.is_final[tensor(graph, "negate:0")]
    write_graph(graph, tmp_path / "graph.pb")
    written = read_graph(tmp_path / "graph.pb")
    assert np.array_equal(written.alias_of, graph.alias_of)
    assert np.array_equal(written.is_final, graph.is_final)


def test_a_buffer_that_two_ops_read_is_not_written_over(tmp_path):
    """In place is sure only if the op alone reads the whole buffer, through views too."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "root"),
        helper.make_node("Flatten", ["a"], ["b"], "view"),
        helper.make_node("Flatten", ["b"], ["c"], "view_of_view"),
        helper.make_node("Relu", ["c"], ["d"], "relu"),
        helper.make_node("Neg", ["d"], ["y"], "end"),
    ]
    model = model_of(nodes, [value("x", [8, 8])], [value("y", [8, 8])])
    graph = graph_of_model(tmp_path, model)
    assert graph.root[tensor(graph, "relu:0")] == tensor(graph, "root:0")
    model.graph.node.append(helper.make_node("Neg", ["b"], ["z"], "other"))
    model.graph.output.append(value("z", [8, 8]))
    graph = graph_of_model(tmp_path, model)
    assert graph.root[tensor(graph, "view_of_view:0")] == tensor(graph, "root:0")
    assert graph.root[tensor(graph, "relu:0")] == tensor(graph, "relu:0")


def test_constants_are_folded(tmp_path):
    """Nodes on constants alone are no ops; what the others read of them is persistent, what only they read is not."""
    nodes = [
        helper.make_node("Constant", [], ["k"], "k", value_float=2.0),
        helper.make_node("Mul", ["w", "k"], ["scaled"], "scale"),
        helper.make_node("ConstantOfShape", ["dims"], ["big"], "fill"),
        helper.make_node("MatMul", ["x", "scaled"], ["a"], "product"),
        helper.make_node("Add", ["a", "big"], ["y"], "add"),
    ]
    constants = {"w": np.ones((4, 6), np.float32), "dims": np.array([4, 6], np.int64)}
    notes = []
    model = model_of(nodes, [value("x", [4, 4])], [value("y", [4, 6])], constants)
    graph = read_model(save(tmp_path / "model.onnx", model), ImportOptions(), notes.append)
    assert graph.op_names == ("product", "add")
    assert graph.persistent.tolist() == [FLOAT * (16 + 24), FLOAT * 24]
    assert "3 of 5 nodes are constant" in notes[0]


def test_shapes_come_through_the_shape_of_an_input(tmp_path):
    """With all sizes given, what is computed of a tensor's shape is known; the nodes that compute it still run."""
    model = with_shape_arithmetic("n")
    program = load_program(save(tmp_path / "model.onnx", model), {"n": 4})
    assert program.types["r"].shape == (4, 2, 3)
    assert program.names == tuple(node.name for node in model.graph.node if node.name != "fill")


def test_names_are_unique_and_stable(tmp_path):
    model = branches()
    model.graph.node[0].name = ""
    model.graph.node[1].name = "Conv_0"
    model.graph.node[2].name = model.graph.node[3].name
    graph = graph_of_model(tmp_path, model)
    assert len(set(graph.op_names)) == len(model.graph.node)
    assert {"Conv_0#0", "Conv_0", model.graph.node[3].name, f"{model.graph.node[3].name}#3"} <= set(graph.op_names)


@pytest.mark.parametrize(
    ("node", "shape", "constants", "output", "expected"),
    [
        # 2 x output elements x (channels per group x kernel)
        (helper.make_node("Conv", ["x", "w"], ["y"], group=2), [1, 8, 10, 10], {"w": (6, 4, 3, 3)}, [1, 6, 8, 8],
         2 * 6 * 64 * 4 * 9),
        (helper.make_node("ConvTranspose", ["x", "w"], ["y"]), [1, 8, 4, 4], {"w": (8, 5, 3, 3)}, [1, 5, 6, 6],
         2 * 8 * 16 * 5 * 9),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), [7, 3], {"w": (7, 5)}, [3, 5], 2 * 3 * 5 * 7),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), [2, 3, 7], {"w": (7, 5)}, [2, 3, 5], 2 * 2 * 3 * 5 * 7),
        (helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5), [9, 2, 7],
         {"w": (1, 20, 7), "r": (1, 20, 5)}, [9, 1, 2, 5], 2 * 9 * 2 * (4 * 5) * (7 + 5)),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), [1, 3, 5, 5], {}, [1, 3, 4, 4], 3 * 16 * 4),
        (helper.make_node("GlobalAveragePool", ["x"], ["y"]), [1, 3, 5, 5], {}, [1, 3, 1, 1], 75),
        (helper.make_node("Relu", ["x"], ["y"]), [3, 5], {}, [3, 5], 15),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)  # fmt: skip
def test_flops(node, shape, constants, output, expected):
    shapes = {"x": shape, **constants, "y": output}
    types = {name: ValueType(TensorProto.FLOAT, tuple(size)) for name, size in shapes.items()}
    assert node_flops(types, node) == expected


@pytest.mark.parametrize("name", ["squeezenet", "densenet121"])
def test_light_models(name):
    """Models of the onnx package: as many ops as nodes that no constant makes, and each weight counted once."""
    path = LIGHT / f"light_{name}.onnx"
    graph = read_model(str(path), ImportOptions(), lambda text: None)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    made = kinds.count("ConstantOfShape") + kinds.count("Unsqueeze")
    assert graph.num_ops == len(kinds) - made
    parameters = {"squeezenet": 1235496, "densenet121": 8146152}[name]  # those of the published models
    assert graph.persistent.sum() == FLOAT * (parameters + 3 * 224 * 224)


def bad_models(tmp_path):
    """`(model file, error, what its message must say)`, one per way to be wrong."""
    good = branches().SerializeToString()

    def write(name, model):
        return save(tmp_path / f"{name}.onnx", model)

    def raw(name, data):
        (tmp_path / f"{name}.onnx").write_bytes(data)
        return str(tmp_path / f"{name}.onnx")

    x, y = [value("x", [4])], [value("y", [4])]
    yield str(tmp_path / "nothing.onnx"), FormatError, "no such file or folder"
    yield raw("empty", b""), FormatError, "not a valid ONNX model, or truncated"
    for share in (0.3, 0.9, 0.999):
        yield raw(f"cut{share}", good[: int(share * len(good))]), FormatError, "truncated"
    yield raw("text", b"hello, this is no model"), FormatError, "truncated"
    external = tmp_path / "external.onnx"
    onnx.save_model(branches(), external, save_as_external_data=True, location="gone.bin", size_threshold=0)
    (tmp_path / "gone.bin").unlink()
    yield str(external), FormatError, "tensor 'shape' is in .*gone.bin, which is missing; put it next to the model"
    short = tmp_path / "short.onnx"
    onnx.save_model(branches(), short, save_as_external_data=True, location="short.bin", size_threshold=0)
    data = (tmp_path / "short.bin").read_bytes()
    (tmp_path / "short.bin").write_bytes(data[:5000])
    yield str(short), FormatError, r"ends at byte \d+ of .*short.bin, which has 5000: it is truncated"
    custom = helper.make_node("Fast", ["x"], ["y"], "mine", domain="com.example")
    model = model_of([custom], x, [value("y", [None])])
    yield (
        write("custom", model),
        ProgramError,
        r"only a run tells the size of 'y', which node 'mine' \(Fast\) makes, and .*cannot load",
    )
    sequence = [helper.make_node("SequenceConstruct", ["x"], ["s"], "pack"), helper.make_node("Neg", ["x"], ["y"])]
    yield write("sequence", model_of(sequence, x, y)), ProgramError, "node 'pack'.* no tensor but sequence 's'"
    many = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)
    nodes = [helper.make_node("SequenceAt", ["q", "i"], ["y"], "at")]
    model = model_of(nodes, [many], y, {"i": np.array(0, np.int64)})
    yield write("sequence_input", model), ProgramError, "input 'q' is no tensor but sequence"
    cycle = [helper.make_node("Neg", ["b"], ["a"], "one"), helper.make_node("Neg", ["a"], ["b"], "two")]
    yield write("cycle", model_of(cycle, x, [value("b", [4])])), FormatError, "not a valid ONNX model"
    wrong = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    model = model_of([wrong], [value("x", [2, 3])], [value("y", [2, 2])], {"w": np.ones((4, 2), np.float32)})
    yield write("shapes", model), FormatError, "shapes cannot be inferred.*product"
    nodes = [helper.make_node("Gather", ["sizes", "far"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["y"])]
    constants = {"sizes": np.array([4], np.int64), "far": np.array([7], np.int64)}
    model = model_of(nodes, x, [value("y", [None])], constants)
    yield write("far", model), ProgramError, "constant 's' .Gather. cannot be computed"
    constant = helper.make_node("Constant", [], ["y"], value_floats=[1.0] * 4)
    yield write("constant", model_of([constant], [], y)), ProgramError, "all nodes are constant"
    text = helper.make_node("Cast", ["x"], ["s"], "spell", to=TensorProto.STRING)
    model = model_of([text, helper.make_node("Cast", ["s"], ["y"], to=1)], x, y)
    yield write("text_tensor", model), ProgramError, "node 'spell'.* gives text 's'"


@pytest.mark.slow
def test_bad_models_are_one_sentence(tmp_path):
    for path, error, message in bad_models(tmp_path):
        with pytest.raises(error, match=message) as caught:
            read_model(path, ImportOptions(), print)
        assert str(caught.value).startswith(path)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("costs", ["roofline", "measured"])
def test_a_missing_package_is_one_sentence(tmp_path, missing, costs):
    """Every entry says what to install; an import with the roofline needs onnx alone."""
    path = save(tmp_path / "model.onnx", branches(1))
    code = f"""
import sys
sys.modules[{missing!r}] = None
from schedopt.core.base.errors import UsageError
from schedopt.core.programs.options import ImportOptions
try:
    from schedopt.core.programs.importers import read_model
    read_model({path!r}, ImportOptions(costs={costs!r}), print)
except UsageError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    is_needed = missing == "onnx" or costs == "measured"
    assert ("pip install 'schedopt[onnx]'" in done.stdout) == is_needed


def test_residents_are_constants_and_inputs_and_nodes_name_their_module(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "/features/features.0/MatMul"),
        helper.make_node("Mul", ["a", "x"], ["b"], "/features/features.0/act/Mul"),
        helper.make_node("Neg", ["b"], ["y"], "plain"),
        helper.make_node("Abs", ["y"], ["z"], "scoped"),
    ]
    for node, key, text in (
        (nodes[3], "pkg.torch.onnx.name_scopes", "['', 'head', 'head.fc', 'abs']"),
        (nodes[3], "pkg.torch.onnx.stack_trace", 'File "/home/me/net.py", line 7, in forward\n  return x.abs()\n'),
        (nodes[2], "pkg.torch.onnx.name_scopes", "not a list"),
    ):
        entry = node.metadata_props.add()
        entry.key, entry.value = key, text
    inputs = [value("x", [8, 8]), value("unread", [2])]
    model = model_of(nodes, inputs, [value("z", [8, 8])], {"w": np.ones((8, 8), np.float32)})
    graph = graph_of_model(tmp_path, model)
    known = graph.annotations
    assert known.modules == ("features.0", "features.0.act", "", "head.fc")
    assert known.lines == ("", "", "", "net.py:7")
    assert set(known.phases) == {"forward"}
    assert [(r.name, r.role, r.op, r.readers) for r in known.residents] == [
        ("unread", "input", 0, ()),
        ("x", "input", 0, (0, 1)),
        ("w", "parameter", 0, (0,)),
    ]
    assert [sum(r.size for r in known.residents if r.op == op) for op in range(4)] == graph.persistent.tolist()


def test_who_reads_a_view_of_an_input_reads_the_input(tmp_path):
    shape = {"flat": np.array([64]), "again": np.array([4, 16]), "wide": np.array([16, 4])}
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["a"], "a"),
        helper.make_node("Reshape", ["a", "again"], ["b"], "b"),
        helper.make_node("Abs", ["b"], ["c"], "c"),
        helper.make_node("Reshape", ["c", "wide"], ["d"], "d"),
        helper.make_node("Neg", ["d"], ["y"], "y"),
        helper.make_node("Reshape", ["x", "flat"], ["z"], "z"),
    ]
    outputs = [value("y", [16, 4]), value("z", [64])]
    graph = graph_of_model(tmp_path, model_of(nodes, [value("x", [8, 8])], outputs, shape))
    known = {resident.name: resident.readers for resident in graph.annotations.residents}
    op = {name: number for number, name in enumerate(graph.op_names)}
    assert known["x"] == tuple(sorted(op[name] for name in "abcz"))  # not who reads what `c` makes
    sizes = {name: int(graph.tensor_size[tensor(graph, f"{name}:0")]) for name in "abcdyz"}
    assert sizes == {"a": 0, "b": 0, "c": 256, "d": 256, "y": 256, "z": 256}
