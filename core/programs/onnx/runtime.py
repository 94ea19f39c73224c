"""ONNX programs: written as ONNX files, and run by ONNX Runtime with memory counted by glibc's allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import ProgramError
from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..measurement import PROGRAM_ORDER
from ..runtime import Note, Runtime
from .apply import copy_external_data, reorder
from .importer import graph_of
from .loading import load_program

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxRuntime(Runtime["ModelProto"]):
    """An ONNX file; in a version of it only the order of the nodes is another.

    A run is on one thread, in the given order, with optimisations off, and each tensor is freed after its last reader.
    Constants are computed beforehand and held like initialisers.
    """

    runs = "onnx.run"

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
        """Run the file, or a version of it, in its own order on random inputs."""
        from .run import digests
        from .session import random_inputs, run_model

        program = self.program
        model = program.model if version is None else version
        try:
            outputs = run_model(model, Path(program.path).parent, random_inputs(program))
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
        """Name the nodes in an order."""
        names = self.program.names
        return {**self.program.question, "order": None if order is None else [names[op] for op in order]}

    def reason(self) -> str:
        """Name a node whose random numbers depend on its place."""
        for node, name in zip(self.program.nodes, self.program.names, strict=True):
            if name in self.program.random:
                return f": node '{name}' ({node.op_type}) draws random numbers by its place in the file"
        return ""

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Name nodes that have no place in the order, as ONNX Runtime runs their definitions."""
        if not_run := reports[PROGRAM_ORDER][0]["not_run"]:
            more = f" and {len(not_run) - 1} others" if len(not_run) > 1 else ""
            note(
                f"{self.model}: ONNX Runtime has no kernel for node '{not_run[0]}'{more}: it runs the ops of its "
                "definition when no other node is ready, so that the order is not quite what was asked for"
            )
