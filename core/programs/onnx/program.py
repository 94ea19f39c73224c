"""ONNX programs: a file that was read and checked, its nodes in ONNX Runtime's order, and the type of every value."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto

from ...base.errors import FormatError, ProgramError
from ..options import Size
from . import graph as graphs

_UNKNOWN = "unknown"
_NAMES = {"name", "op_type", "domain", "input", "output", "dim_param"}
LARGEST_BYTES = 1 << 48  # no tensor has as many: beyond, sizes are damaged


def read_model(path: str) -> ModelProto:
    """Read an ONNX file; its external data are looked for beside it, and not read."""
    try:
        model = ModelProto()
        model.ParseFromString(Path(path).read_bytes())
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise FormatError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except DecodeError:
        raise FormatError(f"{path}: not an ONNX file, or truncated") from None
    if not _has_texts(model):
        raise FormatError(f"{path}: damaged: a name in it is no UTF-8 text, or has several lines")
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise ProgramError(f"{path}: initialiser '{name}' is sparse; store it as a dense tensor")
    for tensor in all_tensors(model):
        _check_tensor(path, tensor)
    return model


def skeleton_of(path: str, model: ModelProto) -> ModelProto:
    """Return a model whose large initialisers are inputs, nodes sorted and outputs without types, for the checker."""
    skeleton = ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node[index] for index in graphs.default_order(model.graph.node))
    _set_unknown_apart(skeleton)
    given = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    graph.output.extend(ValueInfoProto(name=value.name, type=given) for value in model.graph.output)
    initializers = {tensor.name for tensor in model.graph.initializer}
    graph.input.extend(value for value in model.graph.input if value.name not in initializers)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= graphs.LARGEST_EVALUATED:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    load_small(skeleton, Path(path).parent)
    if not model.ByteSize():
        raise FormatError(f"{path}: not a valid ONNX model, or truncated: it is empty")
    try:
        onnx.checker.check_model(skeleton)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise FormatError(f"{path}: not a valid ONNX model, or truncated: {graphs.one_line(error)}") from None
    for value in graph.output:
        value.ClearField("type")
    return skeleton


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor that a model holds, those in graphs of nodes and in functions included."""
    yield from model.graph.initializer
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in graphs.all_nodes(nodes):
            yield from graphs.own_tensors(node)


def external_files(model: ModelProto) -> list[str]:
    """Return the files, relative to the model's folder, that hold tensors of the model."""
    external = (tensor for tensor in all_tensors(model) if tensor.data_location == TensorProto.EXTERNAL)
    return list(dict.fromkeys(_external(tensor)["location"] for tensor in external))


def is_small_external(tensor: TensorProto) -> bool:
    """Whether a tensor in a file of its own is so small that shapes may depend on its values."""
    return bool(tensor.data_location == TensorProto.EXTERNAL) and math.prod(tensor.dims) <= graphs.LARGEST_EVALUATED


def load_small(model: ModelProto, folder: Path) -> None:
    """Read the small tensors of a model that are in files of their own into it."""
    for tensor in filter(is_small_external, all_tensors(model)):
        where = _external(tensor)
        with (folder / where["location"]).open("rb") as file:
            file.seek(int(where["offset"]))
            tensor.raw_data = file.read(graphs.bytes_of(tensor.data_type, tensor.dims))
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def _has_texts(message: Message) -> bool:
    """Whether every text in a message is UTF-8, which protobuf gives as bytes if it is not, and every name one line."""
    try:
        for field, value in message.ListFields():
            parts = [value] if isinstance(value, (Message, str, bytes)) else value
            if field.message_type is not None:
                is_text = all(map(_has_texts, parts))
            else:
                has_lines = field.name not in _NAMES
                is_text = field.type != field.TYPE_STRING or all(
                    isinstance(part, str) and (has_lines or part.splitlines() in ([], [part])) for part in parts
                )
            if not is_text:
                return False
    except UnicodeDecodeError:
        return False
    return True


def _check_tensor(path: str, tensor: TensorProto) -> None:
    """Check that a tensor's type and sizes are some, and that it has as much data as these say."""
    what = f"{path}: tensor '{tensor.name}'"
    if not graphs.is_element(tensor.data_type):
        raise FormatError(f"{what} is of the unknown type {tensor.data_type}: the file is damaged, or of a later ONNX")
    if any(size < 0 for size in tensor.dims):
        raise FormatError(f"{what} has the negative size {min(tensor.dims)}")
    elements = math.prod(tensor.dims)
    if elements * 128 > 8 * LARGEST_BYTES:
        raise FormatError(f"{what} has {elements} elements, which no machine can hold: the file is damaged")
    if tensor.data_location == TensorProto.EXTERNAL:
        _check_external(path, what, tensor)
        return
    if tensor.data_type == TensorProto.STRING:
        needed, given, unit = elements, len(tensor.string_data), "texts"
    elif tensor.HasField("raw_data"):
        needed, given, unit = graphs.bytes_of(tensor.data_type, tensor.dims), len(tensor.raw_data), "bytes"
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        per_number = max(1, 8 // graphs.bits_of(tensor.data_type))
        parts = 2 if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1
        needed, given, unit = parts * -(-elements // per_number), len(getattr(tensor, field)), "numbers"
    if needed != given:
        raise FormatError(f"{what} needs {needed} {unit} and has {given}: it is truncated or damaged")
    try:
        if unit == "numbers":
            onnx.numpy_helper.to_array(tensor)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{what} cannot be read: {graphs.one_line(error)}") from None


def _external(tensor: TensorProto) -> dict[str, str]:
    return {"location": "", "offset": "0", **{entry.key: entry.value for entry in tensor.external_data}}


def _check_external(path: str, what: str, tensor: TensorProto) -> None:
    where = _external(tensor)
    location, offset = where["location"], where["offset"]
    file = Path(path).parent / location
    if not location or "\0" in location or PurePath(location).is_absolute() or ".." in PurePath(location).parts:
        raise FormatError(f"{what} is in {location!r}, which is no file next to the model")
    if not offset.isdecimal() or len(offset) > 18:
        raise FormatError(f"{what} begins at byte {offset[:30]!r} of {file}, which is no number of bytes")
    size = None
    with suppress(OSError):  # a name too long
        size = file.stat().st_size if file.is_file() else None
    if size is None:
        raise FormatError(f"{what} is in {file}, which is missing; put it next to the model")
    needed = int(offset) + graphs.bytes_of(tensor.data_type, tensor.dims)
    if size < needed:
        has = f"which has {size}: it is truncated or of another model"
        raise FormatError(f"{what} ends at byte {needed} of {file}, {has}")


def _set_unknown_apart(model: ModelProto) -> None:
    """Give nodes that ONNX does not have at the model's version a domain of their own, which it lets pass.

    A domain of others need not be imported: ONNX Runtime takes its latest version.
    """
    versions = {opset.domain: opset.version for opset in model.opset_import}
    others = {node.domain for node in graphs.all_nodes(model.graph.node)} - graphs.OFFICIAL_DOMAINS - versions.keys()
    model.opset_import.extend(OperatorSetIdProto(domain=domain, version=1) for domain in sorted(others))
    official = (node for node in graphs.all_nodes(model.graph.node) if node.domain in graphs.OFFICIAL_DOMAINS)
    unknown = [node for node in official if not graphs.is_known(node, versions)]
    for node in unknown:
        node.domain = _UNKNOWN
    if unknown:
        model.opset_import.add(domain=_UNKNOWN, version=1)


DEQUANTIZE = "DequantizeLinear"


@dataclass(frozen=True, eq=False)
class OnnxProgram:
    """An ONNX model whose sizes are all known."""

    path: str
    model: ModelProto  # as the file has it, external data not loaded
    # names of what the caller gives (no initialisers), and of what it gets
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # the nodes that run, in ONNX Runtime's default order, and a unique name for each (`node_names`)
    nodes: tuple[NodeProto, ...]
    names: tuple[str, ...]
    folded: tuple[NodeProto, ...]  # the nodes whose inputs are all constant, in that order, too
    constants: frozenset[str]  # the initialisers, and what the folded nodes give
    types: Mapping[str, graphs.ValueType]  # of every value
    sizes: Mapping[str, Size]  # as the caller gives them; see `give_sizes`
    values: Mapping[str, int] = field(default_factory=dict)  # of inputs, where the caller gives them
    random: frozenset[str] = frozenset()  # names of the nodes that draw random numbers
    opaque: frozenset[str] = frozenset()  # names of the nodes that ONNX does not describe; see `opaque_in`
    observed: Mapping[str, Any] | None = None  # what ONNX Runtime showed, if asked: see `observe` and `as_loaded`

    @property
    def question(self) -> dict[str, Any]:
        """The arguments of `read_program` with which another process loads the same program, as JSON has them."""
        return {"path": self.path, "shapes": dict(self.sizes), "observed": self.observed or {}}


def read_program(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any] | None = None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and infer the shapes that can be inferred; see `runtime.load_program`."""
    model = read_model(path)
    skeleton = skeleton_of(path, model)
    values = graphs.give_sizes(path, skeleton.graph, shapes)
    graph, is_opaque, is_random = model.graph, graphs.opaque_in(model), graphs.random_in(model)
    inferred = graphs.infer(path, skeleton, is_strict=not any(map(is_opaque, graph.node)))
    initializers = {tensor.name: graphs.ValueType(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    labels, constants = graphs.node_names(graph), set(initializers)
    folded, running = list[int](), list[int]()
    for index in graphs.default_order(graph.node):
        node = graph.node[index]
        is_folded = node.op_type != DEQUANTIZE and constants.issuperset(graphs.reads(node)) and not is_random(node)
        (folded if is_folded else running).append(index)
        constants.update(filter(None, node.output) if is_folded else ())
    if not running:
        raise ProgramError(f"{path}: all nodes are constant, so there is nothing to schedule")
    places = {name: at for at, name in enumerate((observed or {}).get("order", ()))}
    running.sort(key=lambda index: places.get(labels[index], 0))
    return OnnxProgram(
        path=path,
        model=model,
        inputs=tuple(value.name for value in graph.input if value.name not in initializers),
        outputs=tuple(value.name for value in graph.output),
        nodes=tuple(graph.node[index] for index in running),
        names=tuple(labels[index] for index in running),
        folded=tuple(graph.node[index] for index in folded),
        constants=frozenset(constants),
        types=graphs.known_types(path, graph, inferred, initializers, (observed or {}).get("types", {})),
        sizes=dict(shapes),
        values=values,
        random=frozenset(labels[index] for index in running if is_random(graph.node[index])),
        opaque=frozenset(labels[index] for index in running if is_opaque(graph.node[index])),
        observed=observed,
    )


def runs_of(program: OnnxProgram, order: Sequence[int]) -> list[NodeProto]:
    """Return the nodes in an order, in which some may run several times: the last run has the names of the file."""
    last = {op: step for step, op in enumerate(order)}
    taken, latest = {*program.types, *program.names}, dict[str, str]()
    nodes = []
    for step, op in enumerate(order):
        node, is_last = program.nodes[op], last[op] == step
        names = (program.names[op], *node.output)
        label, *results = names if is_last else (_unused(name, step, taken) for name in names)
        read = {name: latest[name] for name in graphs.reads(node) if name in latest}
        given = dict(zip(node.output, results, strict=True))
        nodes.append(graphs.renamed(node, label, {**read, **given}))
        latest.update(given)
    return nodes


def _unused(name: str, step: int, taken: set[str]) -> str:
    """Return a name for a run's result; one that the file leaves out stays without."""
    run = f"{name} (run {step})" if name else ""
    while run in taken:
        run += "'"
    return run
