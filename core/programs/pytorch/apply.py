"""A PyTorch program in the order of a schedule: in memory, or saved as an exported program."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import numpy as np
import torch
from torch import fx, nn
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
from ...errors import ScheduleError, UsageError
from ...files.atomic import write_atomically
from ...graph import CostGraph
from ...problem import Problem
from ...schedule import Schedule
from ...solve import solve
from ...units import parse_seconds
from ..options import ImportOptions
from ..schedule_order import read_order
from .costs import measured_costs
from .example_call import ExampleCall
from .importer import graph_of
from .program import TorchProgram, load_program, program_of
from .run import digests_of_run
from .tracing import foreign_code, silent


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


def check_equal(program: TorchProgram, module: fx.GraphModule, arguments: Sequence[Any]) -> None:
    """Run a program in its own order and `module` in another, and compare all results bit for bit.

    Both run on copies of their arguments, with the same random numbers; what they change in place is compared too.

    Raises
    ------
    ScheduleError
        If a result differs; the message names it.
    """
    grad = program.training != "none"
    expected = digests_of_run(program.module, copy.deepcopy(program.arguments), grad)
    found = digests_of_run(module, copy.deepcopy(arguments), grad)
    names = [f"result {number}" for number in range(len(program.results))]
    names += [f"'{node.name}'" for node in program.module.graph.find_nodes(op="placeholder")]
    for name, one, other in zip(names, expected, found, strict=True):
        if one != other:
            raise ScheduleError(f"{program.name}: {name} would not be bitwise what it is in program order")


class TrainingStep(nn.Module):
    """A training step in the order of a schedule, called as the model is; see `optimize`.

    Parameters
    ----------
    program
        What to run; the model's own parameters and buffers are among its arguments.
    module
        The program in another order.
    call
        What the program was traced with.
    """

    def __init__(self, program: TorchProgram, module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self._arguments = program.arguments
        self._roles = program.roles

    @torch.enable_grad()
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run one step on these inputs: update parameters and optimizer state in place and return the loss.

        Raises
        ------
        UsageError
            If an input has another shape or type than that which the step was made for; then nothing is updated.
        """
        given = iter(self._call.tensors_of(args, kwargs))
        values = [
            next(given) if role == "input" else value for value, role in zip(self._arguments, self._roles, strict=True)
        ]
        loss: torch.Tensor = self.module(*values)
        return loss


def _checked(model: Any, time_limit: float | str | None) -> float | None:
    """Refuse what is no model, and return the time limit in seconds."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"a model is a PyTorch module, not {type(model).__name__}; optimize(model, inputs)")
    return None if time_limit is None else parse_seconds(time_limit)


def optimize(
    model: nn.Module,
    inputs: Any,
    *,
    training: str = "none",
    method: str = "auto",
    time_limit: float | str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
) -> nn.Module:
    """Return the model as a program whose ops run in an order of less peak memory, with the same results.

    The ops are run on the example inputs, where these are, to measure their costs. The results are bitwise those of the
    model as it is exported; where PyTorch takes a fused path that it cannot export (`nn.MultiheadAttention` in
    evaluation, without gradients), the model itself differs from that in the last bits.

    Parameters
    ----------
    model
        Any module that `torch.export` can trace.
    inputs
        Example inputs: a tuple of arguments, a dict of keywords, or one tensor. The result is for their shapes.
    training
        `none` for the forward pass; `sgd` or `adam` for a training step.
    method, time_limit, evaluations, seed
        As in `schedopt.solve`: how to find the order, for how long or how many complete schedules, from which seed.

    Returns
    -------
    torch.nn.Module
        It shares the model's parameters and is called as the model is. Forward it is a `GraphModule` that returns what
        the model returns; call it under `torch.no_grad()`, as autograd keeps tensors that the order counts as free. In
        training it is a `TrainingStep`: it updates the parameters in place and returns the loss.

    Raises
    ------
    ProgramError, UsageError
        If the model cannot be traced, or the method not used like this.
    ScheduleError
        If the results would differ from those in program order.

    Examples
    --------
    >>> import torch
    >>> model, inputs = torch.nn.Linear(8, 4).eval(), torch.ones(2, 8)
    >>> optimized = schedopt.optimize(model, inputs, evaluations=10)
    >>> with torch.no_grad():
    ...     torch.equal(optimized(inputs), model(inputs))
    True
    """
    seconds = _checked(model, time_limit)
    program = program_of(model, inputs, training)
    graph = graph_of(program, measured=measured_costs(program))
    found = solve(Problem(graph), method, evaluations=evaluations, time_limit=seconds, seed=seed).schedule
    order = found.op_order().tolist()
    module = reorder(program, graph, order)
    check_equal(program, module, program.arguments)
    if training != "none":
        return TrainingStep(program, module, ExampleCall(model.forward, inputs))
    return export_in_order(program, graph, order).module()
