"""An ONNX graph: the inputs of its nodes, their inner graphs, and the types of its values."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto
from onnx.reference import ReferenceEvaluator

from ...base.errors import FormatError, ProgramError, UsageError
from ..options import Size, size_text

RANDOM_OPS = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_LATEST = 10_000
OFFICIAL_DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}
VIEWS = {"Flatten", "Reshape", "Squeeze", "Unsqueeze"}
WITHOUT_KERNEL = {
    *("Bernoulli", "CastLike", "CausalConvWithState", "CenterCropPad", "GroupNormalization", "HardSwish"),
    *("LinearAttention", "Mish", "NegativeLogLikelihoodLoss", "SequenceMap", "SoftmaxCrossEntropyLoss"),
    *("SwiGLU", "Swish"),
}
"""Ops for which ONNX Runtime has no kernel on a CPU: it runs the nodes of their definitions instead."""


def node_names(graph: GraphProto) -> list[str]:
    """Return a unique name per node: its own, or `OP_INDEX`; a repeated one gets `#INDEX` from the second on."""
    taken = {node.name for node in graph.node}
    names: dict[str, None] = {}
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in names or (name in taken and name != node.name):
            name += f"#{index}"
        names[name] = None
    return list(names)


def default_order(nodes: Sequence[NodeProto], places: Sequence[int] | None = None) -> list[int]:
    """Return nodes in the order in which ONNX Runtime runs them by default: depth first from the ends, the last first.

    With `places` they are in the order of these, each after what it reads.
    """
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    read = [{makers[name] for name in reads(node) if name in makers} for node in nodes]
    latest_first = [sorted(found, reverse=True) for found in (*read, set(range(len(read))).difference(*read))]
    if places is not None:
        latest_first[-1] = sorted(range(len(read)), key=places.__getitem__)
    *order, _ = nx.dfs_postorder_nodes(nx.DiGraph(dict(enumerate(latest_first))), len(read))
    return [*order, *sorted({*range(len(read))}.difference(order))]


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, repeats included; outer values of its graphs come last, once."""
    yield from (name for name in node.input if name)
    captured = dict.fromkeys(name for graph in subgraphs(node) for name in _captured(graph))
    yield from (name for name in captured if name not in node.input)


def is_view(node: NodeProto) -> bool:
    """Whether the output of a node is its input's buffer."""
    return node.op_type in VIEWS and node.domain in OFFICIAL_DOMAINS


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that are attributes of a node: the branches of an If, the body of a Loop or Scan."""
    for entry in node.attribute:
        if entry.type == onnx.AttributeProto.GRAPH:
            yield entry.g
        elif entry.type == onnx.AttributeProto.GRAPHS:
            yield from entry.graphs


def has_subgraphs(node: NodeProto) -> bool:
    """Whether graphs are attributes of a node."""
    return next(subgraphs(node), None) is not None


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def own_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensors that a node holds itself: its attributes, and the initialisers of the graphs in it."""
    for entry in node.attribute:
        yield from (*entry.tensors, *([entry.t] if entry.HasField("t") else ()))
    for graph in subgraphs(node):
        yield from graph.initializer


def opaque_in(model: ModelProto) -> Callable[[NodeProto], bool]:
    """Return the test of opaque nodes, which ONNX does not describe: control flow, functions, custom, unknown ops."""
    functions = set(functions_of(model))
    versions = {opset.domain: opset.version for opset in model.opset_import}

    def is_opaque(node: NodeProto) -> bool:
        is_own = ("" if node.domain == "ai.onnx" else node.domain, node.op_type) in functions
        is_official = node.domain in OFFICIAL_DOMAINS and is_known(node, versions)
        return is_own or has_subgraphs(node) or not is_official

    return is_opaque


def is_known(node: NodeProto, versions: Mapping[str, int]) -> bool:
    """Whether ONNX has an op of this name and domain, at the version that a model imports."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = versions.get(domain, versions.get(node.domain, 1))
    return bool(onnx.defs.has(node.op_type, max_inclusive_version=max(1, min(version, _LATEST)), domain=domain))


def functions_of(model: ModelProto) -> dict[tuple[str, str], onnx.FunctionProto]:
    """Return a model's own functions, by domain and name."""
    return {(function.domain, function.name): function for function in model.functions}


def random_in(model: ModelProto) -> Callable[[NodeProto], bool]:
    """Return the test of nodes that draw random numbers, in their graphs or functions perhaps."""
    functions = functions_of(model)
    seen: set[tuple[str, str]] = set()

    def is_random(node: NodeProto) -> bool:
        key = (node.domain, node.op_type)
        if key in functions and key not in seen:
            seen.add(key)
            found = any(map(is_random, functions[key].node))
            seen.remove(key)
            return found
        inner = any(is_random(other) for graph in subgraphs(node) for other in graph.node)
        drops = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
        return inner or drops or node.op_type in RANDOM_OPS

    return is_random


def renamed(node: NodeProto, name: str, values: Mapping[str, str]) -> NodeProto:
    """Return a copy of a node with this name, in which it and the graphs inside of it read and give other values."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.name = name
    _rename(copy, values)
    return copy


def _rename(node: NodeProto, values: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        names[:] = [values.get(value, value) for value in names]
    for graph in subgraphs(node):
        outer = {value: values[value] for value in _captured(graph) if value in values}
        for inner in graph.node:
            _rename(inner, outer)
        for result in graph.output:
            result.name = outer.get(result.name, result.name)


def _captured(graph: GraphProto) -> Iterator[str]:
    """Yield the outer values that a graph inside of a node reads."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    yield from (name for node in graph.node for name in reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


SHAPE_ARITHMETIC = {
    *("Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand"),
    *("Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul"),
    *("Neg", "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice"),
    *("Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
}
PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}  # bits of the elements that share a byte
_LONGEST = 300
LARGEST_EVALUATED = 1024
LONGEST_LIST = 1_000_000  # of numbers that ONNX may take for a shape; it needs some fifty bytes for each


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
        return bytes_of(self.element, self.shape)


def is_element(number: int) -> bool:
    """Whether a number stands for a type of elements in `TensorProto`."""
    return number != TensorProto.UNDEFINED and number in TensorProto.DataType.values()


def bits_of(element: int) -> int:
    """Return the bits of an element of a type of `TensorProto`."""
    packed = PACKED.get(TensorProto.DataType.Name(element))
    return packed or 8 * int(onnx.helper.tensor_dtype_to_np_dtype(element).itemsize)


def bytes_of(element: int, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor of an element type of `TensorProto`."""
    return int(math.prod(shape) * bits_of(element) + 7) // 8


def one_line(error: Exception) -> str:
    """Return the first thing that an error of ONNX says, which may list all nodes, one after the other."""
    text = " ".join(str(error).split())
    second = text.find("(op_type:", text.find("(op_type:") + 1)
    text = text[:second].strip(" ,;") if second > 0 else text
    context = text.find("==> Context:", 1)
    text = text[:context].strip() if context > 0 else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def infer(path: str, skeleton: ModelProto, *, is_strict: bool) -> dict[str, TypeProto]:
    """Infer the type of every value that can be, evaluating the values behind shapes until that tells no more."""
    graph = skeleton.graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    while True:
        inferred = _inferred(path, skeleton)
        types: dict[str, TypeProto] = {}
        known: dict[str, ValueType] = {}
        for value in _values(inferred.graph):  # an input that is an output, too, may be said to be of two types
            if value.name not in known:
                types[value.name] = value.type
                if found := _value_type(value.type):
                    known[value.name] = found
        nodes = list(graph.node)
        if all(name in known for node in nodes for name in node.output if name):
            return types
        evaluated = {index for index, node in enumerate(nodes) if _evaluate(path, node, skeleton, known, values)}
        if not evaluated:
            if is_strict:
                _inferred(path, skeleton, is_strict=True)
            return types
        graph.ClearField("node")
        graph.node.extend(node for index, node in enumerate(nodes) if index not in evaluated)
        for index in sorted(evaluated):
            name = nodes[index].output[0]
            graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))


def _inferred(path: str, model: ModelProto, is_strict: bool = False) -> ModelProto:
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False)
        known = filter(None, (_value_type(value.type) for value in _values(inferred.graph)))
        is_short = all(found.elements <= LONGEST_LIST for found in known if len(found.shape) == 1)
        return onnx.shape_inference.infer_shapes(model, data_prop=is_short, strict_mode=is_strict)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError) as error:
        raise FormatError(f"{path}: shapes cannot be inferred: {one_line(error)}") from None
    except MemoryError:
        raise FormatError(f"{path}: shapes cannot be inferred: some are too large for the memory there is") from None


def _values(graph: GraphProto) -> Iterator[ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)
    for tensor in graph.initializer:
        yield onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)


def _evaluate(
    path: str, node: NodeProto, model: ModelProto, known: Mapping[str, ValueType], values: dict[str, NDArray[Any]]
) -> bool:
    """Add to `values` the result of a node of shape arithmetic, if that is small and all that it needs is there."""
    name = next(iter(node.output), "")
    if name in known and known[name].elements > LARGEST_EVALUATED:
        return False
    given = {}
    for source in reads(node):
        if node.op_type in ("Shape", "Size") and (read := known.get(source)):
            try:
                given[source] = np.broadcast_to(np.float32(0), read.shape)  # zeros, which take no memory
            except ValueError:
                text = f"{path}: '{source}' has more elements than a tensor can have: {list(read.shape)}"
                raise FormatError(text) from None
        elif node.op_type in SHAPE_ARITHMETIC and source in values:
            given[source] = values[source]
        else:
            return False
    if not name or node.op_type not in ("Shape", "Size", *SHAPE_ARITHMETIC) or _grows_large(node, given):
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


def _grows_large(node: NodeProto, given: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a node's result is larger than shapes are, as far as the values that it reads tell."""
    inputs = [given[name] for name in reads(node)]
    elements = float(max((value.size for value in inputs), default=0))
    if node.op_type in ("ConstantOfShape", "Expand") and inputs:
        elements = math.prod(abs(float(size)) for size in inputs[-1].ravel())
    elif node.op_type == "Tile" and inputs:
        elements *= math.prod(abs(float(size)) for size in inputs[-1].ravel())
    elif node.op_type == "Range" and len(inputs) == 3:
        start, limit, step = (float(value.ravel()[0]) if value.size else 0.0 for value in inputs)
        elements = abs(limit - start) / abs(step) if step else 0.0
    return not elements <= LARGEST_EVALUATED and node.op_type not in ("Shape", "Size")


def _value_type(type_: TypeProto) -> ValueType | None:
    """Return the element type and shape of a tensor; None where they are not known."""
    tensor = type_.tensor_type
    is_typed = type_.HasField("tensor_type") and is_element(tensor.elem_type) and tensor.HasField("shape")
    if not (is_typed and all(size.HasField("dim_value") and size.dim_value >= 0 for size in tensor.shape.dim)):
        return None
    return ValueType(tensor.elem_type, tuple(size.dim_value for size in tensor.shape.dim))


def known_types(
    path: str,
    graph: GraphProto,
    types: Mapping[str, TypeProto],
    initializers: Mapping[str, ValueType],
    observed: Mapping[str, Sequence[Any]],
) -> dict[str, ValueType]:
    """Return the type of each value that is known: inferred, or in the file, or seen in a run of the model."""
    known = {name: found for name, type_ in types.items() if (found := _value_type(type_))}
    known.update(initializers)
    known.update((name, ValueType(element, tuple(shape))) for name, (element, shape) in observed.items())
    for value in (*graph.value_info, *graph.output):  # what the file says, where ONNX cannot infer it
        if found := _value_type(value.type):
            known.setdefault(value.name, found)
    for node, label in zip(graph.node, node_names(graph), strict=True):
        for name in filter(None, node.output):
            what = f"{path}: node '{label}' ({node.op_type})"
            if name in types and not types[name].HasField("tensor_type") and types[name].WhichOneof("value"):
                kind = kind_of_type(types[name])
                raise ProgramError(f"{what} gives no tensor but {kind} '{name}', which has no size")
            if node.op_type == "Dropout" and node.output[0] in known:  # before opset 10 ONNX does not infer the mask
                known.setdefault(name, known[node.output[0]])
            if name in known and known[name].element == TensorProto.STRING:
                raise ProgramError(f"{what} gives text '{name}', which has no fixed size; leave it out of the model")
    return known


NAMELESS = {"", "?", "-1", "None"}  # what exporters write for a size that they do not know: two of them are two sizes
WHOLE = {TensorProto.INT32, TensorProto.INT64}


def give_sizes(path: str, graph: GraphProto, shapes: Mapping[str, Size]) -> dict[str, int]:
    """Write the sizes of unknown dimensions into the inputs' types; return the values that inputs have."""
    inputs = {value.name: value for value in graph.input}
    standing = {
        name: f"[{', '.join(map(str, _sizes(value))) if value.type.tensor_type.HasField('shape') else '...'}]"
        for name, value in inputs.items()
    }
    elements = {name: value.type.tensor_type.elem_type for name, value in inputs.items()}
    _give_missing_shapes(path, graph, shapes)
    dimensions = {
        name: [f"{name}.{axis}" if size == "?" else size for axis, size in enumerate(_sizes(value))]
        for name, value in inputs.items()
    }
    wanted = list(dict.fromkeys(have for names in dimensions.values() for have in names if isinstance(have, str)))
    sizes: dict[str, int] = {}
    values = dict[str, int]()

    for name, given in shapes.items():
        if isinstance(given, range):
            raise UsageError(f"{path}: --shape {name}={size_text(given)} is a range, which only optimize takes")
        option, listed = f"{name}={size_text(given)}", [given] if isinstance(given, int) else list(given)
        pairs: list[tuple[int | str, int]] = []
        if name in wanted and isinstance(given, int):
            pairs = [(name, given)]
        elif name in inputs and isinstance(given, int) and not dimensions[name] and elements[name] in WHOLE:
            values[name] = given
        elif name in inputs:
            pairs, own = list(zip(dimensions[name], listed, strict=False)), dimensions[name]
            if len(own) != len(listed) or any(isinstance(have, int) and have != size for have, size in pairs):
                raise UsageError(f"{path}: --shape {option} does not fit input {name}: {standing[name]}")
        else:
            have = f"it has {', '.join(wanted)}" if wanted else "all its dimensions have sizes"
            raise UsageError(f"{path}: the model has no symbolic dimension '{name}'; {have}")
        for dimension, size in pairs:
            if isinstance(dimension, str) and sizes.setdefault(dimension, size) != size:
                what = f"makes dimension '{dimension}' {size}, another one {sizes[dimension]}"
                raise UsageError(f"{path}: --shape {option} {what}")
    if missing := [name for name in wanted if name not in sizes]:
        without = [name for name, names in dimensions.items() if not set(missing).isdisjoint(names)]
        where = ", ".join(f"{name}: {standing[name]}" for name in without)
        options = " ".join(f"--shape {name}=VALUE" for name in missing)
        example = "x".join("1" if isinstance(size, str) else str(size) for size in dimensions[without[0]])
        raise UsageError(
            f"{path}: some dimensions of {where} have no size; give {options}, or all sizes of an input, as in "
            f"--shape {without[0]}={example}"
        )
    for value in graph.input:
        for axis, known in enumerate(dimensions[value.name]):
            value.type.tensor_type.shape.dim[axis].dim_value = known if isinstance(known, int) else sizes[known]
    return values


def _sizes(value: ValueInfoProto) -> list[int | str]:
    """Return per axis its size, the name of an unknown one, or `?`."""
    named = [(d, "?" if d.dim_param in NAMELESS else d.dim_param) for d in value.type.tensor_type.shape.dim]
    return [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else name for d, name in named]


def kind_of_type(type_: TypeProto) -> str:
    """Return the kind of a value that is no tensor."""
    return (type_.WhichOneof("value") or "unknown").removesuffix("_type").replace("_", " ")


def _give_missing_shapes(path: str, graph: GraphProto, shapes: Mapping[str, Size]) -> None:
    for value in graph.input:
        if not value.type.HasField("tensor_type"):
            kind = kind_of_type(value.type)
            raise ProgramError(f"{path}: input '{value.name}' is no tensor but {kind}, which has no size")
        element = value.type.tensor_type.elem_type
        if element in (TensorProto.UNDEFINED, TensorProto.STRING) or element not in TensorProto.DataType.values():
            what = "is text" if element == TensorProto.STRING else f"is of the unknown type {element}"
            raise ProgramError(f"{path}: input '{value.name}' {what}, which has no fixed size")
        if not value.type.tensor_type.HasField("shape"):
            given = shapes.get(value.name)
            if given is None or isinstance(given, int):
                raise ProgramError(f"{path}: input '{value.name}' has no shape; give --shape {value.name}=1x3x224x224")
            for size in given:
                value.type.tensor_type.shape.dim.add(dim_value=size)
