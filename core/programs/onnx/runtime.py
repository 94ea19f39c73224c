"""ONNX programs: imported as graphs, written in another order, and run by ONNX Runtime with memory counted by glibc."""

import ast
import filecmp
import math
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

from ...base.errors import FormatError, ProgramError
from ...base.units import format_bytes
from ...files.atomic import write_atomically
from ...graph.annotations import Annotations, Resident, bytes_held
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import Roofline, Size
from ..runtime import PROGRAM_ORDER, Note, Runtime
from .graph import (
    OFFICIAL_DOMAINS,
    WITHOUT_KERNEL,
    ValueType,
    bytes_of,
    functions_of,
    is_view,
    own_tensors,
    reads,
    subgraphs,
)
from .program import DEQUANTIZE, OnnxProgram, external_files, read_program, runs_of

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
    note: Note = lambda text: None,
) -> CostGraph:
    """Return a program as a computation graph, whose memory is that of ONNX Runtime's CPU provider (version 1.31).

    Outputs of the model are final, and so is a result that nobody reads, which ONNX Runtime frees after the run. An op
    of `IN_PLACE` whose output is a view is its buffer's only reader, so that it writes over its input in every order.
    Random ops keep their order. They, ops that write over their input, opaque ops and those of several results, of
    which one may be read no more, may not run twice.
    """
    seen = (program.observed or {}).get("workspaces", {})
    costs = measured or {
        name: (_microseconds(program, node, roofline or Roofline()), seen.get(name, 0))
        for name, node in zip(program.names, program.nodes, strict=True)
    }
    builder, annotations = GraphBuilder(Path(program.path).stem, program.path), annotations_of(program)
    persistent = bytes_held(annotations.residents)
    if unread := [r for r in annotations.residents if r.role == "input" and not r.readers]:
        held = format_bytes(sum(resident.size for resident in unread))
        more = f" and {len(unread) - 1} other inputs" if len(unread) > 1 else ""
        note(f"{program.path}: no node reads the input '{unread[0].name}'{more}, {held} held by the caller")
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
        return 2 * output.elements * math.prod(inputs[3 if node.op_type == "QLinearConv" else 1].shape[1:])
    if node.op_type == "ConvTranspose":
        return 2 * inputs[0].elements * math.prod(inputs[1].shape[1:])
    if node.op_type in PRODUCTS:
        is_transposed = any(entry.i for entry in node.attribute if entry.name == "transA")
        return 2 * output.elements * inputs[0].shape[-2 if is_transposed else -1]
    if node.op_type in RECURRENT:
        return 2 * math.prod(inputs[0].shape[:2]) * (inputs[1].elements + inputs[2].elements)
    if node.op_type in POOLS:
        kernel = next(list(entry.ints) for entry in node.attribute if entry.name == "kernel_shape")
        return output.elements * int(math.prod(kernel))
    return (inputs[0] if node.op_type.startswith(("Reduce", "Global", "Arg")) and inputs else output).elements


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
    residents, seen = residents_of(program), program.observed or {}
    unknown = {
        "ONNX Runtime's casts": seen.get("casts") or seen.get("widened"),
        "what ONNX Runtime adds, which does not run it here": seen.get("is_refused"),
        "workspace of opaque nodes": program.opaque and "workspaces" not in seen,
    }
    left_out = tuple(what for what, is_unknown in unknown.items() if is_unknown)
    return Annotations(
        modules if any(modules) else (), lines if any(lines) else (), phases, residents, left_out=left_out
    )


def lent_by_caller(program: OnnxProgram) -> dict[str, str]:
    """Return in the memory of which input or constant each value is that has none of its own: itself, or a view."""
    lent = {name: name for name in (*program.inputs, *program.constants)}
    for node in program.nodes:
        if is_view(node) and node.input[0] in lent and node.output[0] not in program.outputs:
            lent[node.output[0]] = lent[node.input[0]]
    return lent


def residents_of(program: OnnxProgram) -> tuple[Resident, ...]:
    """Return constants and inputs, each with its readers; constants inside an op are one resident, `OP/constants`."""
    readers: dict[str, list[int]] = {name: [] for name in (*program.inputs, *program.constants)}
    lent = lent_by_caller(program)
    for op, node in enumerate(program.nodes):
        for name in dict.fromkeys(lent[value] for value in reads(node) if value in lent):
            readers[name].append(op)
    initializers = {tensor.name for tensor in program.model.graph.initializer}
    found = []
    for name, ops in readers.items():
        role = "input" if name in program.inputs else "parameter" if name in initializers else "constant"
        if ops or role == "input" or name in program.outputs:
            found.append(Resident(name, role, program.types[name].bytes, min(ops, default=0), tuple(ops)))
    functions = functions_of(program.model)
    for op, (node, label) in enumerate(zip(program.nodes, program.names, strict=True)):
        if held := sum(_sizes_inside(node, functions)):
            found.append(Resident(f"{label}/constants", "constant", held, op, (op,)))
    return tuple(sorted(found, key=lambda resident: (resident.role != "input", resident.op, resident.name)))


def _sizes_inside(node: NodeProto, functions: Mapping[tuple[str, str], FunctionProto]) -> Iterator[int]:
    """Yield the bytes of the data in the attributes of a node, in its inner graphs and in the functions it calls."""
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
    return next((str(entry.value) for entry in node.metadata_props if entry.key == key), "")


_NAMED_KINDS = 6
COMMON = {getattr(TensorProto, name) for name in ("FLOAT", "INT8", "UINT8", "INT32", "INT64", "BOOL")}
"""Types of elements for which ONNX Runtime has kernels on a CPU."""


def load_program(path: str, shapes: Mapping[str, Size], note: Note = lambda text: None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and find every shape: inferred, or seen in a run of the model."""
    program = _with_observation(read_program(path, shapes), note)
    _note_observations(program, note)
    seen = {program.types[name].element for node in program.nodes for name in (*reads(node), *node.output) if name}
    kinds = {node.op_type for node in program.nodes}
    is_rewritten = not seen <= COMMON or bool(program.model.functions) or not kinds.isdisjoint(WITHOUT_KERNEL)
    return _as_loaded(program, note) if is_rewritten else program


def _with_observation(program: OnnxProgram, note: Note) -> OnnxProgram:
    """Run a program where shapes or opaque nodes ask for it; return it with the observations."""
    needed = {*program.outputs, *(name for node in program.nodes for name in (*reads(node), *node.output))}
    made = [(node, name) for node in (*program.nodes, *program.folded) for name in node.output if name in needed]
    missing = [(node, name) for node, name in made if name and name not in program.types]
    if not missing and not program.opaque:
        return program
    from .session import observe

    try:
        observed = observe(program)
    except ProgramError as error:
        reason = str(error).removeprefix(f"{program.path}: ")
        if missing:
            node, name = missing[0]
            label = f"'{node.name}' ({node.op_type})" if node.name else f"({node.op_type})"
            what = f"only a run tells the size of '{name}', which node {label} makes"
            raise ProgramError(f"{program.path}: {what}, and {reason}") from None
        note(f"{program.path}: {reason}; workspace of its opaque nodes is unknown and not counted")
        return replace(program, observed={})
    types = {name: ValueType(element, tuple(shape)) for name, (element, shape) in observed["types"].items()}
    return replace(program, observed=observed, types={**program.types, **types})


def _note_observations(program: OnnxProgram, note: Note) -> None:
    """Note the differences from the file, and the observations of one run alone."""
    path, total = program.path, len(program.model.graph.node)
    if program.folded:
        note(f"{path}: {len(program.folded)} of {total} nodes are constant; their results count as initialisers")
    if program.opaque:
        nodes = zip(program.names, program.nodes, strict=True)
        kinds = Counter(node.op_type for name, node in nodes if name in program.opaque).most_common()
        named = ", ".join(f"{count} {kind}" for kind, count in kinds[:_NAMED_KINDS])
        more = ", ..." if len(kinds) > _NAMED_KINDS else ""
        how = "sizes that ONNX cannot tell and workspace are those of one run" if program.observed else "costs by size"
        note(f"{path}: {len(program.opaque)} of {total} nodes are opaque ({named}{more}): {how}")
    elif program.observed:
        seen = list(program.observed["types"])
        note(f"{path}: the sizes of {len(seen)} values, such as '{seen[0]}', depend on data; those of one run count")
    quantized = sum(node.op_type == DEQUANTIZE and program.constants.issuperset(reads(node)) for node in program.nodes)
    if quantized:
        note(
            f"{path}: {quantized} constants count as they are stored, quantised; ONNX Runtime fuses their {DEQUANTIZE} "
            "nodes into integer kernels: import the model that it optimised and saved"
        )


def _as_loaded(program: OnnxProgram, note: Note) -> OnnxProgram:
    """Return a program in the order that ONNX Runtime gives it; tell what it casts for want of kernels on a CPU."""
    from .session import as_loaded

    try:
        loaded = as_loaded(program)
    except ProgramError as error:
        reason = str(error).removeprefix(f"{program.path}: the run failed: ")
        note(f"{program.path}: is planned, but cannot run on this machine: {reason}")
        return replace(program, observed={**(program.observed or {}), "is_refused": True})
    if loaded["casts"] or loaded["widened"]:
        note(
            f"{program.path}: ONNX Runtime lacks CPU kernels: it adds {loaded['casts']} casts and holds results of "
            f"{loaded['widened']} nodes in float32. Peaks do not count them, and casts change the order: import the "
            "model that it optimised and saved"
        )
    return read_program(program.path, program.sizes, {**(program.observed or {}), **loaded})


def reorder(program: OnnxProgram, order: Sequence[int]) -> ModelProto:
    """Return the file's model with its nodes in another order, named, each constant node before its first reader."""
    model = deepcopy(program.model)
    waiting = {name: node for node in program.folded for name in node.output if name}
    nodes = []

    def add_constants(names: Iterable[str]) -> None:
        for name in names:
            if name in waiting:
                node = waiting[name]
                for result in filter(None, node.output):
                    del waiting[result]
                add_constants(reads(node))
                nodes.append(node)

    for node in runs_of(program, order):
        add_constants(reads(node))
        nodes.append(node)
    add_constants(list(waiting))
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return model


def copy_external_data(program: OnnxProgram, output: Path) -> None:
    """Put the files that hold tensors beside the output, where they are not yet."""
    for name in external_files(program.model):
        source, target = Path(program.path).parent / name, output.parent / name
        if target.exists():
            if not filecmp.cmp(source, target, shallow=False):
                raise FormatError(f"{target}: is not the data of {program.path}; write the model to another folder")
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.part")
            shutil.copyfile(source, partial)
            partial.replace(target)
        except OSError as error:
            raise FormatError(f"{target}: cannot be written: {error.strerror or error}") from None


class OnnxRuntime(Runtime[ModelProto]):
    """An ONNX file; in a version of it the nodes have another order, and some may stand there several times."""

    runs = "onnx.session:run_order"

    def load(self, note: Note) -> None:
        """Read the file and find every shape."""
        self.program = load_program(self.model, self.options.shapes, note)

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        measured = None
        if costs == "measured":
            from .session import measured_costs

            measured = measured_costs(self.program)
        return graph_of(self.program, self.roofline, measured, note)

    def reordered(self, graph: CostGraph, order: Sequence[int]) -> ModelProto:
        """Return the file's model with its nodes in another order."""
        return reorder(self.program, order)

    def results(self, version: ModelProto | None) -> dict[str, str]:
        """Run the file, or a version of it, in the order of its nodes on random inputs."""
        from .session import digests, random_inputs, run_model

        program = self.program
        try:
            outputs = run_model(version or program.model, Path(program.path).parent, random_inputs(program))
        except ProgramError as error:
            raise ProgramError(f"{program.path}: {error}") from None
        return dict(zip((f"output '{name}'" for name in program.outputs), digests(outputs), strict=True))

    def save(self, version: ModelProto, output: str, note: Note) -> None:
        """Write an ONNX file, and its external data beside it."""
        copy_external_data(self.program, Path(output))
        write_atomically(output, version.SerializeToString())
        if not (self.program.observed or {}).get("casts"):  # they would run elsewhere
            note(f"{output}: ONNX Runtime keeps this order with execution_order = PRIORITY_BASED and optimisations off")

    def question(self, graph: CostGraph, order: Sequence[int] | None, file: Path) -> dict[str, Any]:
        """Return the indices of the nodes in an order."""
        return {**self.program.question, "order": None if order is None else list(order)}

    def reason(self) -> str:
        """Name a node whose random numbers depend on its place."""
        nodes = zip(self.program.nodes, self.program.names, strict=True)
        said = (f"'{name}' ({node.op_type})" for node, name in nodes if name in self.program.random)
        return next((f": node {label} draws random numbers by its place in the file" for label in said), "")

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Name nodes that have no place in the order, as ONNX Runtime runs their definitions."""
        if not_run := reports[PROGRAM_ORDER][0]["not_run"]:
            more = f" and {len(not_run) - 1} others" if len(not_run) > 1 else ""
            note(
                f"{self.model}: ONNX Runtime has no kernel for node '{not_run[0]}'{more}: it runs the ops of its "
                "definition when no other node is ready, so the order differs from the schedule"
            )
