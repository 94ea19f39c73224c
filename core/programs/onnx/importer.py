"""ONNX models as computation graphs, with the memory of ONNX Runtime's CPU provider, modules and lines."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from onnx import TensorProto

from ...base.units import format_bytes
from ...graph.annotations import Annotations, Resident
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import Roofline
from .nodes import OFFICIAL_DOMAINS, functions_of, is_view, own_tensors, reads, subgraphs
from .program import OnnxProgram
from .shapes import ValueType, bytes_of

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto

    from .program import OnnxProgram

IN_PLACE = {
    *("Cast", "Celu", "Clip", "Elu", "HardSigmoid", "Identity", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Sigmoid"),
    *("Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu", "Trilu"),
}
CONVOLUTIONS = {"Conv", "ConvInteger", "FusedConv", "QLinearConv"}
PRODUCTS = {"MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "Gemm", "FusedGemm"}
_SETTING = 1024
"""Bytes of an attribute's numbers or text up to which it is a setting; more are data, as a tree's thresholds."""
FUSED_DOMAINS = {"com.microsoft", "com.microsoft.nchwc"}
RECURRENT = {"GRU", "LSTM", "RNN"}
POOLS = {"AveragePool", "LpPool", "MaxPool"}


def graph_of(
    program: OnnxProgram,
    roofline: Roofline | None = None,
    measured: Mapping[str, tuple[float, int]] | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> CostGraph:
    """Return a program as a computation graph, whose memory is that of ONNX Runtime's CPU provider (version 1.31).

    - Initialisers, constants and inputs are persistent bytes of the first op that reads them.
    - Outputs of the model are final, each with a buffer of its own. So is a result that nobody reads: ONNX Runtime
      frees it only after the run, or with the buffer that it is in.
    - A Reshape, Squeeze, Unsqueeze or Flatten is a view; one of a constant or an input takes nothing.
    - The ops of `IN_PLACE` write over their input where nobody needs it any more. That is a view too where it happens
      in every order, since the op is the buffer's only reader. Where it depends on the order the output counts in full,
      so that the prediction is on the safe side.
    - Random ops keep their order. They, ops that write over their input, opaque ops and those of several results, of
      which one may be read no more, may not run twice.
    """
    seen = (program.observed or {}).get("workspaces", {})
    costs = measured or {
        name: (_microseconds(program, node, roofline or Roofline()), seen.get(name, 0))
        for name, node in zip(program.names, program.nodes, strict=True)
    }
    builder, annotations = GraphBuilder(Path(program.path).stem, program.path), annotations_of(program)
    persistent = _persistent_bytes(program, annotations.residents, note)
    uses = Counter(name for node in program.nodes for name in reads(node)) + Counter(program.outputs)
    producers: dict[str, tuple[int, int]] = {}
    replaceable, lent, last_random = set[str](), lent_by_caller(program), list[int]()
    for op, (node, name) in enumerate(zip(program.nodes, program.names, strict=True)):
        arguments = [value for value in reads(node) if value in producers]
        sizes = [program.types[value].bytes if value else 0 for value in node.output]
        source = _reused_input(program, node, replaceable)
        aliases = [arguments.index(source) if source in producers else -1, *[-1] * len(sizes)][: len(sizes)]
        if source in lent:
            sizes[0] = 0  # who reads it reads what the caller holds
        is_first = not source or source in replaceable  # its only reader may write over the first output, too
        replaceable.update(v for port, v in enumerate(node.output) if uses[v] == 1 and (port or is_first))
        is_random = name in program.random
        builder.add_op(
            name,
            inputs=[producers[value] for value in arguments],
            control=last_random if is_random else (),
            outputs=sizes,
            aliases=aliases,
            final=[
                value in program.outputs or (bool(value) and not uses[value] and alias < 0)
                for value, alias in zip(node.output, aliases, strict=True)
            ],
            runtime=costs[name][0],
            workspace=costs[name][1],
            persistent=persistent[op],
            once=is_random or name in program.opaque or len(sizes) > 1 or bool(source and not is_view(node)),
        )
        producers.update((value, (op, port)) for port, value in enumerate(node.output) if value)
        last_random = [op] if is_random else last_random
    return builder.build(annotations)


def _reused_input(program: OnnxProgram, node: NodeProto, replaceable: Collection[str]) -> str:
    """Return the input whose buffer the first output is in, whatever the order; empty if it has a buffer of its own."""
    source, result = next(iter(node.input), ""), next(iter(node.output), "")
    if not result or result in program.outputs:
        return ""
    if is_view(node):
        return source
    if node.domain not in OFFICIAL_DOMAINS or node.op_type not in IN_PLACE or source not in replaceable:
        return ""
    before, after = program.types[source], program.types[result]
    return source if before.shape == after.shape and before.bytes == after.bytes else ""


def _persistent_bytes(program: OnnxProgram, residents: Iterable[Resident], note: Callable[[str], None]) -> list[int]:
    """Return the bytes of constants and inputs that count with each op."""
    persistent = [0] * len(program.nodes)
    unread = [resident for resident in residents if resident.role == "input" and not resident.readers]
    for resident in residents:
        persistent[resident.op] += resident.size
    if unread:
        held = format_bytes(sum(resident.size for resident in unread))
        more = f" and {len(unread) - 1} other inputs" if len(unread) > 1 else ""
        note(f"{program.path}: no node reads the input '{unread[0].name}'{more}, {held} that the caller holds")
    return persistent


def _microseconds(program: OnnxProgram, node: NodeProto, roofline: Roofline) -> float:
    """Return the time of a node by the roofline; a view takes none."""
    if is_view(node):
        return 0.0
    values = dict.fromkeys([*reads(node), *filter(None, node.output)])
    return roofline.microseconds(node_flops(program.types, node), sum(program.types[value].bytes for value in values))


def node_flops(types: Mapping[str, ValueType], node: NodeProto) -> int:
    """Return the floating-point operations of a node: two per multiply-add, else one per element."""
    inputs = [types[name] for name in reads(node)]
    output = next((types[name] for name in node.output if name), ValueType(TensorProto.FLOAT, (0,)))
    if node.domain not in OFFICIAL_DOMAINS | FUSED_DOMAINS:
        return output.elements
    if node.op_type in CONVOLUTIONS:
        weight = inputs[3 if node.op_type == "QLinearConv" else 1]
        return 2 * output.elements * math.prod(weight.shape[1:])
    if node.op_type == "ConvTranspose":
        return 2 * inputs[0].elements * math.prod(inputs[1].shape[1:])
    if node.op_type in PRODUCTS:
        is_transposed = any(entry.i for entry in node.attribute if entry.name == "transA")
        return 2 * output.elements * inputs[0].shape[-2 if is_transposed else -1]
    if node.op_type in RECURRENT:
        steps_and_batch = math.prod(inputs[0].shape[:2])
        return 2 * steps_and_batch * (inputs[1].elements + inputs[2].elements)
    if node.op_type in POOLS:
        kernel = next(list(entry.ints) for entry in node.attribute if entry.name == "kernel_shape")
        return output.elements * int(math.prod(kernel))
    if node.op_type.startswith(("Reduce", "Global", "Arg")) and inputs:
        return inputs[0].elements
    return output.elements


_SCOPES = "pkg.torch.onnx.name_scopes"
_STACK = "pkg.torch.onnx.stack_trace"
_STACK_LINE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](torch|onnx|onnxscript)[/\\]")


def annotations_of(program: OnnxProgram) -> Annotations:
    """Return the modules and lines of a program's nodes, and its residents; all of its phases are `forward`."""
    modules = tuple(map(_module, program.nodes))
    stacks = (_STACK_LINE.findall(_metadata(node, _STACK)) for node in program.nodes)
    users = ([f"{PurePath(file).name}:{at}" for file, at in frames if not _LIBRARY.search(file)] for frames in stacks)
    lines = tuple(found[-1] if found else "" for found in users)  # the innermost that is not PyTorch's
    phases = ("forward",) * len(program.nodes)
    return Annotations(modules if any(modules) else (), lines if any(lines) else (), phases, residents_of(program))


def lent_by_caller(program: OnnxProgram) -> dict[str, str]:
    """Return in the memory of which input or constant each value is that has none of its own: itself, or a view."""
    lent = {name: name for name in (*program.inputs, *program.constants)}
    for node in program.nodes:
        if is_view(node) and node.input[0] in lent and node.output[0] not in program.outputs:
            lent[node.output[0]] = lent[node.input[0]]
    return lent


def residents_of(program: OnnxProgram) -> tuple[Resident, ...]:
    """Return constants and inputs, each with the first op that reads it; an unread input counts with op 0.

    Constants inside of an op, as in the branches of an If or in attributes that are no mere setting, are one resident,
    `OP/constants`. Views count as their base.
    """
    readers: dict[str, list[int]] = {name: [] for name in (*program.inputs, *program.constants)}
    lent = lent_by_caller(program)
    for op, node in enumerate(program.nodes):
        for name in dict.fromkeys(lent[value] for value in reads(node) if value in lent):
            readers[name].append(op)
    initializers = {tensor.name for tensor in program.model.graph.initializer}
    outputs = {*program.inputs, *(name for name in program.outputs if name in program.constants)}
    found = []
    for name, ops in readers.items():
        role = "input" if name in program.inputs else "parameter" if name in initializers else "constant"
        if ops or name in outputs:
            found.append(Resident(name, role, program.types[name].bytes, min(ops, default=0), tuple(ops)))
    functions = functions_of(program.model)
    for op, (node, label) in enumerate(zip(program.nodes, program.names, strict=True)):
        if held := sum(_sizes_inside(node, functions)):
            found.append(Resident(f"{label}/constants", "constant", held, op, (op,)))
    return tuple(sorted(found, key=lambda resident: (resident.role != "input", resident.op, resident.name)))


def _sizes_inside(node: NodeProto, functions: Mapping[tuple[str, str], FunctionProto]) -> Iterator[int]:
    """Yield the bytes of the data in the attributes of a node, in the graphs inside of it and in what it calls."""
    for entry in node.attribute:
        numbers = 4 * len(entry.floats) + 8 * len(entry.ints) + sum(map(len, (entry.s, *entry.strings)))
        yield numbers if numbers > _SETTING else 0
    yield from (bytes_of(tensor.data_type, tensor.dims) for tensor in own_tensors(node))
    function = functions.get((node.domain, node.op_type))
    others = {key: other for key, other in functions.items() if other is not function}
    for nodes in (*(graph.node for graph in subgraphs(node)), function.node if function else ()):
        for inner in nodes:
            yield from _sizes_inside(inner, others)


def _module(node: NodeProto) -> str:
    """Return the path of the module that a node comes from, by PyTorch's metadata or by the scopes in its name."""
    scopes = _metadata(node, _SCOPES)
    if scopes:
        try:
            names = ast.literal_eval(scopes)
        except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
            names = []
        return str(names[-2]) if isinstance(names, list) and len(names) > 1 else ""
    path: list[str] = []
    for scope in node.name.split("/")[1:-1] if node.name.startswith("/") else ():
        if path and scope.startswith(f"{path[-1]}."):  # a Sequential's own scope is in that of its modules again
            path.pop()
        path.append(scope)
    return ".".join(path)


def _metadata(node: NodeProto, key: str) -> str:
    entries = getattr(node, "metadata_props", ())  # since ONNX 1.16
    return next((str(entry.value) for entry in entries if entry.key == key), "")
