"""Programs of models and steps: exported forward, a traced training step of ours, or a recorded one of the user's."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.export.passes import move_to_device_pass
from torch.nn.utils.rnn import PackedSequence

from ...base.errors import ProgramError, UsageError
from .calls import argument_names, tensors_in
from .step_graph import PythonState, program_of_step, untouched
from .torch_internals import MODULES, FakeTensor, pytree, storage_id
from .tracing import (
    Held,
    TorchProgram,
    check_flat,
    fake_mode,
    foreign_code,
    known_outputs,
    lift_constants,
    refuse_foreign,
    rename,
    silent,
    trace,
)

Note = Callable[[str], None]
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


def load_program(
    model: str,
    training: str = "none",
    shapes: Mapping[str, int] | None = None,
    note: Note = lambda text: None,
    device: str | None = None,
) -> TorchProgram:
    """Load a `.pt2` file, or the result of `module:function` for `shapes`: a model or a step, and example inputs."""
    if model.endswith(".pt2"):
        exported = read_exported(model, device)
        name = Path(model).name.removesuffix(".pt2")
        return program_of(exported, None, training, shapes, name, note, model)
    network, inputs = call_function(model, shapes or {})
    return program_of(network, inputs, training, None, model.replace(":", "."), note, model, device)


def program_of(
    model: nn.Module | ExportedProgram | Callable[..., Any],
    inputs: Any,
    training: str = "none",
    shapes: Mapping[str, int] | None = None,
    name: str | None = None,
    note: Note = lambda text: None,
    where: str | None = None,
    device: str | None = None,
) -> TorchProgram:
    """Trace a model, exported forward or as one training step (see `update_of`), or record a step of the user's own.

    The loss is the first output if that is a single float, else the sum of the means of all float outputs. Numbers that
    enter a step of the user's own (learning rates, values from the number of steps) are `constant` arguments.
    """
    name = name or str(getattr(model, "__name__", type(model).__name__))
    where = where or name
    args, kwargs = as_call(inputs)
    if inputs is None and isinstance(model, ExportedProgram):
        args, kwargs = model.example_inputs
    if training != "none" and not isinstance(model, (nn.Module, ExportedProgram)):
        raise UsageError(f"{where}: it is a training step of its own; leave out training {training}")
    if isinstance(model, nn.Module):
        refuse_foreign(model, where)
        model, args, kwargs = placed((model, args, kwargs), device, where, note)
    update = None if training == "none" else update_of(training)
    if isinstance(model, ExportedProgram):
        check_flat(model.graph, where)
        args, kwargs = specialised(model, args, kwargs, shapes or {}, where)
    elif shapes:
        raise UsageError(f"{where}: its sizes are those of its example inputs; leave out --shape {', '.join(shapes)}")
    elif not isinstance(model, nn.Module):
        return program_of_step(model, (args, kwargs), name, where, device)
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
    for spec in signature.input_specs:
        if spec.kind not in _INPUT_ROLES:
            raise ProgramError(f"{where}: node '{spec.arg.name}' is a {spec.kind.name}, which is not supported")
    values = values_of(exported, (args, kwargs))

    with foreign_code(where, "the exported program cannot be traced"), silent(), torch.no_grad():
        # A matrix product takes other calls, which round otherwise, where a parameter requires no gradient.
        module, fakes = trace(exported.graph_module, values, where)
    inputs = []
    for node, spec, fake in zip(module.graph.find_nodes(op="placeholder"), signature.input_specs, fakes, strict=True):
        rename(node, spec.arg.name)
        node.meta["val"] = fake
        is_tensor = isinstance(fake, torch.Tensor)
        inputs.append(replace(spec, arg=TensorArgument(node.name) if is_tensor else ConstantArgument(node.name, fake)))
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
        arguments=tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in values),
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


def values_of(exported: ExportedProgram, inputs: Any) -> list[Any]:
    """Return the tensors and values that an exported program runs on with example inputs, one for each placeholder."""
    owned, given = {**exported.constants, **exported.state_dict}, iter(pytree.tree_leaves(inputs))
    specs = exported.graph_signature.input_specs
    return [next(given) if spec.target is None else owned[spec.target] for spec in specs]


def with_graph(
    exported: ExportedProgram, module: fx.GraphModule, signature: ExportGraphSignature, **changes: Any
) -> ExportedProgram:
    """Return an exported program with another graph."""
    kept = ("state_dict", "range_constraints", "module_call_graph", "example_inputs", "constants", "verifiers")
    fields = {name: getattr(exported, name) for name in kept}
    return ExportedProgram(root=module, graph=module.graph, graph_signature=signature, **{**fields, **changes})


def specialised(
    exported: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Mapping[str, int], where: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs of the sizes asked for; values are the examples' own, repeated or cut."""
    users = [spec for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    placeholders = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
    expected = exported.call_spec.in_spec
    places, keywords = pytree.tree_unflatten([None] * expected.num_leaves, expected)
    unknown = kwargs.keys() - set(keywords)
    kwargs = {key: kwargs[key] for key in keywords if key in kwargs}
    leaves, structure = pytree.tree_flatten((args, kwargs))
    if structure != expected or unknown:
        raise UsageError(
            f"{where}: it was exported for {len(places)} arguments and the keywords "
            f"{', '.join(keywords) or 'none'}, and is given other inputs"
        )
    symbols: dict[Any, str] = {}
    for spec in users:
        value = placeholders[spec.arg.name].meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                for symbol in size.node.expr.free_symbols:
                    symbols.setdefault(symbol, f"{symbol} (dimension {axis} of '{spec.arg.name}')")
    values = {symbol: shapes[str(symbol)] for symbol in symbols if str(symbol) in shapes}
    names = ", ".join(symbols.values())
    if missing := [shape for shape in shapes if shape not in {str(symbol) for symbol in symbols}]:
        raise UsageError(f"{where}: there is no symbolic size '{missing[0]}'; it has {names or 'none'}")
    if len(values) < len(symbols):
        wanted = " ".join(f"--shape {symbol}=VALUE" for symbol in symbols if symbol not in values)
        raise UsageError(f"{where}: the program has symbolic sizes: {names}; add {wanted}")
    for symbol, value in values.items():
        allowed = exported.range_constraints.get(symbol)
        if allowed is not None and not allowed.lower <= value <= allowed.upper:
            raise UsageError(f"{where}: size {symbol}={value} is not from {allowed.lower} to {allowed.upper}")
    if not symbols:
        return args, kwargs

    def size_of(size: Any) -> int:
        return int(size.node.expr.xreplace(values)) if isinstance(size, torch.SymInt) else size

    inputs: list[Any] = []
    for spec, example in zip(users, leaves, strict=True):
        fake = placeholders[spec.arg.name].meta.get("val")
        if isinstance(example, torch.Tensor):
            for axis, size in enumerate(map(size_of, fake.shape)):
                example = example.index_select(axis, torch.arange(size, device=example.device) % example.shape[axis])
            inputs.append(example)
        else:
            inputs.append(size_of(fake) if isinstance(spec.arg, SymIntArgument) else example)
    call: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(inputs, structure)
    return call


def read_exported(path: str, device: str | None) -> ExportedProgram:
    """Read a file that `torch.export.save` wrote, and move its tensors to `device` if one is given."""
    if not Path(path).is_file():
        raise ProgramError(f"{path}: no such file")
    with foreign_code(path, "not an exported program that can be read, or truncated"), silent():
        exported = torch.export.load(path)
        if device is not None:
            exported = move_to_device_pass(exported, device)
    if exported.example_inputs is None:
        raise ProgramError(f"{path}: it has no example inputs; save the program that torch.export.export returned")
    return exported


def call_function(model: str, sizes: Mapping[str, int]) -> tuple[nn.Module | Callable[..., Any], Any]:
    """Import and call the `function` of `module:function`, and return the model or step and the inputs it returns."""
    module_name, _, function_name = model.partition(":")
    if not module_name or not function_name:
        raise ProgramError(f"'{model}' is neither a .pt2 file nor module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        with foreign_code(model, f"module '{module_name}' cannot be imported"):
            module = importlib.import_module(module_name)
    except ProgramError as error:
        missing = error.__context__
        if isinstance(missing, ModuleNotFoundError) and missing.name in (module_name, module_name.partition(".")[0]):
            raise ProgramError(f"{model}: there is no module '{module_name}' here or in the environment") from None
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ProgramError(f"{model}: module '{module_name}' has no function '{function_name}'")
    parameters = inspect.signature(function).parameters.values() if sizes else ()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if unknown := [name for name in sizes if not (takes_any or name in named)]:
        have = f"it has {', '.join(named)}" if named else "it has none"
        raise UsageError(f"{model}: the function has no keyword argument '{unknown[0]}' for a size; {have}")
    with foreign_code(model, f"{function_name}() failed"):
        result = function(**sizes)
    if not (isinstance(result, tuple) and len(result) == 2 and callable(result[0])):
        raise ProgramError(
            f"{model}: {function_name}() must return a tuple (torch.nn.Module, example inputs), or (function that does "
            "a training step, example inputs)"
        )
    return result


def as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs (a tuple, a dict of keywords, or one value) as arguments and keywords."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    is_one = not isinstance(inputs, (tuple, list)) or isinstance(inputs, PackedSequence)
    return ((inputs,), {}) if is_one else (tuple(inputs), {})


Placed = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def lacks_data(values: Any) -> bool:
    """Whether there is a tensor among the values that has a shape and a type, but no data."""
    return any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors_in(values))


def tensors_of(model: nn.Module) -> list[torch.Tensor]:
    """Return the tensors that a model holds: parameters, buffers, and those that are plain attributes."""
    attributes = [{**module.__dict__, MODULES: None} for module in model.modules()]
    return tensors_in(attributes)


def refuse_without_data(name: str, arguments: Iterable[Any]) -> None:
    """Check that a program can be run, not only planned."""
    if lacks_data(list(arguments)):
        raise ProgramError(
            f"{name}: its tensors have no data (they are on the meta device, or were planned for a device that is not "
            "here), so it can be imported with roofline costs, and not be run"
        )


def placed(call: Placed, device: str | None, where: str, note: Note) -> Placed:
    """Return a model and its inputs on a device: moved there, or without data where there is none or no such device."""
    model, args, kwargs = call
    absent = device == "cuda" and not torch.cuda.is_available()
    if absent:
        note(
            f"{where}: there is no CUDA device here, so it is planned without data and with the ops of the CPU; "
            "CUDA may take others for attention, dropout, batch norm and recurrent layers"
        )
    if absent or lacks_data((tensors_of(model), args, kwargs)):
        return without_data(model, args, kwargs, where)
    if device is not None:
        with foreign_code(where, f"the model cannot be moved to {device}"):
            model = model.to(device)
            args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    return model, args, kwargs


def without_data(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Placed:
    """Return a copy of a model and of its inputs without data, in which all tensors are fakes of the CPU."""
    mode = fake_mode()
    storages: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        held = storages.setdefault(storage_id(storage), torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta"))
        shape = torch.empty(0, dtype=tensor.dtype, device="meta")
        shape.set_(held.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        made: torch.Tensor = FakeTensor(mode, shape, torch.device("cpu"))
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)

    fakes = {id(tensor): fake(tensor) for tensor in tensors_of(model)}
    with foreign_code(where, "the model cannot be copied without its data"):
        planned = copy.deepcopy(model, dict(fakes))
    args, kwargs = pytree.tree_map_only(torch.Tensor, fake, (args, kwargs))
    return planned, args, kwargs


DEFAULTS = {
    "sgd": {"learning_rate": 0.01, "weight_decay": 0.0},
    "adam": {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
}
"""The parameters of each optimizer, as `torch.optim` has them but for sgd's learning rate."""


class Update(NamedTuple):
    """How parameters are updated: the optimizer's name and its parameters."""

    optimizer: str
    parameters: Mapping[str, float]


def update_of(training: str) -> Update:
    """Return the update that a text names, such as `sgd` or `adam:learning_rate=0.01,weight_decay=0.1`."""
    if not isinstance(training, str):
        raise UsageError(
            f"training= is one of none, {', '.join(DEFAULTS)}, not a {type(training).__name__}; with an optimizer of "
            "your own give a function that does the whole step, forward, backward and update"
        )
    optimizer, _, rest = training.partition(":")
    if optimizer not in DEFAULTS:
        raise UsageError(f"training '{training}' is unknown; use one of none, {', '.join(DEFAULTS)}")
    parameters = dict(DEFAULTS[optimizer])
    for part in filter(None, rest.split(",")):
        name, _, text = part.partition("=")
        if name not in parameters:
            raise UsageError(f"training '{training}': {optimizer} has no '{name}', only {', '.join(parameters)}")
        try:
            parameters[name] = float(text)
        except ValueError:
            raise UsageError(f"training '{training}': {name} is a number, not '{text}'") from None
        if not 0 <= parameters[name] < float("inf"):
            raise UsageError(f"training '{training}': {name} is from 0, not {text}")
    return Update(optimizer, parameters)


def training_step(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], update: Update, where: str
) -> tuple[fx.GraphModule, list[Held], str]:
    """Trace a step of `sgd` or `adam`; return the module, a tensor per placeholder, and the loss in words."""
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    leaves, structure = pytree.tree_flatten((args, kwargs))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    trained = [key for key, parameter in parameters.items() if parameter.requires_grad]
    if not trained:
        raise ProgramError(f"{where}: no parameter of the model requires a gradient; import it with --training none")
    held = [Held(f"p_{key}", "parameter", parameter, key) for key, parameter in parameters.items()]
    held += [Held(f"b_{key}", "buffer", buffer, key) for key, buffer in buffers.items()]
    labels = argument_names(model.forward, args, kwargs)
    held += [Held(f"input_{number}", "input", leaves[at].detach(), labels[at]) for number, at in enumerate(places)]
    if update.optimizer != "sgd":  # the state of a fresh Adam: two averages per parameter, then the number of steps
        held += [
            Held(f"{kind}_{key}", "state", torch.zeros_like(parameters[key].detach()), f"{key}.{kind}")
            for key in trained
            for kind in ("exp_avg", "exp_avg_sq")
        ]
        held.append(Held("step", "state", torch.zeros((), device=parameters[trained[0]].device), "step"))
    about_loss: list[str] = []

    def step(*tensors: torch.Tensor) -> torch.Tensor:
        remaining = iter(tensors)
        values = {key: next(remaining) for key in (*parameters, *buffers)}
        call = list(leaves)
        for at in places:
            call[at] = next(remaining)
        outputs = torch.func.functional_call(model, values, *pytree.tree_unflatten(call, structure))
        loss, about = _loss(outputs, where)
        about_loss.append(about)
        gradients = torch.autograd.grad(loss, [values[key] for key in trained], allow_unused=True)
        with torch.no_grad():
            _update(update, [values[key] for key in trained], gradients, list(remaining))
        return loss.detach()

    with foreign_code(where, "the training step cannot be traced"), silent(), known_outputs(model, where, every=False):
        module, _ = trace(step, [value.tensor for value in held], where, dict(model.named_modules()))
    kept = []
    for node, value in zip(list(module.graph.find_nodes(op="placeholder")), held, strict=True):
        rename(node, value.name)
        if value.role == "state" and not node.users:  # of a parameter without gradient
            module.graph.erase_node(node)
        else:
            kept.append(value)
    inputs_from = len(parameters) + len(buffers)
    kept[inputs_from:inputs_from] = lift_constants(module, inputs_from)
    module.recompile()
    return module, kept, about_loss[0]


def _loss(outputs: Any, where: str) -> tuple[torch.Tensor, str]:
    """Return the loss of a model's outputs and its definition, in words."""
    leaves = pytree.tree_leaves(outputs)
    floats = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if not any(leaf.requires_grad for leaf in floats):
        raise ProgramError(f"{where}: no output of the model depends on a parameter that requires a gradient")
    if leaves[0] is floats[0] and floats[0].numel() == 1:
        return floats[0].reshape(()), "the model's first output"
    first, *others = [leaf.mean() for leaf in floats if leaf.requires_grad]
    about = f"the sum of the means of {len(others) + 1} outputs" if others else "the mean of the model's output"
    return sum(others, start=first), about


def _update(
    update: Update,
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    state: Sequence[torch.Tensor],
) -> None:
    """Update the parameters that have a gradient, in place, as `torch.optim` does (Adam: all share one step count)."""
    numbers = update.parameters
    rate, decay = numbers["learning_rate"], numbers["weight_decay"]
    if decay:
        gradients = [
            None if gradient is None else gradient.add(parameter, alpha=decay)
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
    if update.optimizer == "sgd":
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.add_(gradient, alpha=-rate)
        return
    *averages, steps = state
    first, second = numbers["beta1"], numbers["beta2"]
    steps.add_(1)
    correction = (1 - second**steps).sqrt_()
    scale = (first**steps - 1).div_(rate)  # minus one over the step size
    for parameter, gradient, average, average_of_squares in zip(
        parameters, gradients, averages[::2], averages[1::2], strict=True
    ):
        if gradient is not None:
            average.lerp_(gradient, 1 - first)
            average_of_squares.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            denominator = average_of_squares.sqrt().div_(correction).add_(numbers["epsilon"]).mul_(scale)
            parameter.addcdiv_(average, denominator)
