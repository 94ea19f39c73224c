"""A PyTorch program: a model as one flat graph of ATen calls with the tensors it runs on, forward or a training step.

The calls are those that PyTorch itself makes for the model, below autograd: composite ops are taken apart, in-place
ops stay in place, and the order is the one in which eager execution meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from ...base.errors import ProgramError, UsageError
from .model_attributes import untouched
from .outputs import known_outputs
from .rehearsal import graph_of_step
from .sources import as_call, call_function, read_exported, specialised
from .torch_internals import pytree
from .tracing import check_flat, foreign_code, rename, silent, trace
from .training import training_step, update_of
from .without_data import placed

Note = Callable[[str], None]
STEP = "step"
_INPUT_ROLES = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}
_RESULT_ROLES = {
    OutputKind.USER_OUTPUT: "output",
    OutputKind.LOSS_OUTPUT: "output",
    OutputKind.BUFFER_MUTATION: "buffer",
    OutputKind.PARAMETER_MUTATION: "parameter",
    OutputKind.USER_INPUT_MUTATION: "input",
}


@dataclass(frozen=True)
class TorchProgram:
    """A flat graph of ATen calls and the tensors it runs on; `program.module(*program.arguments)` runs it once.

    Running it changes what the program changes in place: buffers, and in training parameters and optimizer state.
    The tensors are detached, so no autograd graph is built, and share their memory with the model's own.

    Parameters
    ----------
    name
        What to call it in reports.
    module
        Its graph has placeholders, calls of ATen ops, `getitem` of calls with several results, and one output.
    arguments
        What each placeholder stands for, in their order; an input that is no tensor is the value itself.
    roles
        Per argument: `parameter`, `buffer`, `constant`, `input`, or `state` (of the optimizer).
    results
        Per value that the graph returns: `output` or `loss`; `buffer`, `parameter` or `input` if it is the new
        value of one, which the caller copies (functionalised exported programs only).
    training
        `none`, `sgd` or `adam`; `step` for a function that does a whole step.
    exported
        A forward program as an exported program, whose graph module is `module`; None in training.
    names
        Per argument, what the caller calls it: the name in the state dict, the model's own argument, or for the state
        of an optimizer the parameter and the state's name, as in `encoder.weight.exp_avg`. By default, those of the
        placeholders.
    """

    name: str
    module: fx.GraphModule
    arguments: tuple[Any, ...]
    roles: tuple[str, ...]
    results: tuple[str, ...]
    training: str = "none"
    exported: ExportedProgram | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            placeholders = self.module.graph.find_nodes(op="placeholder")
            object.__setattr__(self, "names", tuple(node.name for node in placeholders))


def load_program(
    model: str,
    training: str = "none",
    shapes: Mapping[str, int] | None = None,
    note: Note = lambda text: None,
    device: str | None = None,
) -> TorchProgram:
    """Load a PyTorch program from a file or from Python.

    Parameters
    ----------
    model
        A `.pt2` file written by `torch.export.save`, or `module:function`: a function, importable from the current
        folder, that returns a model and its example inputs (a tuple, or a dict of keywords); instead of a model, it may
        return a function that does a training step, see `step_program`.
    training
        `none` for the forward pass alone; `sgd` or `adam` for a training step, see `program_of`.
    shapes
        A size for each symbolic dimension of an exported program; keyword arguments of the function.
    note
        Called with each remark worth showing.
    device
        Where to move the model and its inputs to; by default they stay. A model without data, on the meta device, is
        planned for the CPU; so is one for `cuda` where there is none, with a note.

    Raises
    ------
    ProgramError
        If there is no such file or function, or its model cannot be traced; the message names the node or the line.
    UsageError
        If `training` or `shapes` does not fit the model.
    """
    if model.endswith(".pt2"):
        exported = read_exported(model, device)
        args, kwargs = exported.example_inputs
        name = Path(model).name.removesuffix(".pt2")
        return _program(exported, args, kwargs, training, shapes or {}, name, model, note)
    network, inputs = call_function(model, shapes or {})
    if not isinstance(network, nn.Module):
        return step_program(network, inputs, training, {}, model.replace(":", "."), model, device)
    call = placed(network, *as_call(inputs), device, model, note)
    return _program(*call, training, {}, model.replace(":", "."), model, note)


def program_of(
    model: nn.Module | ExportedProgram,
    inputs: Any,
    training: str = "none",
    shapes: Mapping[str, int] | None = None,
    name: str | None = None,
    note: Note = lambda text: None,
) -> TorchProgram:
    """Trace a model as a program.

    Forward, the model is exported (`torch.export`) in the mode that it is in, training or evaluation. In training, one
    step is traced: forward, backward, then the update of every parameter that has a gradient, in place. The loss is
    the first output if that is a single float, else the sum of the means of all float outputs; it is the only result.
    Learning rates are 0.01 (sgd) and 0.001 (adam), or as `training` says: `adam:learning_rate=0.01`; see `update_of`.
    A tied weight is one parameter.

    Parameters
    ----------
    model
        A module, or an exported program.
    inputs
        What it is called with: a tuple of arguments, a dict of keywords, or one tensor.
    training, shapes, note
        As in `load_program`.
    name
        What to call the program; by default the model's class.

    Raises
    ------
    ProgramError
        If the model cannot be traced; the message names the node or the line.
    UsageError
        If `training` or `shapes` does not fit the model.
    """
    name = name or type(model).__name__
    args, kwargs = as_call(inputs)
    if isinstance(model, nn.Module):
        model, args, kwargs = placed(model, args, kwargs, None, name, note)
    return _program(model, args, kwargs, training, shapes or {}, name, name, note)


def step_program(
    function: Callable[..., Any],
    inputs: Any,
    training: str = "none",
    shapes: Mapping[str, int] | None = None,
    name: str | None = None,
    where: str | None = None,
    device: str | None = None,
) -> TorchProgram:
    """Record a function that does a whole training step as a program, without doing it.

    It is the step as it is from the second on, when the optimizer has its state. What numbers enter it (learning rates,
    what follows from the number of steps) are arguments of the program, of role `constant`.

    Parameters
    ----------
    function, inputs
        The step, and what it is called with.
    training, shapes
        As in `load_program`, for a step `none` and none.
    name, where
        What to call the program, and the step in errors; by default the function's name.
    device
        Where the step's tensors have to be; by default anywhere.

    Raises
    ------
    ProgramError
        If the step cannot be recorded as one graph, as it reads a value in its midst; the message names the line.
    UsageError
        If an option is given that is for models.
    """
    name = name or str(getattr(function, "__name__", type(function).__name__))
    where = where or name
    if training != "none":
        raise UsageError(f"{where}: it is a training step of its own; leave out training {training}")
    if shapes:
        raise UsageError(f"{where}: its sizes are those of its example inputs; leave out --shape {', '.join(shapes)}")
    graph = graph_of_step(function, *as_call(inputs), where)
    others = {value.device.type for value in graph.arguments if isinstance(value, torch.Tensor)} - {device}
    if device is not None and others:
        raise ProgramError(f"{where}: its tensors are on {', '.join(sorted(others))}; make the step on {device}")
    return TorchProgram(name, **graph._asdict(), training=STEP)


def _program(
    model: nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    training: str,
    shapes: Mapping[str, int],
    name: str,
    where: str,
    note: Note,
) -> TorchProgram:
    update = None if training == "none" else update_of(training)
    if isinstance(model, ExportedProgram):
        check_flat(model.graph, where)
        args, kwargs = specialised(model, args, kwargs, shapes, where)
    elif shapes:
        raise UsageError(f"{where}: its sizes are those of its example inputs; leave out --shape {', '.join(shapes)}")
    elif training == "none" and model.training:
        note(f"{where}: the model is in training mode (dropout, batch statistics); call its eval() for inference")
    elif training != "none" and not model.training:
        note(f"{where}: the model is in evaluation mode; call its train() to train as usual")
    if update is None:
        return _forward(model, args, kwargs, name, where)
    network = model.module() if isinstance(model, ExportedProgram) else model
    with untouched(network):
        step = training_step(network, args, kwargs, update, where)
    note(f"{where}: the loss is {step.loss}")
    return TorchProgram(
        name=f"{name}-{update.optimizer}",
        module=step.module,
        arguments=tuple(held.tensor.detach() for held in step.held),
        roles=tuple(held.role for held in step.held),
        names=tuple(held.label or held.name for held in step.held),
        results=("loss",),
        training=training,
    )


def _exported(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> ExportedProgram:
    with (
        foreign_code(where, "the model cannot be exported"),
        silent(),
        untouched(model),
        known_outputs(model, where, every=True),
    ):
        exported = torch.export.export(model, args, kwargs, strict=False)
    check_flat(exported.graph, where)
    return exported


def _forward(
    model: nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, where: str
) -> TorchProgram:
    """Export the model, and replace the exported graph by the ATen calls that it makes."""
    exported = model
    if not isinstance(exported, ExportedProgram):
        exported = _exported(exported, args, kwargs, where)
        args, kwargs = exported.example_inputs
    signature = exported.graph_signature
    owned = {**exported.constants, **exported.state_dict}
    given = iter(pytree.tree_leaves((args, kwargs)))
    values = []
    for spec in signature.input_specs:
        if spec.kind not in _INPUT_ROLES:
            raise ProgramError(f"{where}: node '{spec.arg.name}' is a {spec.kind.name}, which is not supported")
        values.append(next(given) if spec.target is None else owned[spec.target])
    arguments = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]

    with foreign_code(where, "the exported program cannot be traced"), silent(), torch.no_grad():
        # A matrix product takes other calls, which round otherwise, where a parameter requires no gradient.
        module, fakes = trace(exported.graph_module, values, where)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    inputs = []
    for node, spec, fake in zip(placeholders, signature.input_specs, fakes, strict=True):
        rename(node, spec.arg.name)
        node.meta["val"] = fake
        constant = ConstantArgument(node.name, fake)
        argument = TensorArgument(node.name) if isinstance(fake, torch.Tensor) else constant
        inputs.append(replace(spec, arg=argument))
    returned: Any = module.graph.output_node().args[0]
    outputs = [
        replace(spec, arg=TensorArgument(value.name) if isinstance(value, fx.Node) else spec.arg)
        for value, spec in zip(returned, signature.output_specs, strict=True)
    ]
    flat = ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=replace(signature, input_specs=inputs, output_specs=outputs),
        state_dict=exported.state_dict,
        range_constraints={},
        module_call_graph=exported.module_call_graph,
        example_inputs=(args, kwargs),
        constants=exported.constants,
        verifiers=exported.verifiers,
    )
    return TorchProgram(
        name=name,
        module=flat.graph_module,
        arguments=tuple(arguments),
        roles=tuple(_INPUT_ROLES[spec.kind] for spec in signature.input_specs),
        names=tuple(spec.target or spec.arg.name for spec in signature.input_specs),
        results=tuple(_RESULT_ROLES[spec.kind] for spec in signature.output_specs),
        exported=flat,
    )
