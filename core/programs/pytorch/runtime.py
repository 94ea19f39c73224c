"""PyTorch programs: written as exported programs, and run with PyTorch's allocator."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..runtime import Note, Runtime
from .apply import arguments_of, export_in_order, other_result, reorder, results_of
from .costs import measured_costs
from .importer import graph_of
from .program import load_program
from .run import ARGUMENTS, held_bytes
from .sources import refuse_without_data
from .tracing import foreign_code, silent


class TorchRuntime(Runtime[bytes]):
    """A `.pt2` file, or what `module:function` returns; a version of it is the content of a `.pt2` file.

    A training step takes and updates what `TorchProgram.arguments` lists (the example inputs), and returns the loss.
    """

    runs = "pytorch.run:run_file"

    def load(self, note: Note) -> None:
        """Export or trace the program."""
        options = self.options
        self._expected: dict[str, str] | None = None
        self._other: str | None = None  # the result that a call of the model gives otherwise; empty if there is none
        self.program = load_program(self.model, options.training, options.plain_shapes, note, options.device)

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        measured = measured_costs(self.program, self.options.device) if costs == "measured" else None
        return graph_of(self.program, self.roofline, measured, note)

    def reordered(self, graph: CostGraph, order: Sequence[int]) -> bytes:
        """Save the program as an exported program with its ops in another order."""
        refuse_without_data(self.program.name, self.program.arguments)
        exported, file = export_in_order(self.program, graph, order), io.BytesIO()
        with self._saving():
            torch.export.save(exported, file)
        return file.getvalue()

    def results(self, version: bytes | None) -> dict[str, str]:
        """Run the program, or the one in a file, on its own arguments, which stay as they are."""
        if version is None:
            if self._expected is None:
                self._expected = results_of(self.program, self.program.module, self.program.arguments)
            return self._expected
        with self._saving():
            loaded = torch.export.load(io.BytesIO(version))
        return results_of(self.program, loaded.graph_module, arguments_of(loaded))

    def source(self, note: Note) -> str:
        """Return the model, or, where a call of it gives other results, the program that was exported."""
        if self._other is None:
            self._other = other_result(self.program, self.results(None)) or ""
            if self._other:
                note(
                    f"{self.model}: a call of the model gives another {self._other} than the exported program, as "
                    "PyTorch exports another branch of it, or it draws numbers outside of PyTorch"
                )
        return f"the program exported from {self.model}, not of its own call" if self._other else self.model

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Say if what was run is not what a call of the model does."""
        self.source(note)

    def save(self, version: bytes, output: str, note: Note) -> None:
        """Write a `.pt2` file."""
        write_atomically(output, version)
        if self.options.training != "none":
            note(f"{output}: a training step; its inputs are {len(self.program.arguments)} tensors, parameters first")

    def question(self, graph: CostGraph, order: Sequence[int] | None, file: Path) -> dict[str, Any]:
        """Write the code of an order, and once the arguments beside it."""
        program = self.program
        refuse_without_data(program.name, program.arguments)
        if not (arguments := file.with_name(ARGUMENTS)).exists():
            torch.save((program.arguments, program.training != "none"), arguments)
        ops = graph.input_order.tolist() if order is None else order
        file.write_text(reorder(program, graph, ops).code, encoding="utf-8")
        return {"path": str(file), "device": self.options.device, "threads": torch.get_num_threads()}

    def own_peak(self) -> int | None:
        """Call what `module:function` returns, in a process of its own."""
        options = self.options
        if self.model.endswith(".pt2") or options.training != "none":
            return None
        question = {"model": self.model, "sizes": options.plain_shapes, "device": options.device}
        answer = ask(
            "pytorch.run:run_call", {**question, "threads": torch.get_num_threads()}, f"{self.model}, as it is"
        )
        return int(answer)

    def held(self, graph: CostGraph) -> int:
        """Return the bytes of all arguments, also of those that no op reads."""
        return held_bytes(self.program.arguments)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        with foreign_code(self.model, "PyTorch cannot save the program in a .pt2 file"), silent():
            yield
