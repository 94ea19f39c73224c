"""PyTorch programs: written as exported programs, and run with PyTorch's allocator."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram, graph_signature
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

from ...base.errors import UsageError
from ...files.atomic import write_atomically
from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..runtime import Note, Runtime
from .importer import graph_of
from .program import load_program, refuse_without_data, tensors_of, values_of, with_graph
from .run import ARGUMENTS, SEED, digest, digests, held_bytes, measured_costs, reorder, results_of
from .step_graph import untouched
from .torch_internals import TrainingIRVerifier, pytree
from .tracing import STEP, TorchProgram, foreign_code, silent

_NOT_SAVED = "PyTorch cannot save the program in a .pt2 file"


class TorchRuntime(Runtime[bytes]):
    """A `.pt2` file, or the result of `module:function`; a version of it is the content of a `.pt2` file."""

    runs = "pytorch.run:run_file"

    def load(self, note: Note) -> None:
        """Export or trace the program."""
        self._expected: dict[str, str] | None = None
        self._other: str | None = None  # the result that a call of the model gives otherwise; empty if there is none
        self.program = load_program(self.model, self.options, note)

    def check_file(self) -> None:
        """Refuse a step, whose optimizer's counts are no tensors."""
        if self.program.training == STEP:
            raise UsageError(
                f"{self.model}: a file would keep the learning rates and counts of this one step; run the step in a "
                "better order by schedopt.optimize(step, inputs)"
            )

    def graph(self, costs: str, note: Note) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        measured = measured_costs(self.program, self.options.device) if costs == "measured" else None
        return graph_of(self.program, self.roofline, measured, note)

    def reordered(self, graph: CostGraph, order: Sequence[int]) -> bytes:
        """Save the program as an exported program with its ops in another order."""
        refuse_without_data(self.program.name, self.program.arguments)
        exported, file = export_in_order(self.program, graph, order), io.BytesIO()
        with foreign_code(self.model, _NOT_SAVED), silent():
            torch.export.save(exported, file)
        return file.getvalue()

    def results(self, version: bytes | None) -> dict[str, str]:
        """Run the program, or the one in a file, on its own arguments, which stay as they are."""
        if version is None:
            if self._expected is None:
                self._expected = results_of(self.program, self.program.module, self.program.arguments)
            return self._expected
        with foreign_code(self.model, _NOT_SAVED), silent():
            loaded = torch.export.load(io.BytesIO(version))
        return results_of(self.program, loaded.graph_module, values_of(loaded, loaded.example_inputs))

    def source(self, note: Note) -> str:
        """Return the model, or, where a call of it gives other results, the program that was exported."""
        if self._other is None:
            self._other = other_result(self.program, self.results(None)) or ""
            if self._other:
                note(
                    f"{self.model}: a call of the model gives another {self._other} than the exported program: PyTorch "
                    "exports another branch of it, or it draws numbers outside of PyTorch"
                )
        return f"the program exported from {self.model}, not of its own call" if self._other else self.model

    def remark(self, reports: Mapping[str, Sequence[Mapping[str, Any]]], note: Note) -> None:
        """Note if the run differs from a call of the model."""
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
        """Call the result of `module:function`, in a process of its own."""
        options = self.options
        if self.model.endswith(".pt2") or options.training != "none":
            return None
        question: dict[str, Any] = {"model": self.model, "sizes": options.plain_shapes, "device": options.device}
        question["threads"] = torch.get_num_threads()
        return int(ask("pytorch.run:run_call", question, f"{self.model}, as it is"))

    def held(self, graph: CostGraph) -> int:
        """Return the bytes of all arguments, also of those that no op reads."""
        return held_bytes(self.program.arguments, self.program.device.type)


def export_in_order(program: TorchProgram, graph: CostGraph, order: Sequence[int]) -> ExportedProgram:
    """Return the program as an exported program with its ops in this order."""
    module = reorder(program, graph, order)
    exported = program.exported or _exported_step(program, module)
    results = pytree.tree_leaves(module.graph.output_node().args)
    specs = [  # the result of an op which ran again has another name
        replace(spec, arg=replace(spec.arg, name=result.name)) if isinstance(result, fx.Node) else spec
        for spec, result in zip(exported.graph_signature.output_specs, results, strict=True)
    ]
    return with_graph(exported, module, replace(exported.graph_signature, output_specs=specs))


def _exported_step(program: TorchProgram, module: fx.GraphModule) -> ExportedProgram:
    """Return a training step as an exported program of which every argument is an input."""
    graph = module.graph
    output = graph.output_node()
    if isinstance(output.args[0], fx.Node):
        output.args = ((output.args[0],),)
    placeholders = [TensorArgument(node.name) for node in graph.find_nodes(op="placeholder")]
    results = [TensorArgument(node.name) for node in output.all_input_nodes]
    _, in_spec = pytree.tree_flatten((program.arguments, {}))
    _, out_spec = pytree.tree_flatten(0)
    return ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=graph_signature.ExportGraphSignature(
            [InputSpec(InputKind.USER_INPUT, argument, None) for argument in placeholders],
            [OutputSpec(OutputKind.USER_OUTPUT, result, None) for result in results],
        ),
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))],
        example_inputs=(program.arguments, {}),
        constants={},
        verifiers=[TrainingIRVerifier],
    )


def other_result(program: TorchProgram, found: Mapping[str, str]) -> str | None:
    """Return which result of those of `results_of` a call of the model itself gives otherwise; None if none."""
    model, exported = program.source, program.exported
    if model is None or exported is None:
        return None
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), exported.example_inputs)
    restored = untouched(model, tensors_of(model))
    with foreign_code(program.name, "the model cannot be called"), restored, torch.no_grad():
        torch.manual_seed(SEED)
        expected = digests(model(*args, **kwargs))
        held = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        state = {name: digest(tensor) for name, tensor in held.items()}
    results = (name for name, role in zip(found, program.results, strict=False) if role == "output")
    names = program.module.graph.find_nodes(op="placeholder")
    for name, node, role in zip(program.names, names, program.roles, strict=True):
        if role in ("parameter", "buffer") and state.get(name, found[f"'{node.name}'"]) != found[f"'{node.name}'"]:
            return f"'{name}'"
    return next((name for name, one in zip(results, expected, strict=True) if found[name] != one), None)
