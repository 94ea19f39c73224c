"""A PyTorch program in the order of a schedule: as a graph module, or saved as an exported program."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._export.verifier import TrainingIRVerifier
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
from torch.utils import _pytree as pytree

from ...costs.verifier import verify
from ...errors import UsageError
from ...files.atomic import write_atomically
from ...graph import CostGraph
from ...problem import Problem
from ...schedule import Schedule
from ..options import ImportOptions
from ..schedule_order import read_order
from .equality import check_equal
from .importer import graph_of
from .program import STEP, TorchProgram, load_program
from .tracing import foreign_code, silent
from .without_data import refuse_without_data


def apply(
    model: str,
    schedule: str,
    output: str,
    options: ImportOptions,
    note: Callable[[str], None],
    *,
    force: bool = False,
) -> None:
    """Write a model in the order of a schedule, as an exported program.

    A forward program is called as the model is. A training step takes and updates what `TorchProgram.arguments` lists
    (parameters, buffers, inputs, optimizer state, which the file holds as its example inputs) and returns the loss.
    What is written was loaded again and run, and its results are bitwise those of program order.

    Parameters
    ----------
    model
        A `.pt2` file, or `module:function`.
    schedule
        Schedule file of the model's graph, on one device.
    output
        The `.pt2` file to write.
    options
        As the model was imported.
    note
        Called with each remark worth showing.
    force
        Whether to take a schedule that says that it was made for another graph.

    Raises
    ------
    ProgramError, FormatError, UsageError
        If the model or the schedule cannot be read, or the output cannot be written.
    ScheduleError
        If the schedule is no order of this program, or its results would differ; then nothing is written.
    """
    if not output.endswith(".pt2"):
        raise UsageError(f"{output}: a PyTorch program is written as an exported program; the name must end in .pt2")
    program = load_program(model, options.training, options.shapes, note, options.device)
    refuse_without_data(program.name, program.arguments)
    graph = graph_of(program)
    reordered = export_in_order(program, graph, read_order(schedule, graph, force=force))
    file = io.BytesIO()
    with foreign_code(model, "PyTorch cannot save the program in a .pt2 file"), silent():
        torch.export.save(reordered, file)
        file.seek(0)
        loaded = torch.export.load(file)
    check_equal(program, loaded.graph_module, _arguments_of(loaded))
    write_atomically(output, file.getvalue())
    if options.training != "none":
        note(f"{output}: a training step; its inputs are {len(program.arguments)} tensors, parameters first")


def reorder(program: TorchProgram, graph: CostGraph, order: Sequence[int]) -> fx.GraphModule:
    """Return the program with its ops in another order; arguments and results stay as they are.

    Parameters
    ----------
    program
        What to put in order; it is not changed.
    graph
        Its graph, whose edges say what an order must keep: reads, writes in place, random ops.
    order
        The graph's ops in the order they shall run. A `getitem` follows the op that it belongs to.

    Raises
    ------
    ScheduleError
        If this is no order of the graph; the message names the op.
    """
    verify(Problem(graph), Schedule.single_device(np.array(order)))
    old = program.module.graph
    nodes = {node.name: node for node in old.nodes}
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}

    def add(node: fx.Node) -> None:
        copies[node] = new.node_copy(node, copies.__getitem__)
        for user in node.users:
            if user.target is getitem and user.users:
                add(user)

    for node in old.nodes:
        if node.op in ("placeholder", "get_attr"):
            add(node)
    for op in order:
        add(nodes[graph.op_names[op]])
    add(old.output_node())
    return fx.GraphModule(program.module, new)


def export_in_order(program: TorchProgram, graph: CostGraph, order: Sequence[int]) -> ExportedProgram:
    """Return the program as an exported program with its ops in this order; see `reorder` and `apply`."""
    module = reorder(program, graph, order)
    exported = program.exported or _exported_step(program, module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=exported.graph_signature,
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        example_inputs=exported.example_inputs,
        constants=exported.constants,
        verifiers=exported.verifiers,
    )


def _exported_step(program: TorchProgram, module: fx.GraphModule) -> ExportedProgram:
    """Return a training step as an exported program of which every argument is an input.

    Raises
    ------
    UsageError
        If it is a function's step, whose numbers change from call to call.
    """
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


def _arguments_of(exported: ExportedProgram) -> tuple[Any, ...]:
    """Return the tensors and values that an exported program runs on, one for each placeholder."""
    owned = {**exported.constants, **exported.state_dict}
    inputs = iter(pytree.tree_leaves(exported.example_inputs))
    return tuple(
        next(inputs) if spec.target is None else owned[spec.target] for spec in exported.graph_signature.input_specs
    )
