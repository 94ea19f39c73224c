"""ONNX programs: loaded, written in another order, and run by ONNX Runtime with memory counted by glibc."""

from __future__ import annotations

import filecmp
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from ...base.errors import FormatError, ProgramError
from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..measurement import PROGRAM_ORDER
from ..options import Size
from ..runtime import Note, Runtime
from .importer import graph_of
from .model_file import external_files
from .nodes import reads
from .program import DEQUANTIZE, OnnxProgram, read_program, runs_of
from .shapes import ValueType

_NAMED_KINDS = 6
COMMON = {getattr(TensorProto, name) for name in ("FLOAT", "INT8", "UINT8", "INT32", "INT64", "BOOL")}
"""Types of elements for which ONNX Runtime has kernels on a CPU."""


def load_program(path: str, shapes: Mapping[str, Size], note: Callable[[str], None] = lambda text: None) -> OnnxProgram:
    """Read an ONNX file, fold its constants and find every shape: inferred, or seen in a run of the model."""
    program = _with_observation(read_program(path, shapes), note)
    _say(program, note)
    _say_casts(program, note)
    return program


def _with_observation(program: OnnxProgram, note: Callable[[str], None]) -> OnnxProgram:
    """Run a program where shapes or opaque nodes ask for it; return it with what that showed."""
    needed = {*program.outputs, *(name for node in program.nodes for name in (*reads(node), *node.output))}
    made = [(node, name) for node in (*program.nodes, *program.folded) for name in node.output if name in needed]
    missing = [(node, name) for node, name in made if name and name not in program.types]
    if not missing and not program.opaque:
        return program
    from .costs import observe

    try:
        observed = observe(program)
    except ProgramError as error:
        reason = str(error).removeprefix(f"{program.path}: ")
        if missing:
            node, name = missing[0]
            label = f"'{node.name}' ({node.op_type})" if node.name else f"({node.op_type})"
            what = f"only a run tells the size of '{name}', which node {label} makes"
            raise ProgramError(f"{program.path}: {what}, and {reason}") from None
        note(f"{program.path}: {reason}; what its opaque nodes take beside their results is not known, and not counted")
        return replace(program, observed={})
    types = {name: ValueType(element, tuple(shape)) for name, (element, shape) in observed["types"].items()}
    return replace(program, observed=observed, types={**program.types, **types})


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


def _say_casts(program: OnnxProgram, note: Callable[[str], None]) -> None:
    """Tell what ONNX Runtime casts, as it has no kernels for it on a CPU, or does not load."""
    seen = {program.types[name].element for node in program.nodes for name in (*reads(node), *node.output) if name}
    if seen <= COMMON:
        return
    from .session import casts_in

    try:
        casts = casts_in(program)
    except ProgramError as error:
        note(f"{program.path}: planned, but not to be run on this machine: {error}")
        return
    if casts:
        note(
            f"{program.path}: ONNX Runtime adds {casts} casts to float32 and back, for want of kernels on a CPU, which "
            "are not counted: import what it optimised and saved"
        )


def reorder(program: OnnxProgram, order: Sequence[int]) -> ModelProto:
    """Return the file's model with its nodes in another order, each constant node before its first reader.

    A node without a name gets the one in the schedule, so that the schedule fits the new file, too; see `runs_of`.
    """
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
    """An ONNX file; in a version of it the nodes have another order, and some may stand there several times.

    Program order is ONNX Runtime's default one. A run is on one thread, in the given order, with optimisations off, and
    each tensor is freed after its last reader. Constants are computed beforehand and held like initialisers.
    """

    runs = "onnx.session:run_order"

    def load(self, note: Note) -> None:
        """Read the file and find every shape."""
        self.program = load_program(self.model, self.options.shapes, note)

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        measured = None
        if costs == "measured":
            from .costs import measured_costs

            measured = measured_costs(self.program)
        return graph_of(self.program, self.roofline, measured, note)

    def reordered(self, graph: CostGraph, order: Sequence[int]) -> ModelProto:
        """Return the file's model with its nodes in another order; sizes that are symbolic stay so."""
        return reorder(self.program, order)

    def results(self, version: ModelProto | None) -> dict[str, str]:
        """Run the file, or a version of it, in the order of its nodes on random inputs."""
        from .session import digests, random_inputs, run_model

        program = self.program
        try:
            outputs = run_model(version or program.model, Path(program.path).parent, random_inputs(program))
        except ProgramError as error:
            raise ProgramError(f"{program.path}: {error}") from None
        names = (f"output '{name}'" for name in program.outputs)
        return dict(zip(names, digests(outputs), strict=True))

    def save(self, version: ModelProto, output: str, note: Note) -> None:
        """Write an ONNX file, and its external data beside it."""
        copy_external_data(self.program, Path(output))
        write_atomically(output, version.SerializeToString())
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
                "definition when no other node is ready, so that the order is not quite what was asked for"
            )
