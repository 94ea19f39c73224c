"""Small TFLite models that tests build by flatbuffers, operator by operator."""

import struct
from importlib import import_module

import flatbuffers
import numpy as np
import tflite

TYPES = {"float32": "FLOAT32", "int32": "INT32", "int8": "INT8", "bool": "BOOL", "int64": "INT64"}


def schema_table(builder, name, **fields):
    """A table of the schema by the generated functions of the `tflite` package."""
    module = import_module(f"tflite.{name}")
    module.Start(builder)
    for field, value in fields.items():
        getattr(module, f"Add{field}")(builder, value)
    return module.End(builder)


def integers(builder, values):
    return builder.CreateNumpyVector(np.array(values, np.int32))


def offsets(builder, values):
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependUOffsetTRelative(value)
    return builder.EndVector()


class Subgraph:
    """Tensors and operators, named by the indices that adding them returns."""

    def __init__(self, model):
        self.model = model
        self.tensors, self.operators, self.inputs, self.outputs = [], [], [], []

    def tensor(self, shape, kind="float32", name=None, variable=False, scale=None):
        self.tensors.append((list(shape), kind, name or f"t{len(self.tensors)}", 0, variable, scale))
        return len(self.tensors) - 1

    def constant(self, array, name=None, scale=None):
        array = np.asarray(array)
        self.model.buffers.append(array.tobytes())
        name = name or f"c{len(self.tensors)}"
        self.tensors.append((list(array.shape), array.dtype.name, name, len(self.model.buffers) - 1, False, scale))
        return len(self.tensors) - 1

    def input(self, shape, kind="float32", name="x", scale=None):
        tensor = self.tensor(shape, kind, name, scale=scale)
        self.inputs.append(tensor)
        return tensor

    def op(self, kind, inputs, outputs, custom=None, **options):
        self.operators.append((self.model.code(kind, custom), kind, inputs, outputs, options))

    def apply(self, kind, inputs, shape, dtype="float32", name=None, **options):
        """Add an operator with one output, and return that."""
        result = self.tensor(shape, dtype, name)
        self.op(kind, inputs, [result], **options)
        return result


OPTIONS = {
    "ADD": "AddOptions",
    "CALL_ONCE": "CallOnceOptions",
    "CONCATENATION": "ConcatenationOptions",
    "IF": "IfOptions",
    "MEAN": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "SVDF": "SVDFOptions",
    "VAR_HANDLE": "VarHandleOptions",
    "WHILE": "WhileOptions",
}


class Model:
    """Subgraphs, buffers and operator codes."""

    def __init__(self):
        self.buffers, self.codes, self.subgraphs, self.metadata = [b""], [], [], []

    def subgraph(self):
        self.subgraphs.append(Subgraph(self))
        return self.subgraphs[-1]

    def code(self, kind, custom=None):
        if (kind, custom) not in self.codes:
            self.codes.append((kind, custom))
        return self.codes.index((kind, custom))

    def build(self):
        """The bytes of the file."""
        builder = flatbuffers.Builder(1024)
        buffers = [self._buffer(builder, data) for data in self.buffers]
        codes = [self._code(builder, *code) for code in self.codes]
        subgraphs = [self._subgraph(builder, subgraph) for subgraph in self.subgraphs]
        metadata = []
        for name, buffer in self.metadata:
            text = builder.CreateString(name)
            metadata.append(schema_table(builder, "Metadata", Name=text, Buffer=buffer))
        lists = {
            "Buffers": offsets(builder, buffers),
            "OperatorCodes": offsets(builder, codes),
            "Subgraphs": offsets(builder, subgraphs),
            "Metadata": offsets(builder, metadata),
            "Description": builder.CreateString("tests"),
        }
        builder.Finish(schema_table(builder, "Model", Version=3, **lists), b"TFL3")
        return bytes(builder.Output())

    def _buffer(self, builder, data):
        if not data:
            return schema_table(builder, "Buffer")
        builder.StartVector(1, len(data), 16)
        builder.head = builder.Head() - len(data)
        builder.Bytes[builder.Head() : builder.Head() + len(data)] = data
        return schema_table(builder, "Buffer", Data=builder.EndVector())

    def _code(self, builder, kind, custom):
        number = getattr(tflite.BuiltinOperator, kind)
        fields = {"BuiltinCode": number, "DeprecatedBuiltinCode": min(number, 127), "Version": 1}
        if custom:
            fields["CustomCode"] = builder.CreateString(custom)
        return schema_table(builder, "OperatorCode", **fields)

    def _subgraph(self, builder, subgraph):
        tensors = [self._tensor(builder, *tensor) for tensor in subgraph.tensors]
        operators = [self._operator(builder, *operator) for operator in subgraph.operators]
        fields = {
            "Tensors": offsets(builder, tensors),
            "Operators": offsets(builder, operators),
            "Inputs": integers(builder, subgraph.inputs),
            "Outputs": integers(builder, subgraph.outputs),
            "Name": builder.CreateString("main"),
        }
        return schema_table(builder, "SubGraph", **fields)

    def _tensor(self, builder, shape, kind, name, buffer, variable, scale):
        number = getattr(tflite.TensorType, TYPES.get(kind, kind))
        fields = {"Shape": integers(builder, shape), "Name": builder.CreateString(name)}
        if scale is not None:
            scales = builder.CreateNumpyVector(np.array([scale], np.float32))
            zeros = builder.CreateNumpyVector(np.array([0], np.int64))
            fields["Quantization"] = schema_table(builder, "QuantizationParameters", Scale=scales, ZeroPoint=zeros)
        return schema_table(builder, "Tensor", Type=number, Buffer=buffer, IsVariable=variable, **fields)

    def _operator(self, builder, code, kind, inputs, outputs, options):
        fields = {"Inputs": integers(builder, inputs), "Outputs": integers(builder, outputs)}
        if kind in OPTIONS:
            texts = {name: builder.CreateString(value) for name, value in options.items() if isinstance(value, str)}
            fields["BuiltinOptions"] = schema_table(builder, OPTIONS[kind], **{**options, **texts})
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, OPTIONS[kind])
        return schema_table(builder, "Operator", OpcodeIndex=code, **fields)


def branches(count=3, width=64, name="y"):
    """Branches that grow before they shrink, level by level in the file: one after the other takes less."""
    model = Model()
    main = model.subgraph()
    source = main.input([1, width])
    axis = main.constant(np.array([1], np.int32), "axis")
    shapes = [[1, (4 + n) * width] for n in range(count)]
    grown = [
        main.apply("CONCATENATION", [source] * (4 + n), shape, name=f"grow{n}", Axis=1)
        for n, shape in enumerate(shapes)
    ]
    shrunk = [
        main.apply("MEAN", [made, axis], [1, 1], name=f"shrink{n}", KeepDims=True) for n, made in enumerate(grown)
    ]
    main.outputs = [main.apply("CONCATENATION", shrunk, [1, count], name=name, Axis=1)]
    return model


def random_model(seed, ops=12):
    """A random graph of operators that grow, shrink, reshape and add, with several readers and outputs."""
    random = np.random.default_rng(seed)
    model = Model()
    main = model.subgraph()
    axis = main.constant(np.array([1], np.int32), "axis")
    widths = {main.input([1, 16], name="x"): 16, main.input([1, 32], name="u"): 32}
    for number in range(ops):
        source = int(random.choice(list(widths)[-5:]))
        width, kind = widths[source], str(random.choice(["grow", "shrink", "reshape", "add"]))
        if kind == "grow" and width <= 512:
            others = [tensor for tensor in widths if random.random() < 0.3][:3]
            total = width + sum(widths[tensor] for tensor in others)
            result = main.apply("CONCATENATION", [source, *others], [1, total], name=f"grow{number}", Axis=1)
            widths[result] = total
        elif kind == "shrink":
            widths[main.apply("MEAN", [source, axis], [1, 1], name=f"shrink{number}", KeepDims=True)] = 1
        elif kind == "reshape":
            shape = main.constant(np.array([1, width], np.int32))
            widths[main.apply("RESHAPE", [source, shape], [1, width], name=f"reshape{number}")] = width
        else:
            other = int(random.choice([tensor for tensor in widths if widths[tensor] in (1, width)]))
            widths[main.apply("ADD", [source, other], [1, width], name=f"add{number}")] = width
    read = {tensor for _, _, inputs, _, _ in main.operators for tensor in inputs}
    made = [outputs[0] for _, _, _, outputs, _ in main.operators]
    main.outputs = [tensor for tensor in made if tensor not in read] + [made[ops // 2]] * (made[ops // 2] in read)
    return model


def repeated():
    """A large tensor that is read at the beginning and at the end, and cheap to compute: running it again saves it."""
    model = Model()
    main = model.subgraph()
    axis = main.constant(np.array([1], np.int32), "axis")
    source = main.input([1, 16])
    large = main.apply("CONCATENATION", [source] * 10, [1, 160], name="large", Axis=1)
    first = main.apply("MEAN", [large, axis], [1, 1], name="first", KeepDims=True)
    middle = main.apply("CONCATENATION", [first] * 10, [1, 10], name="middle", Axis=1)
    wide = main.apply("CONCATENATION", [middle] * 8, [1, 80], name="wide", Axis=1)
    other = main.apply("CONCATENATION", [wide] * 8, [1, 640], name="other", Axis=1)
    small = main.apply("MEAN", [other, axis], [1, 1], name="small", KeepDims=True)
    second = main.apply("ADD", [large, small], [1, 160], name="second")
    main.outputs = [main.apply("MEAN", [second, axis], [1, 1], name="y", KeepDims=True)]
    return model


def control_flow():
    """An operator that runs one of two subgraphs, between two others."""
    model = Model()
    main = model.subgraph()
    chosen, source = main.input([1], "bool", "chosen"), main.input([1, 64])
    wide = main.apply("CONCATENATION", [source, source], [1, 128], name="wide", Axis=1)
    side = main.apply("CONCATENATION", [source, source], [1, 128], name="side", Axis=1)
    result = main.apply("IF", [chosen, wide], [1, 128], name="if", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    main.outputs = [main.apply("ADD", [result, side], [1, 128], name="y")]
    for times in (2, 3):
        called = model.subgraph()
        given = called.input([1, 128])
        grown = called.apply("CONCATENATION", [given] * times, [1, 128 * times], Axis=1)
        mean = called.apply("MEAN", [grown, called.constant(np.array([1], np.int32))], [1, 1], KeepDims=True)
        called.outputs = [called.apply("ADD", [given, mean], [1, 128])]
    return model


def stateful(count=2):
    """Filters that each keep a state in a variable tensor, side by side, each of a growing tensor."""
    model = Model()
    main = model.subgraph()
    source, random = main.input([1, 8]), np.random.default_rng(1)
    wide = [main.apply("CONCATENATION", [source] * 8, [1, 64], name=f"wide{n}", Axis=1) for n in range(count)]
    results = []
    for number, tensor in enumerate(wide):
        features = main.constant(random.standard_normal((6, 64)).astype(np.float32))
        times = main.constant(random.standard_normal((6, 5)).astype(np.float32))
        bias = main.constant(np.zeros(3, np.float32))
        state = main.tensor([1, 30], name=f"state{number}", variable=True)
        inputs = [tensor, features, times, bias, state]
        results.append(main.apply("SVDF", inputs, [1, 3], name=f"filter{number}", Rank=2))
    main.outputs = [main.apply("CONCATENATION", results, [1, 3 * count], name="y", Axis=1)]
    return model


def with_variables():
    """A counter in a resource variable: read, added to, assigned, and read again."""
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4])
    handle = main.apply("VAR_HANDLE", [], [1], "RESOURCE", name="handle", Container="", SharedName="counter")
    before = main.apply("READ_VARIABLE", [handle], [1, 4], name="before")
    more = main.apply("ADD", [before, source], [1, 4], name="more")
    main.op("ASSIGN_VARIABLE", [handle, more], [])
    after = main.apply("READ_VARIABLE", [handle], [1, 4], name="after")
    main.outputs = [main.apply("ADD", [after, source], [1, 4], name="y")]
    return model


def with_plan():
    """A model that has an offline plan already, of one tensor; the runtime plans the others."""
    model = branches(count=2)
    main = model.subgraphs[0]
    plan = [-1] * len(main.tensors)
    plan[main.inputs[0]] = 4096
    model.buffers.append(struct.pack(f"<{3 + len(plan)}i", 1, 0, len(plan), *plan))
    model.metadata.append(("OfflineMemoryAllocation", len(model.buffers) - 1))
    return model


def run_here(monkeypatch, *modules):
    """Let modules of core/programs run TFLite files in this process: one of its own takes most of the time."""
    from schedopt.core.programs.tflite.interpreter import least_arena, run_each, run_file
    from schedopt.core.programs.tflite.runtime import LEAST, TfliteRuntime

    asked = {TfliteRuntime.runs: run_file, LEAST: least_arena, "tflite.interpreter:run_each": run_each}
    for module in modules:
        name = f"schedopt.core.programs.{module}.ask"
        monkeypatch.setattr(name, lambda function, question, about=None, seconds=None: asked[function](**question))
