"""What an ONNX file says of its nodes beside what they compute: the module and line that PyTorch exported them from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...graph.annotations import Annotations, Resident
from .nodes import functions_of, is_view, node_tensors, reads
from .shapes import bytes_of

if TYPE_CHECKING:
    from onnx import FunctionProto, NodeProto, TensorProto

    from .program import OnnxProgram

_SCOPES = "pkg.torch.onnx.name_scopes"
_STACK = "pkg.torch.onnx.stack_trace"
_STACK_LINE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"[/\\](torch|onnx|onnxscript)[/\\]")


def annotations_of(program: OnnxProgram) -> Annotations:
    """Return the modules and lines of a program's nodes, and its residents; all of its phases are `forward`."""
    modules = tuple(map(_module, program.nodes))
    lines = tuple(map(_line, program.nodes))
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

    So does a constant that is an output and that no op reads; what else nobody reads is left out. Constants inside of
    an op, as in the branches of an If, are one resident, named `OP/constants`. Views of them count as they do.
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
        if held := sum(bytes_of(tensor.data_type, tensor.dims) for tensor in _inside(node, functions)):
            found.append(Resident(f"{label}/constants", "constant", held, op, (op,)))
    return tuple(sorted(found, key=lambda resident: (resident.role != "input", resident.op, resident.name)))


def _inside(node: NodeProto, functions: Mapping[tuple[str, str], FunctionProto]) -> Iterator[TensorProto]:
    """Yield the tensors in the graphs of a node, and in the function that it calls."""
    yield from node_tensors(node)
    others = {key: function for key, function in functions.items() if key != (node.domain, node.op_type)}
    if len(others) < len(functions):
        for inner in functions[node.domain, node.op_type].node:
            yield from _inside(inner, others)


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


def _line(node: NodeProto) -> str:
    """Return the innermost line that is not PyTorch's."""
    frames = _STACK_LINE.findall(_metadata(node, _STACK))
    users = [f"{PurePath(file).name}:{number}" for file, number in frames if not _LIBRARY.search(file)]
    return users[-1] if users else ""


def _metadata(node: NodeProto, key: str) -> str:
    entries = getattr(node, "metadata_props", ())  # since ONNX 1.16
    return next((str(entry.value) for entry in entries if entry.key == key), "")
