"""ONNX programs: the nodes of a file that run, in ONNX Runtime's order, and the type of every value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from ...base.errors import ProgramError
from ..options import Size
from .model_file import read_model, skeleton_of
from .nodes import default_order, functions_of, node_names, opaque_in, random_in, reads, renamed
from .shapes import ValueType, give_sizes, infer, known_types

DEQUANTIZE = "DequantizeLinear"


@dataclass(frozen=True, eq=False)
class OnnxProgram:
    """An ONNX model whose sizes are all known."""

    path: str
    model: ModelProto  # as the file has it, external data not loaded
    # names of what the caller gives (no initialisers), and of what it gets
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # the nodes that run, in ONNX Runtime's `default_order`, and a unique name for each (`node_names`)
    nodes: tuple[NodeProto, ...]
    names: tuple[str, ...]
    folded: tuple[NodeProto, ...]  # the nodes whose inputs are all constant, in that order, too
    constants: frozenset[str]  # the initialisers, and what the folded nodes give
    types: Mapping[str, ValueType]  # of every value
    sizes: Mapping[str, Size]  # as the caller gives them; see `give_sizes`
    values: Mapping[str, int] = field(default_factory=dict)  # of inputs, where the caller gives them
    random: frozenset[str] = frozenset()  # names of the nodes that draw random numbers
    opaque: frozenset[str] = frozenset()  # names of the nodes that ONNX does not describe; see `opaque_in`
    observed: Mapping[str, Any] | None = None  # what a run showed, if one was needed; see `observe`

    @property
    def in_file(self) -> list[int]:
        """The indices of the nodes by their places in the file."""
        index = {name: op for op, name in enumerate(self.names)}
        return [index[name] for name in node_names(self.model.graph) if name in index]

    @property
    def question(self) -> dict[str, Any]:
        """The arguments of `read_program` with which another process loads the same program, as JSON has them."""
        return {"path": self.path, "shapes": dict(self.sizes), "observed": self.observed or {}}


def read_program(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any] | None = None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and infer the shapes that can be inferred; see `runtime.load_program`."""
    model = read_model(path)
    skeleton = skeleton_of(path, model)
    values = give_sizes(path, skeleton.graph, shapes)
    graph, is_opaque, is_random = model.graph, opaque_in(model), random_in(model)
    has_opaque = any(map(is_opaque, graph.node))
    inferred = infer(path, skeleton, is_strict=not has_opaque)
    initializers = {tensor.name: ValueType(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    order, labels = default_order(graph, functions_of(model)), node_names(graph)
    folded, constants = _constant_nodes(graph, order, is_random)
    running = [index for index in order if index not in folded]
    if not running:
        raise ProgramError(f"{path}: all nodes are constant, so there is nothing to schedule")
    return OnnxProgram(
        path=path,
        model=model,
        inputs=tuple(value.name for value in graph.input if value.name not in initializers),
        outputs=tuple(value.name for value in graph.output),
        nodes=tuple(graph.node[index] for index in running),
        names=tuple(labels[index] for index in running),
        folded=tuple(graph.node[index] for index in folded),
        constants=frozenset(constants),
        types=known_types(path, graph, inferred, initializers, (observed or {}).get("types", {})),
        sizes=dict(shapes),
        values=values,
        random=frozenset(labels[index] for index in running if is_random(graph.node[index])),
        opaque=frozenset(labels[index] for index in running if is_opaque(graph.node[index])),
        observed=observed,
    )


def _constant_nodes(
    graph: GraphProto, order: Sequence[int], is_random: Callable[[NodeProto], bool]
) -> tuple[list[int], set[str]]:
    """Return those nodes of an order whose inputs are all constant, and the names of all constants."""
    constants = {tensor.name for tensor in graph.initializer}
    folded = []
    for index in order:
        node = graph.node[index]
        if node.op_type != DEQUANTIZE and constants.issuperset(reads(node)) and not is_random(node):
            folded.append(index)
            constants.update(filter(None, node.output))
    return folded, constants


def runs_of(program: OnnxProgram, order: Sequence[int]) -> list[NodeProto]:
    """Return the nodes in an order of their indices, in which some may run several times.

    The last run of a node has its name and gives the values that it has in the file; each one before has its own, which
    the nodes up to the next run read.
    """
    last = {op: step for step, op in enumerate(order)}
    taken, latest = {*program.types, *program.names}, dict[str, str]()
    nodes = []
    for step, op in enumerate(order):
        node, is_last = program.nodes[op], last[op] == step
        names = (program.names[op], *node.output)
        label, *results = names if is_last else (_unused(name, step, taken) for name in names)
        read = {name: latest[name] for name in reads(node) if name in latest}
        given = dict(zip(node.output, results, strict=True))
        nodes.append(renamed(node, label, {**read, **given}))
        latest.update(given)
    return nodes


def _unused(name: str, step: int, taken: set[str]) -> str:
    """Return a name for what a run gives; what has none in the file, as it is left out, stays without."""
    run = f"{name} (run {step})" if name else ""
    while run in taken:
        run += "'"
    return run
