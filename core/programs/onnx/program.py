"""What an ONNX program is here: the nodes of a file that run, in its order, and what type every value has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.external_data_helper import load_external_data_for_tensor

from ...errors import FormatError, ProgramError
from .nodes import is_random, node_names, reads
from .shapes import LARGEST_EVALUATED, ValueType, give_sizes, infer, known_types

OFFICIAL_DOMAINS = {"", "ai.onnx", "ai.onnx.ml"}


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
    give_sizes(path, skeleton.graph, shapes)
    initializers = {tensor.name: ValueType(tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer}
    types = known_types(path, model.graph, infer(path, skeleton), initializers)
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
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except DecodeError:
        raise FormatError(f"{path}: not an ONNX file, or truncated") from None


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
        raise FormatError(f"{path}: not a valid ONNX model, or truncated: {reason}") from None


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


def _constant_nodes(graph: GraphProto) -> tuple[set[int], set[str]]:
    """Return the indices of the nodes whose inputs are all constant, and the names of all constants."""
    constants = {tensor.name for tensor in graph.initializer}
    folded = set()
    for index, node in enumerate(graph.node):
        if not is_random(node) and constants.issuperset(reads(node)):
            folded.add(index)
            constants.update(filter(None, node.output))
    return folded, constants
