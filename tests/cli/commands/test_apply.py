"""`schedopt apply` and `measure`: several devices, and other input that is refused in one sentence."""

import json

import pytest


def message_of(done):
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.onnx", "s.json", "-o", "m.json", "--format", "device-map"), "a device map is of the modules"),
        (("m:f", "s.json", "-o", "m.pt2", "--format", "device-map"), "m.pt2: a device map is written as JSON"),
        (("m:f", "s.json", "-o", "m.pt2", "--format", "map"), "one of program, device-map, not 'map'"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, message):
    done = run("apply", *arguments)
    assert done.exit_code == 2
    assert message in message_of(done)


@pytest.mark.parametrize(
    "command", [("apply", "net.onnx", "two.json", "-o", "out.onnx"), ("measure", "net.onnx", "-s", "two.json")]
)
def test_an_onnx_model_on_several_devices_is_refused(run, tmp_path, monkeypatch, command):
    pytest.importorskip("onnxruntime")
    import onnx

    monkeypatch.chdir(tmp_path)
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (4,)) for name in "xy")
    nodes = [onnx.helper.make_node("Abs", ["x"], ["a"], "a"), onnx.helper.make_node("Exp", ["a"], ["y"], "y")]
    graph = onnx.helper.make_graph(nodes, "net", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), "net.onnx")
    steps = [{"op": "a", "device": 0}, {"tensor": "a:0", "from": 0, "to": 1}, {"op": "y", "device": 1}]
    (tmp_path / "two.json").write_text(json.dumps({"steps": steps, "devices": 2}))
    done = run(*command)
    assert done.exit_code == 2
    assert "two.json: the schedule uses 2 devices, and a program runs on one; solve with" in message_of(done)
    assert not (tmp_path / "out.onnx").exists()
