"""Six networks whose branches can run at the same time, as ONNX files, with nodes of some 100 us and more.

usage: python examples/experiments/machines/branching.py FOLDER

squeezenet is the one that the onnx package ships (its weights are constants, so that they take little space); the
others have random weights. Needs `pip install 'schedopt[onnx]'`.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """Nodes and weights that are added one after the other; a value is a name, with its channels or features."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        self.nodes, self.weights = [], []

    def add(self, kind, sources, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, sources, [name], name, **attributes))
        return name

    def weight(self, *shape):
        name = f"weight{len(self.weights)}"
        values = self.random.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape) / shape[0])
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, source, channels, size=3, stride=1):
        name, inside = source
        pads = [size // 2] * 4
        weight = self.weight(channels, inside, size, size)
        out = self.add("Conv", [name, weight], pads=pads, strides=[stride, stride])
        return self.add("Relu", [out]), channels

    def dense(self, source, features):
        name, inside = source
        out = self.add("MatMul", [name, self.weight(inside, features)])
        return self.add("Relu", [out]), features

    def save(self, path, inputs, outputs):
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        wanted = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, path.stem, given, wanted, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def experts(path):
    """Four experts of three layers each, and a mean of what they say."""
    net = Network()
    outs = []
    for _ in range(4):
        value = ("x", 512)
        for features in (1024, 1024, 512):
            value = net.dense(value, features)
        outs.append(value[0])
    net.save(path, {"x": (96, 512)}, [net.add("Mean", outs)])


def towers(path):
    """An image tower of convolutions and a text tower of products, compared at the end."""
    net = Network()
    image = ("image", 3)
    for channels, stride in ((32, 2), (64, 1), (64, 2), (128, 1), (128, 2), (256, 1)):
        image = net.conv(image, channels, stride=stride)
    image = (net.add("Flatten", [net.add("GlobalAveragePool", [image[0]])]), image[1])
    text = ("text", 512)
    for _ in range(5):
        text = net.dense(net.dense(text, 1024), 512)
    text = (net.add("ReduceMean", [text[0]], axes=[0], keepdims=1), text[1])
    out = net.add("Mul", [net.dense(image, 256)[0], net.dense(text, 256)[0]])
    net.save(path, {"image": (1, 3, 128, 128), "text": (192, 512)}, [out])


def pyramid(path):
    """A detector's heads: a tower for classes and one for boxes on each of three levels of a backbone."""
    net = Network()
    value, outs = net.conv(("x", 3), 48, stride=2), []
    for _ in range(3):
        value = net.conv(value, 64, stride=2)
        for last in (80, 36):
            head = value
            for _ in range(3):
                head = net.conv(head, 64)
            outs.append(net.conv(head, last)[0])
    net.save(path, {"x": (1, 3, 192, 192)}, outs)


def paths(path):
    """Eight blocks, each of four paths of convolutions of several sizes, added up."""
    net = Network()
    value = net.conv(("x", 3), 64, stride=2)
    for _ in range(8):
        ways = [net.conv(net.conv(value, 32, 1), 64, size)[0] for size in (3, 3, 5, 5)]
        value = (net.add("Sum", [value[0], *ways]), 64)
    net.save(path, {"x": (1, 3, 64, 64)}, [value[0]])


def inception(path):
    """Four modules as GoogLeNet's: a product, two convolutions behind products and a pooled product, side by side."""
    net = Network()
    value = net.conv(net.conv(("x", 3), 64, 7, 2), 192, stride=2)
    for _ in range(4):
        pooled = net.add("MaxPool", [value[0]], kernel_shape=[3, 3], pads=[1] * 4), value[1]
        ways = [
            net.conv(value, 64, 1),
            net.conv(net.conv(value, 96, 1), 128),
            net.conv(net.conv(value, 16, 1), 32, 5),
            net.conv(pooled, 32, 1),
        ]
        value = net.add("Concat", [way[0] for way in ways], axis=1), sum(way[1] for way in ways)
    net.save(path, {"x": (1, 3, 96, 96)}, [value[0]])


def shipped(name):
    """Return a function that writes one of the models in the onnx package."""

    def write(path):
        data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
        path.write_bytes((data / f"light_{name}.onnx").read_bytes())

    return write


NETWORKS = {
    "experts": experts,
    "towers": towers,
    "pyramid": pyramid,
    "paths": paths,
    "inception": inception,
    "squeezenet": shipped("squeezenet"),
}


def write(name, folder):
    """Write a network into a folder; return the file."""
    path = folder / f"{name}.onnx"
    NETWORKS[name](path)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for network in NETWORKS:
        print(write(network, target))
