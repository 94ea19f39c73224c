"""An ONNX file with its nodes in the order of a schedule."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import FormatError, ProgramError, ScheduleError
from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..schedule_order import check_order, refuse_repeats
from .model_file import external_files
from .program import OnnxProgram
from .run import digests
from .session import named, random_inputs, run_model

if TYPE_CHECKING:
    from onnx import ModelProto


def write_in_order(program: OnnxProgram, graph: CostGraph, order: Sequence[int], output: str) -> None:
    """Write an ONNX file whose nodes are in another order.

    Only the order of the nodes changes, and one without a name gets the one in the schedule, so that the schedule fits
    the new file too. A constant node stands before its first reader. External data are copied
    beside the new file. Before anything is written, the original and the new model run under ONNX Runtime in their
    files' orders with the same random inputs, and give bitwise equal results.

    Parameters
    ----------
    program, graph
        What to write, and its graph. Sizes that are symbolic stay so in the file.
    order
        The graph's ops in the order they shall run.
    output
        The `.onnx` file to write.

    Raises
    ------
    FormatError, ProgramError
        If ONNX Runtime cannot run the model, or the output cannot be written.
    UsageError
        If an op runs several times.
    ScheduleError
        If this is no order of the model, or its results would differ; then nothing is written.
    """
    refuse_repeats(program.path, graph, order)
    check_order(graph, order)
    reordered = reorder(program, order)
    check_equal(program, reordered)
    copy_external_data(program, Path(output))
    write_atomically(output, reordered.SerializeToString())


def reorder(program: OnnxProgram, order: Sequence[int]) -> ModelProto:
    """Return the file's model with its nodes in another order; one without a name gets the one the schedule calls it.

    Parameters
    ----------
    program
        What to put in order; it is not changed.
    order
        Indices into `program.nodes`, a topological order. Each constant node goes before its first reader.
    """
    model = deepcopy(program.model)
    waiting = {name: node for node in program.folded for name in node.output if name}
    nodes = []

    def add_constants(names: Sequence[str]) -> None:
        for name in names:
            if name in waiting:
                node = waiting[name]
                for result in filter(None, node.output):
                    del waiting[result]
                add_constants(node.input)
                nodes.append(node)

    for op in order:
        add_constants(program.nodes[op].input)
        nodes.append(named(program.nodes[op], program.nodes[op].name or program.names[op]))
    add_constants(list(waiting))
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return model


def check_equal(program: OnnxProgram, reordered: ModelProto) -> None:
    """Run a program as it is and reordered, and compare all outputs bit by bit.

    Parameters
    ----------
    program, reordered
        What to compare.

    Raises
    ------
    ProgramError
        If ONNX Runtime cannot load or run the file.
    ScheduleError
        If an output differs, naming it.
    """
    inputs = random_inputs(program)
    folder = Path(program.path).parent
    try:
        before, after = (digests(run_model(model, folder, inputs)) for model in (program.model, reordered))
    except ProgramError as error:
        raise ProgramError(f"{program.path}: {error}") from None
    for output, expected, found in zip(program.outputs, before, after, strict=True):
        if expected != found:
            raise ScheduleError(
                f"{program.path}: output '{output}' would differ in the order of the schedule{_reason(program)}"
            )


def _reason(program: OnnxProgram) -> str:
    for node, name in zip(program.nodes, program.names, strict=True):
        if name in program.random:
            return f": node '{name}' ({node.op_type}) draws random numbers by its place in the file"
    return ""


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
