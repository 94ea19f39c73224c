"""Small TFLite models that tests build by flatbuffers, operator by operator."""

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
    grown = [
        main.apply("CONCATENATION", [source] * (4 + n), [1, (4 + n) * width], name=f"grow{n}", Axis=1)
        for n in range(count)
    ]
    shrunk = [
        main.apply("MEAN", [tensor, axis], [1, 1], name=f"shrink{n}", KeepDims=True) for n, tensor in enumerate(grown)
    ]
    main.outputs = [main.apply("CONCATENATION", shrunk, [1, count], name=name, Axis=1)]
    return model
