"""Small ONNX models that tests build."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def value(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, inputs, outputs, constants=None, **fields):
    """A model of nodes; `constants` are arrays by name."""
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (constants or {}).items())
    domains = {"", *(node.domain for node in nodes)}
    opsets = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in sorted(domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **fields)


def save(path, model):
    path.write_bytes(model.SerializeToString())
    return str(path)


def branches(depth=3, width=64):
    """Branches of convolutions that grow before they shrink, merged at the end: the order of the branches matters."""
    random = np.random.default_rng(0)
    constants = {"shape": np.array([1, -1], np.int64)}
    nodes, merged = [], []
    for branch in range(depth):
        last, channels = "x", 4
        for step, growth in enumerate((4, 16, 4)):
            weight, out = f"w{branch}{step}", f"c{branch}{step}"
            constants[weight] = random.standard_normal((growth, channels, 3, 3)).astype(np.float32)
            nodes.append(helper.make_node("Conv", [last, weight], [out], f"conv{branch}{step}", pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [out], [f"r{branch}{step}"], f"relu{branch}{step}"))
            last, channels = f"r{branch}{step}", growth
        merged.append(last)
    by_level = [node for step in range(3) for node in nodes if node.name[-1] == str(step)]
    tail = [
        helper.make_node("Concat", merged, ["merged"], "concat", axis=1),
        helper.make_node("GlobalAveragePool", ["merged"], ["pooled"], "pool"),
        helper.make_node("Reshape", ["pooled", "shape"], ["y"], "flat"),
    ]
    inputs, outputs = [value("x", [1, 4, width, width])], [value("y", [1, 4 * depth])]
    return model_of(by_level + tail, inputs, outputs, constants, producer_name="tests")


def narrowed(widths=(64, 48, 32, 16), size=64):
    """Convolutions that widen one image, each narrowed by another: the default order is not the best one."""
    random, nodes, constants = np.random.default_rng(0), [], {}
    for at, width in enumerate(widths):
        constants[f"a{at}"] = random.standard_normal((width, 3, 3, 3)).astype(np.float32)
        constants[f"b{at}"] = random.standard_normal((8, width, 1, 1)).astype(np.float32)
        nodes.append(helper.make_node("Conv", ["x", f"a{at}"], [f"w{at}"], f"wide{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Conv", [f"w{at}", f"b{at}"], [f"n{at}"], f"narrow{at}"))
    nodes.append(helper.make_node("Concat", [f"n{at}" for at in range(len(widths))], ["y"], "join", axis=1))
    outputs = [value("y", [1, 8 * len(widths), size, size])]
    return model_of(nodes, [value("x", [1, 3, size, size])], outputs, constants)


def random_model(seed, ops=14):
    """A random graph of unary, binary, view and growing ops on tensors of 64 KiB and more."""
    random = np.random.default_rng(seed)
    constants = {"axis": np.array([0], np.int64)}
    shapes = {"x": (1, 8, 64, 64), "u": (1, 8, 64, 64)}
    nodes = []
    for index in range(ops):
        source = str(random.choice(list(shapes)[-5:]))
        kind = str(random.choice(["Relu", "Sigmoid", "Neg", "Transpose", "Add", "Concat", "Reshape", "Conv"]))
        name = f"t{index}"
        partners = [other for other, shape in shapes.items() if shape == shapes[source]]
        shape = shapes[source]
        if kind == "Add":
            nodes.append(helper.make_node("Add", [source, str(random.choice(partners))], [name]))
        elif kind == "Concat":
            nodes.append(helper.make_node("Concat", [source, str(random.choice(partners))], [name], axis=1))
            shape = (1, 2 * shape[1], *shape[2:])
        elif kind == "Transpose":
            nodes.append(helper.make_node("Transpose", [source], [name], perm=[0, 1, 3, 2]))
        elif kind == "Reshape":
            constants[f"s{index}"] = np.array(shape, np.int64)
            nodes.append(helper.make_node("Reshape", [source, f"s{index}"], [name]))
        elif kind == "Conv":
            weight = random.standard_normal((8, shape[1], 3, 3)).astype(np.float32)
            constants[f"w{index}"] = weight
            nodes.append(helper.make_node("Conv", [source, f"w{index}"], [name], pads=[1, 1, 1, 1]))
            shape = (1, 8, *shape[2:])
        else:
            nodes.append(helper.make_node(kind, [source], [name]))
        shapes[name] = shape
    read = {name for node in nodes for name in node.input}
    outputs = [value(name, shape) for name, shape in shapes.items() if name.startswith("t") and name not in read]
    return model_of(nodes, [value("x", shapes["x"]), value("u", shapes["u"])], outputs, constants)


def with_control_flow(size=16):
    """A loop, and a choice that reads a value from outside; each branch holds a weight of its own."""
    branches = []
    for name, op in (("then", "Add"), ("else", "Mul")):
        weight = numpy_helper.from_array(np.ones((size, size), np.float32), f"{name}_weight")
        inner = helper.make_node(op, ["a", f"{name}_weight"], [f"{name}_result"], f"{name}_op")
        branches.append(helper.make_graph([inner], name, [], [value(f"{name}_result", [size, size])], [weight]))
    condition, step = value("go", [], TensorProto.BOOL), value("step", [], TensorProto.INT64)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["state"], ["next"], "sine")],
        "body",
        [step, condition, value("state", [size, size])],
        [value("on", [], TensorProto.BOOL), value("next", [size, size])],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "negate"),
        helper.make_node("If", ["c"], ["b"], "choose", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Loop", ["three", "true", "b"], ["d"], "repeat", body=body),
        helper.make_node("Add", ["d", "a"], ["y"], "sum"),
    ]
    constants = {"three": np.array(3, np.int64), "true": np.array(True)}
    inputs = [value("x", [size, size]), value("c", [], TensorProto.BOOL)]
    return model_of(nodes, inputs, [value("y", [size, size])], constants)


def with_function(size=16):
    """Two calls of a function of the model."""
    add = helper.make_node("Add", ["a", "a"], ["b"])
    function = helper.make_function("local", "Twice", ["a"], ["b"], [add], [helper.make_opsetid("", OPSET)])
    calls = [
        helper.make_node("Twice", ["x"], ["t"], "call", domain="local"),
        helper.make_node("Twice", ["t"], ["y"], "again", domain="local"),
    ]
    return model_of(calls, [value("x", [size])], [value("y", [size])], functions=[function])


def random_calls(seed, element=TensorProto.FLOAT, ops=16, shape=(2, 4)):
    """Calls of functions that call functions, ops without a kernel and branches, in a random order of the file."""
    random, opsets, node = np.random.default_rng(seed), [helper.make_opsetid("", OPSET)], helper.make_node
    opsets.append(helper.make_opsetid("own", 1))
    late = [node("Relu", ["b"], ["t"]), node("Add", ["a", "t"], ["c"])]
    deep = [node("HardSwish", ["b"], ["t"]), node("Late", ["t", "a"], ["c"], domain="own")]
    bodies = {"Late": late, "Deep": deep}
    functions = [helper.make_function("own", name, "ab", "c", nodes, opsets) for name, nodes in bodies.items()]
    names, nodes = ["x"], []
    for name in (f"n{op}" for op in range(ops)):
        kind = random.choice(["Add", "Sub", "Relu", "HardSwish", "Late", "Deep", "If"])
        read = [str(random.choice(names[-6:])) for _ in range(1 if kind in ("Relu", "HardSwish") else 2)]
        if kind == "If":
            results = [f"{name}{at}" for at in range(2)]
            branches = [
                helper.make_graph([node("Neg", [value_], [result])], "g", [], [value(result, shape, element)])
                for value_, result in zip(read, results, strict=True)
            ]
            nodes.append(node("If", ["c"], [name], name, then_branch=branches[0], else_branch=branches[1]))
        else:
            nodes.append(node(kind, read, [name], name, domain="own" * (kind in bodies)))
        names.append(name)
    read = {name for node in nodes for name in node.input}
    ends = [value(name, shape, element) for name in names[1:] if name not in read]
    random.shuffle(nodes)
    return model_of(nodes, [value("x", shape, element)], ends, {"c": np.array(True)}, functions=functions)


def quantized(channels=16, width=16):
    """A convolution with weights of a byte each, between Quantize and Dequantize nodes, as quantisers write it."""
    random = np.random.default_rng(0)
    scales = {"xs": np.array(0.05, np.float32), "ws": np.array(0.01, np.float32), "ys": np.array(0.1, np.float32)}
    weight = random.integers(-100, 100, (channels, channels, 3, 3)).astype(np.int8)
    constants = {**scales, "w": weight, "zero": np.array(0, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "zero"], ["xq"], "quantize"),
        helper.make_node("DequantizeLinear", ["xq", "xs", "zero"], ["xd"], "dequantize"),
        helper.make_node("DequantizeLinear", ["w", "ws", "zero"], ["wd"], "dequantize_weight"),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "ys", "zero"], ["cq"], "quantize_result"),
        helper.make_node("DequantizeLinear", ["cq", "ys", "zero"], ["y"], "dequantize_result"),
    ]
    shape = [1, channels, width, width]
    return model_of(nodes, [value("x", shape)], [value("y", shape)], constants)


def with_shape_arithmetic(batch=4):
    """A reshape to sizes that nodes compute of the input's, and a constant that they fill."""
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"], "dims"),
        helper.make_node("Gather", ["dims", "first"], ["batch"], "batch"),
        helper.make_node("Concat", ["batch", "rest"], ["shape"], "shape", axis=0),
        helper.make_node("Where", ["flag", "shape", "shape"], ["chosen"], "choose"),
        helper.make_node("Reshape", ["x", "chosen"], ["r"], "reshape"),
        helper.make_node("ConstantOfShape", ["shape2"], ["ones"], "fill", value=helper.make_tensor("v", 1, [1], [1.0])),
        helper.make_node("MatMul", ["r", "ones"], ["y"], "product"),
    ]
    constants = {"first": [0], "rest": [2, -1], "shape2": [3, 5], "flag": True}
    constants = {name: np.array(values) for name, values in constants.items()}
    return model_of(nodes, [value("x", [batch, 6])], [value("y", [batch, 2, 5])], constants)
