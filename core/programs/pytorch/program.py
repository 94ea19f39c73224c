"""Programs of models and steps: exported forward, a traced training step of ours, or a recorded one of the user's."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram, graph_signature
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.export.passes import move_to_device_pass
from torch.nn.utils.rnn import PackedSequence

from ...base.errors import ProgramError, UsageError
from ..options import ImportOptions
from . import tracing
from .calls import argument_names, tensors_in
from .step_graph import Call, PythonState, program_of_step, untouched
from .torch_internals import MODULES, FakeTensor, pytree, storage_id
from .tracing import Held, TorchProgram, foreign_code, known_outputs, silent

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


def load_program(model: str, options: ImportOptions = ImportOptions(), note: Note = lambda text: None) -> TorchProgram:
    """Load a `.pt2` file, or the result of `module:function` for sizes: a model or a step, and example inputs."""
    training, shapes, device = options.training, options.plain_shapes, options.device
    if model.endswith(".pt2"):
        exported = read_exported(model, device)
        return program_of(exported, None, training, shapes, Path(model).name.removesuffix(".pt2"), note, model)
    network, inputs = call_function(model, shapes)
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
    call = model.example_inputs if inputs is None and isinstance(model, ExportedProgram) else as_call(inputs)
    if training != "none" and not isinstance(model, (nn.Module, ExportedProgram)):
        raise UsageError(f"{where}: it is a training step of its own; leave out training {training}")
    if isinstance(model, nn.Module):
        tracing.refuse_foreign(model, where)
        model, call = placed(model, call, device, where, note)
    optimizer, numbers = ("none", {}) if training == "none" else update_of(training)
    if isinstance(model, ExportedProgram):
        tracing.check_flat(model.graph, where)
        call = specialised(model, call, shapes or {}, where)
    elif shapes:
        raise UsageError(f"{where}: its sizes are those of its example inputs; leave out --shape {', '.join(shapes)}")
    elif not isinstance(model, nn.Module):
        return program_of_step(model, call, name, where, device)
    elif training == "none" and model.training:
        note(f"{where}: the model is in training mode (dropout, batch statistics); call its eval() for inference")
    elif training != "none" and not model.training:
        note(f"{where}: the model is in evaluation mode; call its train() to train as usual")
    if optimizer == "none":
        return _forward(model, call, name, where, note)
    network = model.module() if isinstance(model, ExportedProgram) else model
    with untouched(network) as state:
        module, given, loss = training_step(network, call, optimizer, numbers, where)
        _note_draws(state, where, note)
    note(f"{where}: the loss is {loss}")
    return TorchProgram(
        name=f"{name}-{optimizer}",
        module=module,
        arguments=tuple(held.tensor.detach() for held in given),
        roles=tuple(held.role for held in given),
        names=tuple(held.label or held.name for held in given),
        results=("loss",),
        training=training,
    )


def _forward(model: nn.Module | ExportedProgram, call: Call, name: str, where: str, note: Note) -> TorchProgram:
    """Export the model, and replace the exported graph by the ATen calls that it makes."""
    exported, source = model, model if isinstance(model, nn.Module) else None
    if not isinstance(exported, ExportedProgram):
        with (
            foreign_code(where, "the model cannot be exported"),
            silent(),
            untouched(exported) as state,
            known_outputs(exported, where, every=True),
        ):
            exported = torch.export.export(exported, *call, strict=False)
            _note_draws(state, where, note)
        tracing.check_flat(exported.graph, where)
        call = exported.example_inputs
    signature = exported.graph_signature
    for spec in signature.input_specs:
        if spec.kind not in _INPUT_ROLES:
            raise ProgramError(f"{where}: node '{spec.arg.name}' is a {spec.kind.name}, which is not supported")
    values = values_of(exported, call)

    with foreign_code(where, "the exported program cannot be traced"), silent(), torch.no_grad():
        # A matrix product takes other calls, which round otherwise, where a parameter requires no gradient.
        module, fakes = tracing.trace(exported.graph_module, values, where)
    inputs = []
    for node, spec, fake in zip(module.graph.find_nodes(op="placeholder"), signature.input_specs, fakes, strict=True):
        tracing.rename(node, spec.arg.name)
        node.meta["val"] = fake
        is_tensor = isinstance(fake, torch.Tensor)
        inputs.append(replace(spec, arg=TensorArgument(node.name) if is_tensor else ConstantArgument(node.name, fake)))
    returned: Any = module.graph.output_node().args[0]
    outputs = [
        replace(spec, arg=TensorArgument(value.name) if isinstance(value, fx.Node) else spec.arg)
        for value, spec in zip(returned, signature.output_specs, strict=True)
    ]
    flat_signature = replace(signature, input_specs=inputs, output_specs=outputs)
    flat = with_graph(exported, module, flat_signature, range_constraints={}, example_inputs=call)
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


def _note_draws(state: PythonState, where: str, note: Note) -> None:
    if state.has_drawn():
        note(
            f"{where}: the model draws random numbers with Python or NumPy, and the graph holds one draw for ever; "
            "draw with torch.rand, or plan a step function (schedopt.optimize), whose Python runs at each call"
        )


def values_of(exported: ExportedProgram, inputs: Any) -> list[Any]:
    """Return the tensors and values that an exported program runs on with example inputs, one for each placeholder."""
    owned, given = {**exported.constants, **exported.state_dict}, iter(pytree.tree_leaves(inputs))
    specs = exported.graph_signature.input_specs
    return [next(given) if spec.target is None else owned[spec.target] for spec in specs]


def with_graph(
    exported: ExportedProgram, module: fx.GraphModule, signature: graph_signature.ExportGraphSignature, **changes: Any
) -> ExportedProgram:
    """Return an exported program with another graph."""
    kept = ("state_dict", "range_constraints", "module_call_graph", "example_inputs", "constants", "verifiers")
    fields = {name: getattr(exported, name) for name in kept}
    return ExportedProgram(root=module, graph=module.graph, graph_signature=signature, **{**fields, **changes})


def specialised(exported: ExportedProgram, call: Call, shapes: Mapping[str, int], where: str) -> Call:
    """Return example inputs of the sizes asked for; values are the examples' own, repeated or cut."""
    args, kwargs = call
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
            inputs.append(size_of(fake) if isinstance(spec.arg, graph_signature.SymIntArgument) else example)
    resized: Call = pytree.tree_unflatten(inputs, structure)
    return resized


def read_exported(path: str, device: str) -> ExportedProgram:
    """Read a file that `torch.export.save` wrote, and move its tensors to `device`."""
    if not Path(path).is_file():
        raise ProgramError(f"{path}: no such file")
    with foreign_code(path, "not an exported program that can be read, or truncated"), silent():
        exported = move_to_device_pass(torch.export.load(path), device)
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


def as_call(inputs: Any) -> Call:
    """Return example inputs (a tuple, a dict of keywords, or one value) as arguments and keywords."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    is_one = not isinstance(inputs, (tuple, list)) or isinstance(inputs, PackedSequence)
    return ((inputs,), {}) if is_one else (tuple(inputs), {})


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


def placed(model: nn.Module, call: Call, device: str | None, where: str, note: Note) -> tuple[nn.Module, Call]:
    """Return a model and its inputs on a device: moved there, or without data where there is none or no such device."""
    absent = device == "cuda" and not torch.cuda.is_available()
    if absent:
        note(
            f"{where}: there is no CUDA device here, so it is planned without data and with the ops of the CPU; "
            "CUDA may take others for attention, dropout, batch norm and recurrent layers"
        )
    if absent or lacks_data((tensors_of(model), call)):
        return without_data(model, call, where)
    if device is not None:
        with foreign_code(where, f"the model cannot be moved to {device}"):
            model = model.to(device)
            call = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), call)
    return model, call


def without_data(model: nn.Module, call: Call, where: str) -> tuple[nn.Module, Call]:
    """Return a copy of a model and of its inputs without data, in which all tensors are fakes of the CPU."""
    mode = tracing.fake_mode()
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
    return planned, pytree.tree_map_only(torch.Tensor, fake, call)


DEFAULTS = {
    "sgd": {"learning_rate": 0.01, "weight_decay": 0.0},
    "adam": {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
}
"""The parameters of each optimizer, as `torch.optim` has them but for sgd's learning rate."""


def update_of(training: str) -> tuple[str, dict[str, float]]:
    """Return optimizer and parameters of a text, such as `sgd` or `adam:learning_rate=0.01,weight_decay=0.1`."""
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
    return optimizer, parameters


def training_step(
    model: nn.Module, inputs: Call, optimizer: str, numbers: Mapping[str, float], where: str
) -> tuple[fx.GraphModule, list[Held], str]:
    """Trace a step of `sgd` or `adam`; return the module, a tensor per placeholder, and the loss in words."""
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    leaves, structure = pytree.tree_flatten(inputs)
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    trained = [key for key, parameter in parameters.items() if parameter.requires_grad]
    if not trained:
        raise ProgramError(f"{where}: no parameter of the model requires a gradient; import it with --training none")
    held = [Held(f"p_{key}", "parameter", parameter, key) for key, parameter in parameters.items()]
    held += [Held(f"b_{key}", "buffer", buffer, key) for key, buffer in buffers.items()]
    labels = argument_names(model.forward, *inputs)
    held += [Held(f"input_{number}", "input", leaves[at].detach(), labels[at]) for number, at in enumerate(places)]
    if optimizer != "sgd":  # the state of a fresh Adam: two averages per parameter, then the number of steps
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
            _update(numbers, [values[key] for key in trained], gradients, list(remaining))
        return loss.detach()

    with foreign_code(where, "the training step cannot be traced"), silent(), known_outputs(model, where, every=False):
        module, _ = tracing.trace(step, [value.tensor for value in held], where, dict(model.named_modules()))
    kept = []
    for node, value in zip(list(module.graph.find_nodes(op="placeholder")), held, strict=True):
        tracing.rename(node, value.name)
        if value.role == "state" and not node.users:  # of a parameter without gradient
            module.graph.erase_node(node)
        else:
            kept.append(value)
    inputs_from = len(parameters) + len(buffers)
    kept[inputs_from:inputs_from] = tracing.lift_constants(module, inputs_from)
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
    numbers: Mapping[str, float],
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    state: Sequence[torch.Tensor],
) -> None:
    """Update the parameters that have a gradient, in place, as `torch.optim` does (Adam: all share one step count)."""
    rate, decay = numbers["learning_rate"], numbers["weight_decay"]
    if decay:
        gradients = [
            None if gradient is None else gradient.add(parameter, alpha=decay)
            for parameter, gradient in zip(parameters, gradients, strict=True)
        ]
    if not state:  # sgd has none
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
