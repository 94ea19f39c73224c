"""From an ONNX file to one that ONNX Runtime runs in an order of less peak memory, optimised as it is deployed.

usage: python examples/07_onnx_deployed.py [FILE.onnx [NAME=VALUE...]]

NAME=VALUE as `--shape` takes it. Without a file, four branches of convolutions are made, as `docs/start/onnx.md` does.
Needs `pip install 'schedopt[onnx]'`.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import schedopt
from onnx import TensorProto, helper, numpy_helper


def branches(path):
    """Write a model whose branches widen one image before they narrow it, all of them first."""
    random = np.random.default_rng(0)
    nodes, weights = [], []
    for step, (channels, source) in enumerate(((64, "image"), (4, "Conv_0_{}"))):
        for branch in range(4):
            shape = (channels, 3 if step == 0 else 64, 3, 3)
            weights.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), f"w{step}{branch}"))
            output = f"Conv_{step}_{branch}"
            nodes.append(
                helper.make_node("Conv", [source.format(branch), f"w{step}{branch}"], [output], output, pads=[1] * 4)
            )
    nodes.append(helper.make_node("Concat", [f"Conv_1_{branch}" for branch in range(4)], ["out"], "join", axis=1))
    image, out = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", channels, 128, 128])
        for name, channels in (("image", 3), ("out", 16))
    )
    graph = helper.make_graph(nodes, "branches", [image], [out], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def session_of(path, level, saved=None):
    """Load a model: optimised (and saved), or as it is, its nodes in the order of the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    if saved is not None:
        options.optimized_model_filepath = saved
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


source, shapes = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("branches.onnx", ["batch=1"])
if not Path(source).exists():
    branches(source)
session_of(source, "ORT_ENABLE_ALL", "fused.onnx")  # folded and fused, for this kind of processor
for model, output in ((source, "ordered.onnx"), ("fused.onnx", "deployed.onnx")):
    options = ["--output", output, "--repeats", "1", *(part for shape in shapes for part in ("--shape", shape))]
    subprocess.run([sys.executable, "-m", "schedopt", "optimize", model, *options], check=True)
session = session_of("deployed.onnx", "ORT_DISABLE_ALL")
print("deployed.onnx has", len(onnx.load("deployed.onnx").graph.node), "nodes; it takes", session.get_inputs()[0].name)
if not sys.argv[1:]:
    print(schedopt.import_model("deployed.onnx", shapes={"batch": 4}))
