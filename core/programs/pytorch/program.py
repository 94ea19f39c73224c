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
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind, TensorArgument

from ...base.errors import ProgramError, UsageError
from .python_state import PythonState, untouched
from .sources import as_call, call_function, placed, read_exported, specialised
from .step_graph import graph_of_step
from .torch_internals import pytree
from .tracing import check_flat, foreign_code, known_outputs, refuse_foreign, rename, silent, trace
from .training import training_step, update_of

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

    That changes buffers, parameters and optimizer state in place, in the model's own memory; no autograd graph is
    built.
    """

    name: str
    # placeholders, calls of ATen ops, `getitem` of their results, one output
    module: fx.GraphModule
    # one per placeholder; an input that is no tensor is the value itself
    arguments: tuple[Any, ...]
    roles: tuple[str, ...]  # per argument: `parameter`, `buffer`, `constant`, `input`, or `state` (of the optimizer)
    # per value returned: `output`, `loss`, or in functionalised exported programs `buffer`, `parameter` or `input`: a
    # new value that the caller copies
    results: tuple[str, ...]
    training: str = "none"  # `none`, `sgd` or `adam`; `step` for a function that does a whole step
    # of a forward program, its graph module being `module`
    exported: ExportedProgram | None = None
    # the caller's name of each argument, as in its state dict; of an optimizer's state `encoder.weight.exp_avg`
    names: tuple[str, ...] = ()
    source: nn.Module | None = None  # the model that was exported, whose own call may take another branch

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
    """Load a `.pt2` file, or what `module:function` returns: a model or a step, and its example inputs.

    `shapes` are sizes of symbolic dimensions, or keyword arguments of the function.
    """
    if model.endswith(".pt2"):
        exported = read_exported(model, device)
        args, kwargs = exported.example_inputs
        name = Path(model).name.removesuffix(".pt2")
        return _program(exported, args, kwargs, training, shapes or {}, name, model, note)
    network, inputs = call_function(model, shapes or {})
    if not isinstance(network, nn.Module):
        return step_program(network, inputs, training, {}, model.replace(":", "."), model, device)
    refuse_foreign(network, model)
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
    """Trace a model as a program: exported forward, or one training step whose loss is the only result.

    The loss is the first output if that is a single float, else the sum of the means of all float outputs. `training`
    may have learning rates, as `adam:learning_rate=0.01`; see `update_of`. A tied weight is one parameter.
    """
    name = name or type(model).__name__
    args, kwargs = as_call(inputs)
    if isinstance(model, nn.Module):
        refuse_foreign(model, name)
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
    """Record a function that does a whole training step as a program, as it is once the optimizer has its state.

    The numbers that enter it (learning rates, what follows from the number of steps) are arguments of role `constant`.
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
        return _forward(model, args, kwargs, name, where, note)
    network = model.module() if isinstance(model, ExportedProgram) else model
    with untouched(network) as state:
        module, given, loss = training_step(network, args, kwargs, update, where)
        _say_if_drawn(state, where, note)
    note(f"{where}: the loss is {loss}")
    return TorchProgram(
        name=f"{name}-{update.optimizer}",
        module=module,
        arguments=tuple(held.tensor.detach() for held in given),
        roles=tuple(held.role for held in given),
        names=tuple(held.label or held.name for held in given),
        results=("loss",),
        training=training,
    )


def _forward(
    model: nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, where: str, note: Note
) -> TorchProgram:
    """Export the model, and replace the exported graph by the ATen calls that it makes."""
    exported, source = model, model if isinstance(model, nn.Module) else None
    if not isinstance(exported, ExportedProgram):
        with (
            foreign_code(where, "the model cannot be exported"),
            silent(),
            untouched(exported) as state,
            known_outputs(exported, where, every=True),
        ):
            exported = torch.export.export(exported, args, kwargs, strict=False)
            _say_if_drawn(state, where, note)
        check_flat(exported.graph, where)
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
    inputs = []
    for node, spec, fake in zip(module.graph.find_nodes(op="placeholder"), signature.input_specs, fakes, strict=True):
        rename(node, spec.arg.name)
        node.meta["val"] = fake
        is_tensor = isinstance(fake, torch.Tensor)
        argument = TensorArgument(node.name) if is_tensor else ConstantArgument(node.name, fake)
        inputs.append(replace(spec, arg=argument))
    returned: Any = module.graph.output_node().args[0]
    outputs = [
        replace(spec, arg=TensorArgument(value.name) if isinstance(value, fx.Node) else spec.arg)
        for value, spec in zip(returned, signature.output_specs, strict=True)
    ]
    flat_signature = replace(signature, input_specs=inputs, output_specs=outputs)
    flat = with_graph(exported, module, flat_signature, range_constraints={}, example_inputs=(args, kwargs))
    return TorchProgram(
        name=name,
        module=flat.graph_module,
        arguments=tuple(arguments),
        roles=tuple(_INPUT_ROLES[spec.kind] for spec in signature.input_specs),
        names=tuple(spec.target or spec.arg.name for spec in signature.input_specs),
        results=tuple(_RESULT_ROLES[spec.kind] for spec in signature.output_specs),
        exported=flat,
        source=source,
    )


def _say_if_drawn(state: PythonState, where: str, note: Note) -> None:
    if state.has_drawn():
        note(
            f"{where}: the model draws random numbers of Python or NumPy, and the graph is that of one draw, for ever; "
            "draw with torch.rand, or plan a step function (schedopt.optimize), whose Python runs at each call"
        )


def with_graph(
    exported: ExportedProgram, module: fx.GraphModule, signature: ExportGraphSignature, **changes: Any
) -> ExportedProgram:
    """Return an exported program with another graph."""
    kept = ("state_dict", "range_constraints", "module_call_graph", "example_inputs", "constants", "verifiers")
    fields = {name: getattr(exported, name) for name in kept}
    return ExportedProgram(root=module, graph=module.graph, graph_signature=signature, **{**fields, **changes})
