"""The type and shape of every value of an ONNX graph: inferred, and evaluated where shapes depend on values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
from onnx.reference import ReferenceEvaluator

from ...errors import FormatError, ProgramError, UsageError
from .nodes import node_names, reads

SHAPE_ARITHMETIC = {
    *("Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Floor"),
    *(
        "Gather",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
    ),
    *("Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Sqrt", "Squeeze"),
    *("Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
}
PACKED = {TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1}
LARGEST_EVALUATED = 1024


class ValueType(NamedTuple):
    """Element type (of `TensorProto`) and shape of a tensor."""

    element: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes; elements of less than a byte are packed."""
        bits = 4 if self.element in PACKED else 8 * onnx.helper.tensor_dtype_to_np_dtype(self.element).itemsize
        return int(self.elements * bits + 7) // 8


def give_sizes(path: str, graph: GraphProto, shapes: Mapping[str, int]) -> None:
    """Write the sizes of symbolic dimensions into the inputs' types."""
    wanted: dict[str, None] = {}
    for value in graph.input:
        if not value.type.HasField("tensor_type"):
            raise ProgramError(f"{path}: input '{value.name}' is no tensor but {_kind(value.type)}, which has no size")
        if not value.type.tensor_type.HasField("shape"):
            raise ProgramError(f"{path}: input '{value.name}' has no shape; export the model with one")
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.HasField("dim_value"):
                continue
            name = dimension.dim_param or f"{value.name}.{axis}"
            wanted[name] = None
            if name in shapes:
                dimension.dim_value = shapes[name]
    if unknown := [name for name in shapes if name not in wanted]:
        have = f"it has {', '.join(wanted)}" if wanted else "all its dimensions have sizes"
        raise UsageError(f"{path}: the model has no symbolic dimension '{unknown[0]}'; {have}")
    if missing := [name for name in wanted if name not in shapes]:
        options = " ".join(f"--shape {name}=VALUE" for name in missing)
        raise UsageError(f"{path}: some dimensions have no size; give {options}")


def infer(path: str, skeleton: ModelProto) -> dict[str, TypeProto]:
    """Infer the type of every value, evaluating what shapes depend on until that tells no more."""
    graph = skeleton.graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    while True:
        inferred = _inferred(path, skeleton)
        types = {value.name: value.type for value in _values(inferred.graph)}
        produced = {name for node in graph.node for name in node.output if name}
        if all(name in types and _is_known(types[name]) for name in produced):
            return types
        nodes = list(graph.node)
        evaluated = [index for index, node in enumerate(nodes) if _evaluate(path, node, skeleton, types, values)]
        if not evaluated:
            _inferred(path, skeleton, is_strict=True)
            return types
        graph.ClearField("node")
        graph.node.extend(node for index, node in enumerate(nodes) if index not in set(evaluated))
        for index in evaluated:
            name = nodes[index].output[0]
            graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))


def _inferred(path: str, model: ModelProto, is_strict: bool = False) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=is_strict)
    except onnx.shape_inference.InferenceError as error:
        raise FormatError(f"{path}: shapes cannot be inferred: {' '.join(str(error).split())}") from None


def _values(graph: GraphProto) -> Iterator[ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info
    for tensor in graph.initializer:
        yield onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)


def _is_known(type_: TypeProto) -> bool:
    tensor = type_.tensor_type
    return (
        type_.HasField("tensor_type")
        and tensor.HasField("shape")
        and all(dimension.HasField("dim_value") for dimension in tensor.shape.dim)
    )


def _evaluate(
    path: str, node: NodeProto, model: ModelProto, types: Mapping[str, TypeProto], values: dict[str, NDArray[Any]]
) -> bool:
    """Add to `values` what a node of shape arithmetic gives, if that is small and all that it needs is there."""
    name = node.output[0]
    if name in types and _is_known(types[name]) and _value_type(types[name]).elements > LARGEST_EVALUATED:
        return False
    given = {}
    for source in reads(node):
        if node.op_type in ("Shape", "Size") and source in types and _is_known(types[source]):
            given[source] = np.broadcast_to(np.float32(0), _value_type(types[source]).shape)
        elif node.op_type in SHAPE_ARITHMETIC and source in values:
            given[source] = values[source]
        else:
            return False
    if node.op_type not in ("Shape", "Size", *SHAPE_ARITHMETIC):
        return False
    inputs = [ValueInfoProto(name=source) for source in given]
    graph = onnx.helper.make_graph([node], "one", inputs, [ValueInfoProto(name=name)])
    one = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        results = ReferenceEvaluator(one).run(None, given)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ProgramError(f"{path}: the constant '{name}' ({node.op_type}) cannot be computed: {error}") from None
    values[name] = np.asarray(next(iter(results)))
    return True


def _value_type(type_: TypeProto) -> ValueType:
    tensor = type_.tensor_type
    return ValueType(tensor.elem_type, tuple(dimension.dim_value for dimension in tensor.shape.dim))


def _kind(type_: TypeProto) -> str:
    return (type_.WhichOneof("value") or "unknown").removesuffix("_type").replace("_", " ")


def known_types(
    path: str, graph: GraphProto, types: Mapping[str, TypeProto], initializers: Mapping[str, ValueType]
) -> dict[str, ValueType]:
    """Return every value's type; the first whose size cannot be told is an error that names its node."""
    known = {name: _value_type(type_) for name, type_ in types.items() if _is_known(type_)}
    known.update(initializers)
    for value in (*graph.value_info, *graph.output):  # what the file says, where ONNX cannot infer it
        if _is_known(value.type):
            known.setdefault(value.name, _value_type(value.type))
    for node, label in zip(graph.node, node_names(graph), strict=True):
        for name in filter(None, node.output):
            what = f"{path}: node '{label}' ({node.op_type})"
            if name in types and not types[name].HasField("tensor_type") and types[name].WhichOneof("value"):
                raise ProgramError(f"{what} gives no tensor but {_kind(types[name])} '{name}', which has no size")
            if node.op_type == "Dropout":  # before opset 10 ONNX does not infer the type of the mask
                known.setdefault(name, known[node.output[0]])
            if name not in known:
                raise ProgramError(f"{what}: only a run tells the size of '{name}'; export with fixed shapes")
            if known[name].element == TensorProto.STRING:
                raise ProgramError(f"{what} gives text '{name}', which has no fixed size; leave it out of the model")
    return known
