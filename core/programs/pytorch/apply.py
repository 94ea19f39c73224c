"""PyTorch programs in the order of a schedule: as a graph module or an exported program, with equal results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from ...base.errors import UsageError
from ...graph.graph import CostGraph
from ..runtime import check_equal
from .node_order import in_order
from .program import STEP, TorchProgram, with_graph
from .python_state import untouched
from .replay import SEED, Replay
from .run import digest, digests
from .sources import refuse_without_data, tensors_of
from .torch_internals import TrainingIRVerifier, pytree
from .tracing import foreign_code


def reorder(program: TorchProgram, graph: CostGraph, order: Sequence[int]) -> fx.GraphModule:
    """Return the program with its ops in a valid order of its graph, some several times perhaps; see `in_order`."""
    return in_order(program.module, [graph.op_names[op] for op in order])


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
    if program.training == STEP:
        raise UsageError(
            f"{program.name}: a file would keep the learning rates and counts of this one step; run the step in a "
            "better order by schedopt.optimize(step, inputs)"
        )
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
        graph_signature=ExportGraphSignature(
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


def arguments_of(exported: ExportedProgram) -> tuple[Any, ...]:
    """Return the tensors and values that an exported program runs on, one for each placeholder."""
    owned = {**exported.constants, **exported.state_dict}
    inputs = iter(pytree.tree_leaves(exported.example_inputs))
    return tuple(
        next(inputs) if spec.target is None else owned[spec.target] for spec in exported.graph_signature.input_specs
    )


def check_module(program: TorchProgram, module: fx.GraphModule) -> None:
    """Run a program in its own order, then `module` in another; raise `ScheduleError` if a result differs."""
    refuse_without_data(program.name, program.arguments)
    expected = results_of(program, program.module, program.arguments)
    check_equal(program.name, expected, results_of(program, module, program.arguments))


def results_of(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> dict[str, str]:
    """Run a program in some order; return digests by the names of its results and of its arguments as they become.

    Random numbers are the same in every run, and the arguments stay as they are.
    """
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    found = digests_of_run(program.name, module, arguments, program.training != "none")
    return dict(zip(names, found, strict=True))


def other_result(program: TorchProgram, found: Mapping[str, str]) -> str | None:
    """Return which result, of those that `results_of` found, a call of the model itself gives otherwise; None if none.

    The call is one without gradients, from the same random numbers; the model is afterwards as it was.
    """
    model, exported = program.source, program.exported
    if model is None or exported is None:
        return None
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), exported.example_inputs)
    as_it_was = untouched(model, tensors_of(model))
    with foreign_code(program.name, "the model cannot be called"), as_it_was, torch.no_grad():
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


def digests_of_run(name: str, module: fx.GraphModule, arguments: Sequence[Any], grad: bool) -> list[str]:
    """Run a program op by op; return digests of its results, then of what its arguments would have become."""
    run = _Digests(name, module)
    results = digests(run.run(arguments, grad))
    return results + [run.written.get(number) or digest(value) for number, value in enumerate(arguments)]


class _Digests(Replay):
    """Keeps the digest of what each argument that is written to becomes, by its number."""

    def __init__(self, name: str, module: fx.GraphModule) -> None:
        super().__init__(name, module)
        self.written: dict[int, str] = {}

    def wrote(self, number: int, value: torch.Tensor) -> None:
        """Digest what an argument has become."""
        self.written[number] = digest(value)
