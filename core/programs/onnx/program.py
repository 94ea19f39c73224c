"""What an ONNX program is here: the nodes of a file that run, in its order, and what type every value has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from ...errors import ProgramError
from ..options import Size
from .dimensions import give_sizes
from .model_file import read_model, skeleton_of
from .nodes import node_names, opaque_in, random_in, reads
from .shapes import ValueType, infer, known_types

DEQUANTIZE = "DequantizeLinear"
_NAMED_KINDS = 6


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
        What the caller of the program says of its sizes; see `give_sizes`.
    values
        Of the inputs whose value the caller says.
    random
        Names of the nodes that draw random numbers.
    opaque
        Names of the nodes that ONNX does not describe; see `opaque_in`.
    observed
        What a run showed; see `Observation`. None if none was needed.
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
    sizes: Mapping[str, Size]
    values: Mapping[str, int] = field(default_factory=dict)
    random: frozenset[str] = frozenset()
    opaque: frozenset[str] = frozenset()
    observed: Mapping[str, Any] | None = None

    @property
    def question(self) -> dict[str, Any]:
        """The arguments of `load_program` with which another process loads the same program, as JSON has them."""
        return {"path": self.path, "shapes": dict(self.sizes), "observed": self.observed or {}}


def load_program(
    path: str,
    shapes: Mapping[str, Size],
    note: Callable[[str], None] = lambda text: None,
    observed: Mapping[str, Any] | None = None,
) -> OnnxProgram:
    """Read an ONNX file, fold its constants and find every shape: inferred, or seen in a run of the model.

    Parameters
    ----------
    path
        The `.onnx` file; its external data are looked for beside it, and not read.
    shapes
        A size for each symbolic dimension, by its name, or all sizes of an input, by its name; see `give_sizes`.
    note
        Called with each remark worth showing.
    observed
        What a run showed, as `observe` returns it; by default it runs where shapes cannot be inferred.

    Raises
    ------
    FormatError
        If the file is missing, truncated or not valid ONNX, or external data are missing.
    ProgramError
        If a value is no tensor, naming its node; or sizes cannot be told without a run, and it cannot run.
    UsageError
        If a symbolic dimension has no size, listing all of them; or a size is for no dimension.
    """
    model = read_model(path)
    skeleton = skeleton_of(path, model)
    values = give_sizes(path, skeleton.graph, shapes)
    graph, is_opaque, is_random = model.graph, opaque_in(model), random_in(model)
    has_opaque = any(map(is_opaque, graph.node))
    inferred = infer(path, skeleton, is_strict=not has_opaque)
    initializers = {tensor.name: ValueType(tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    folded, constants = _constant_nodes(graph, is_random)
    labels = node_names(graph)
    running = [index for index in range(len(graph.node)) if index not in folded]
    if not running:
        raise ProgramError(f"{path}: all nodes are constant, so there is nothing to schedule")
    program = OnnxProgram(
        path=path,
        model=model,
        inputs=tuple(value.name for value in graph.input if value.name not in initializers),
        outputs=tuple(value.name for value in graph.output),
        nodes=tuple(graph.node[index] for index in running),
        names=tuple(labels[index] for index in running),
        folded=tuple(graph.node[index] for index in sorted(folded)),
        constants=frozenset(constants),
        types=known_types(path, graph, inferred, initializers, (observed or {}).get("types", {})),
        sizes=dict(shapes),
        values=values,
        random=frozenset(labels[index] for index in running if is_random(graph.node[index])),
        opaque=frozenset(labels[index] for index in running if is_opaque(graph.node[index])),
        observed=observed,
    )
    if observed is None:
        program = _with_observation(program, note)
    _say(program, note)
    return program


def _with_observation(program: OnnxProgram, note: Callable[[str], None]) -> OnnxProgram:
    """Run a program where shapes or opaque nodes ask for it; return it with what that showed."""
    needed = {*program.outputs, *(name for node in program.nodes for name in (*reads(node), *node.output))}
    made = [(node, name) for node in (*program.nodes, *program.folded) for name in node.output if name in needed]
    missing = [(node, name) for node, name in made if name and name not in program.types]
    if not missing and not program.opaque:
        return program
    from .observe import observe

    try:
        observed = observe(program)
    except ProgramError as error:
        if missing:
            node, name = missing[0]
            what = f"only a run tells the size of '{name}' ({node.op_type})"
            raise ProgramError(f"{program.path}: {what}, and {_without(program.path, error)}") from None
        reason = _without(program.path, error)
        note(f"{program.path}: {reason}; what its opaque nodes take beside their results is not known, and not counted")
        return replace(program, observed={})
    types = {name: ValueType(element, tuple(shape)) for name, (element, shape) in observed["types"].items()}
    return replace(program, observed=observed, types={**program.types, **types})


def _without(path: str, error: ProgramError) -> str:
    return str(error).removeprefix(f"{path}: ")


def _say(program: OnnxProgram, note: Callable[[str], None]) -> None:
    """Tell what is not as it stands in the file, and what was seen in one run alone."""
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
        first = next(iter(program.observed["types"]))
        many = len(program.observed["types"])
        note(f"{path}: the sizes of {many} values, as '{first}', depend on data: they are those of one run")
    quantized = sum(node.op_type == DEQUANTIZE and program.constants.issuperset(reads(node)) for node in program.nodes)
    if quantized:
        note(
            f"{path}: {quantized} constants are stored quantised and count so, each dequantised by a node of its own; "
            "ONNX Runtime fuses these into integer kernels: import what it optimised and saved"
        )


def _constant_nodes(graph: GraphProto, is_random: Callable[[NodeProto], bool]) -> tuple[set[int], set[str]]:
    """Return the indices of the nodes whose inputs are all constant, and the names of all constants.

    What dequantises a constant runs: weights are held as they are stored.
    """
    constants = {tensor.name for tensor in graph.initializer}
    folded = set()
    for index, node in enumerate(graph.node):
        if node.op_type != DEQUANTIZE and constants.issuperset(reads(node)) and not is_random(node):
            folded.add(index)
            constants.update(filter(None, node.output))
    return folded, constants
