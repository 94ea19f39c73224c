"""An ONNX program whose sizes are all known, and what there is to say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...base.errors import ProgramError
from ..options import Size
from .nodes import reads
from .program import DEQUANTIZE, OnnxProgram, read_program
from .shapes import ValueType

_NAMED_KINDS = 6


def load_program(path: str, shapes: Mapping[str, Size], note: Callable[[str], None] = lambda text: None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and find every shape: inferred, or seen in a run of the model."""
    program = _with_observation(read_program(path, shapes), note)
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
            label = f"'{node.name}' ({node.op_type})" if node.name else f"({node.op_type})"
            what = f"only a run tells the size of '{name}', which node {label} makes"
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
