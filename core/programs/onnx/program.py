"""What an ONNX program is here: the nodes of a file that run, in its order, and what type every value has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from ...errors import FormatError, ProgramError, UsageError

try:
    import onnx
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
    from onnx.external_data_helper import load_external_data_for_tensor
    from onnx.reference import ReferenceEvaluator
except ImportError as error:
    raise UsageError(f"an ONNX model needs onnx and onnxruntime ({error}): pip install 'schedopt[onnx]'") from error

OFFICIAL_DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}
RANDOM_OPS = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
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


@dataclass(frozen=True, eq=False)
class OnnxProgram:
    """An ONNX model whose sizes are all known.

    Parameters
    ----------
    path
        The file.
    model
        As the file has it, external data not loaded.
    inputs, outputs
        Names of what the caller gives, and of what it gets. An initialiser is no input.
    nodes, names
        The nodes that run, in the file's order, and a unique name for each, as `node_names` tells.
    folded
        The nodes whose inputs are all constant, in the file's order.
    constants
        The initialisers, and what the folded nodes give.
    types
        Of every value.
    sizes
        What the caller of the program says that symbolic dimensions are.
    """

    path: str
    model: ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeProto, ...]
    names: tuple[str, ...]
    folded: tuple[NodeProto, ...]
    constants: frozenset[str]
    types: Mapping[str, ValueType]
    sizes: Mapping[str, int]


def load_program(path: str, shapes: Mapping[str, int], note: Callable[[str], None] = lambda text: None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and infer every shape.

    Parameters
    ----------
    path
        The `.onnx` file; its external data are looked for beside it, and not read.
    shapes
        A size for each symbolic dimension, by its name. One without a name is called `INPUT.AXIS`.
    note
        Called with each remark worth showing.

    Raises
    ------
    FormatError
        If the file is missing, truncated or not valid ONNX, or external data are missing.
    ProgramError
        Naming the first node that cannot be scheduled: control flow, custom domains, values that are no tensors, sizes
        that only a run can tell.
    UsageError
        If a symbolic dimension has no size, listing all of them; or a size is for no dimension.
    """
    model = _read(path)
    _check_external_data(path, model)
    _check_valid(path)
    _check_supported(path, model.graph, model)
    skeleton = _skeleton(model, Path(path).parent)
    _give_sizes(path, skeleton.graph, shapes)
    initializers = {tensor.name: ValueType(tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer}
    types = _known_types(path, model.graph, _infer(path, skeleton), initializers)
    graph = model.graph
    folded, constants = _constant_nodes(graph)
    labels = node_names(graph)
    running = [index for index in range(len(graph.node)) if index not in folded]
    if not running:
        raise ProgramError(f"{path}: all nodes are constant, so there is nothing to schedule")
    if folded:
        note(f"{path}: {len(folded)} of {len(graph.node)} nodes are constant; their results count as initialisers")
    return OnnxProgram(
        path=path,
        model=model,
        inputs=tuple(value.name for value in graph.input if value.name not in initializers),
        outputs=tuple(value.name for value in graph.output),
        nodes=tuple(graph.node[index] for index in running),
        names=tuple(labels[index] for index in running),
        folded=tuple(graph.node[index] for index in sorted(folded)),
        constants=frozenset(constants),
        types=types,
        sizes=dict(shapes),
    )


def node_names(graph: GraphProto) -> list[str]:
    """Return a unique name per node: its own, or `OP_INDEX`; a repeated one gets `#INDEX` from the second on."""
    taken = {node.name for node in graph.node}
    names: list[str] = []
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen or (name in taken and name != node.name):
            name += f"#{index}"
        seen.add(name)
        names.append(name)
    return names


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, repeats included; an optional input left out is no value."""
    return (name for name in node.input if name)


def is_random(node: NodeProto) -> bool:
    """Whether a node draws random numbers; a Dropout may, if it has a `training_mode`."""
    return node.op_type in RANDOM_OPS or (node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2]))


def external_files(model: ModelProto) -> list[str]:
    """Return the files, relative to the model's folder, that hold tensors of the model."""
    return list(dict.fromkeys(_external(tensor)["location"] for tensor in _tensors(model.graph) if is_external(tensor)))


def is_external(tensor: TensorProto) -> bool:
    """Whether a tensor's data are in a file of their own."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def is_small_external(tensor: TensorProto) -> bool:
    """Whether a tensor in a file of its own is so small that shapes may depend on its values."""
    return is_external(tensor) and math.prod(tensor.dims) <= LARGEST_EVALUATED


def load_small(model: ModelProto, folder: Path) -> None:
    """Read the small initialisers of a model that are in files of their own into it."""
    for tensor in filter(is_small_external, model.graph.initializer):
        load_external_data_for_tensor(tensor, str(folder))
        tensor.ClearField("data_location")


def _read(path: str) -> ModelProto:
    try:
        model = ModelProto()
        model.ParseFromString(Path(path).read_bytes())
        return model
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DecodeError as error:
        raise FormatError(f"{path}: not an ONNX file, or truncated") from error


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (entry.t for entry in node.attribute if entry.type == AttributeProto.TENSOR)


def _external(tensor: TensorProto) -> dict[str, str]:
    return {"location": "", **{entry.key: entry.value for entry in tensor.external_data}}


def _check_external_data(path: str, model: ModelProto) -> None:
    for tensor in filter(is_external, _tensors(model.graph)):
        where = _external(tensor)
        file = Path(path).parent / where["location"]
        if not file.is_file():
            raise FormatError(f"{path}: tensor '{tensor.name}' is in {file}, which is missing; put it beside the model")
        needed = int(where.get("offset", 0)) + ValueType(tensor.data_type, tuple(tensor.dims)).bytes
        if file.stat().st_size < needed:
            raise FormatError(
                f"{path}: tensor '{tensor.name}' ends at byte {needed} of {file}, which has {file.stat().st_size}: "
                "it is truncated or of another model"
            )


def _check_valid(path: str) -> None:
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        reason = next(line.strip() for line in str(error).splitlines() if line.strip())
        raise FormatError(f"{path}: not a valid ONNX model, or truncated: {reason}") from error


def _check_supported(path: str, graph: GraphProto, model: ModelProto) -> None:
    own = {(function.domain, function.name) for function in model.functions}
    for node, name in zip(graph.node, node_names(graph), strict=True):
        what = f"{path}: node '{name}' ({node.op_type})"
        if (node.domain, node.op_type) in own:
            raise ProgramError(f"{what} calls a function of the model; onnx.inliner.inline_local_functions inlines it")
        if node.domain not in OFFICIAL_DOMAINS:
            raise ProgramError(f"{what} is of the custom domain '{node.domain}', whose shapes ONNX does not define")
        if any(entry.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for entry in node.attribute):
            raise ProgramError(f"{what} is control flow, a graph of its own without a fixed order; export without it")
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ProgramError(f"{path}: initialiser '{name}' is sparse; store it as a dense tensor")


def _skeleton(model: ModelProto, folder: Path) -> ModelProto:
    """Copy a model without the values of its large initialisers, which become inputs: shapes do not depend on them."""
    skeleton = ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.output.extend(ValueInfoProto(name=value.name) for value in model.graph.output)
    initializers = {tensor.name for tensor in model.graph.initializer}
    graph.input.extend(value for value in model.graph.input if value.name not in initializers)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= LARGEST_EVALUATED:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    load_small(skeleton, folder)
    return skeleton


def _give_sizes(path: str, graph: GraphProto, shapes: Mapping[str, int]) -> None:
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


def _constant_nodes(graph: GraphProto) -> tuple[set[int], set[str]]:
    """Return the indices of the nodes whose inputs are all constant, and the names of all constants."""
    constants = {tensor.name for tensor in graph.initializer}
    folded = set()
    for index, node in enumerate(graph.node):
        if not is_random(node) and constants.issuperset(reads(node)):
            folded.add(index)
            constants.update(filter(None, node.output))
    return folded, constants


def _infer(path: str, skeleton: ModelProto) -> dict[str, TypeProto]:
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
        raise FormatError(f"{path}: shapes cannot be inferred: {' '.join(str(error).split())}") from error


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
        raise ProgramError(f"{path}: the constant '{name}' ({node.op_type}) cannot be computed: {error}") from error
    values[name] = np.asarray(next(iter(results)))
    return True


def _value_type(type_: TypeProto) -> ValueType:
    tensor = type_.tensor_type
    return ValueType(tensor.elem_type, tuple(dimension.dim_value for dimension in tensor.shape.dim))


def _kind(type_: TypeProto) -> str:
    return (type_.WhichOneof("value") or "unknown").removesuffix("_type").replace("_", " ")


def _known_types(
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
