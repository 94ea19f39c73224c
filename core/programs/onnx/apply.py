"""An ONNX file with its nodes in the order of a schedule."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import FormatError
from .model_file import external_files
from .nodes import named
from .program import OnnxProgram

if TYPE_CHECKING:
    from onnx import ModelProto


def reorder(program: OnnxProgram, order: Sequence[int]) -> ModelProto:
    """Return the file's model with its nodes in another order, each constant node before its first reader.

    A node without a name gets the one in the schedule, so that the schedule fits the new file, too.
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
