"""A PyTorch program: a model as one flat graph of ATen calls with the tensors it runs on, forward or a training step.

The calls are those that PyTorch itself makes for the model, below autograd: composite ops are taken apart, in-place
ops stay in place, and the order is the one in which eager execution meets them.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from ..errors import ProgramError, SchedoptError, UsageError

Note = Callable[[str], None]
TRAINING = ("none", "sgd", "adam")
LEARNING_RATE = {"sgd": 0.01, "adam": 0.001}
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
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
# Calls that return their argument as it is (no autograd here), and a check that tracing has made already.
_WITHOUT_EFFECT = (
    torch.ops.aten.detach.default,
    torch.ops.aten.detach_.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.lift_fresh.default,
)
_CHECK = torch.ops.aten._assert_tensor_metadata.default
_VALUE_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


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
        `none`, `sgd` or `adam`.
    exported
        A forward program as an exported program, whose graph module is `module`; None in training.
    """

    name: str
    module: fx.GraphModule
    arguments: tuple[Any, ...]
    roles: tuple[str, ...]
    results: tuple[str, ...]
    training: str = "none"
    exported: ExportedProgram | None = None


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
        A `.pt2` file written by `torch.export.save`, or `module:function`: a function without arguments, importable
        from the current folder, that returns a model and its example inputs (a tuple, or a dict of keywords).
    training
        `none` for the forward pass alone; `sgd` or `adam` for a training step, see `program_of`.
    shapes
        A size for each symbolic dimension of an exported program.
    note
        Called with each remark worth showing.
    device
        Where to move the model and its inputs to; by default they stay.

    Raises
    ------
    ProgramError
        If there is no such file or function, or its model cannot be traced; the message names the node or the line.
    UsageError
        If `training` or `shapes` does not fit the model.
    """
    if model.endswith(".pt2"):
        exported = _read_exported(model, device)
        args, kwargs = exported.example_inputs or ((), {})
        name = Path(model).name.removesuffix(".pt2")
        return _program(exported, args, kwargs, training, shapes or {}, name, model, note)
    network, inputs = _call_function(model)
    if device is not None:
        with _foreign_code(model, f"the model cannot be moved to {device}"):
            network = network.to(device)
            inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)
    return program_of(network, inputs, training, shapes, model.replace(":", "."), note)


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
    Learning rates are 0.01 (sgd) and 0.001 (adam, without weight decay). A tied weight is one parameter.

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
    args, kwargs = _as_call(inputs)
    return _program(model, args, kwargs, training, shapes or {}, name, name, note)


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
    if training not in TRAINING:
        raise UsageError(f"training '{training}' is unknown; use one of {', '.join(TRAINING)}")
    if isinstance(model, ExportedProgram):
        _check_flat(model.graph, where)
        args, kwargs = _specialised(model, args, kwargs, shapes, where)
    elif shapes:
        raise UsageError(f"{where}: its sizes are those of its example inputs; leave out --shape {', '.join(shapes)}")
    elif training == "none" and model.training:
        note(f"{where}: the model is in training mode (dropout, batch statistics); call its eval() for inference")
    elif training != "none" and not model.training:
        note(f"{where}: the model is in evaluation mode; call its train() to train as usual")
    if training == "none":
        return _forward(model, args, kwargs, name, where)
    network = model.module() if isinstance(model, ExportedProgram) else model
    return _training_step(network, args, kwargs, training, f"{name}-{training}", where, note)


def _forward(
    model: nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, where: str
) -> TorchProgram:
    """Export the model, and replace the exported graph by the ATen calls that it makes."""
    if isinstance(model, ExportedProgram):
        exported = model
    else:
        with _foreign_code(where, "the model cannot be exported"), _silent():
            exported = torch.export.export(model, args, kwargs, strict=False)
        _check_flat(exported.graph, where)
    signature = exported.graph_signature
    owned = {**exported.constants, **exported.state_dict}
    given = iter(pytree.tree_leaves((args, kwargs)))
    arguments = []
    for spec in signature.input_specs:
        if spec.kind not in _INPUT_ROLES:
            raise ProgramError(f"{where}: node '{spec.arg.name}' is a {spec.kind.name}, which is not supported")
        value = next(given) if spec.target is None else owned[spec.target]
        arguments.append(value.detach() if isinstance(value, torch.Tensor) else value)

    with _foreign_code(where, "the exported program cannot be traced"), _silent(), torch.no_grad():
        module, fakes = _trace(exported.graph_module, arguments)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    inputs = []
    for node, spec, fake in zip(placeholders, signature.input_specs, fakes, strict=True):
        _rename(node, spec.arg.name)
        node.meta["val"] = fake
        constant = ConstantArgument(node.name, fake)
        argument = TensorArgument(node.name) if isinstance(fake, torch.Tensor) else constant
        inputs.append(replace(spec, arg=argument))
    outputs = [
        replace(spec, arg=TensorArgument(value.name) if isinstance(value, fx.Node) else spec.arg)
        for value, spec in zip(module.graph.output_node().args[0], signature.output_specs, strict=True)
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
        results=tuple(_RESULT_ROLES[spec.kind] for spec in signature.output_specs),
        exported=flat,
    )


class _Held(NamedTuple):
    """A tensor that a training step is given: what to call its placeholder, its role and itself."""

    name: str
    role: str
    tensor: torch.Tensor


def _training_step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    training: str,
    name: str,
    where: str,
    note: Note,
) -> TorchProgram:
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    leaves, structure = pytree.tree_flatten((args, kwargs))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    trained = [key for key, parameter in parameters.items() if parameter.requires_grad]
    if not trained:
        raise ProgramError(f"{where}: no parameter of the model requires a gradient; import it with --training none")
    held = [_Held(f"p_{key}", "parameter", parameter) for key, parameter in parameters.items()]
    held += [_Held(f"b_{key}", "buffer", buffer) for key, buffer in buffers.items()]
    held += [_Held(f"input_{number}", "input", leaves[at].detach()) for number, at in enumerate(places)]
    held += _optimizer_state(training, {key: parameters[key] for key in trained})
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
            _update(training, [values[key] for key in trained], gradients, list(remaining))
        return loss.detach()

    with _foreign_code(where, "the training step cannot be traced"), _silent():
        module, _ = _trace(step, [value.tensor for value in held])
    for node, value in zip(list(module.graph.find_nodes(op="placeholder")), held, strict=True):
        _rename(node, value.name)
    constants = _lift_constants(module, after=len(parameters) + len(buffers))
    held[len(parameters) + len(buffers) : len(parameters) + len(buffers)] = constants
    module.recompile()
    note(f"{where}: the loss is {about_loss[0]}")
    return TorchProgram(
        name=name,
        module=module,
        arguments=tuple(value.tensor.detach() for value in held),
        roles=tuple(value.role for value in held),
        results=("loss",),
        training=training,
    )


def _loss(outputs: Any, where: str) -> tuple[torch.Tensor, str]:
    """Return the loss of a model's outputs and what it is, in words."""
    leaves = pytree.tree_leaves(outputs)
    floats = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if not any(leaf.requires_grad for leaf in floats):
        raise ProgramError(f"{where}: no output of the model depends on a parameter that requires a gradient")
    if leaves[0] is floats[0] and floats[0].numel() == 1:
        return floats[0].reshape(()), "the model's first output"
    means = [leaf.mean() for leaf in floats if leaf.requires_grad]
    loss = means[0]
    for mean in means[1:]:
        loss = loss + mean
    return loss, "the mean of the model's output" if len(
        means
    ) == 1 else f"the sum of the means of {len(means)} outputs"


def _optimizer_state(training: str, trained: Mapping[str, torch.Tensor]) -> list[_Held]:
    """Return the state of a fresh optimizer: for Adam two averages per parameter, then the number of steps."""
    if training == "sgd":
        return []
    averages = [
        _Held(f"{kind}_{key}", "state", torch.zeros_like(parameter.detach()))
        for key, parameter in trained.items()
        for kind in ("exp_avg", "exp_avg_sq")
    ]
    steps = torch.zeros((), device=next(iter(trained.values())).device)
    return [*averages, _Held("step", "state", steps)]


def _update(
    training: str,
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    state: Sequence[torch.Tensor],
) -> None:
    """Update the parameters that have a gradient, in place, as `torch.optim` does (Adam: all share one step count)."""
    rate = LEARNING_RATE[training]
    if training == "sgd":
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.add_(gradient, alpha=-rate)
        return
    *averages, steps = state
    first, second = ADAM_BETAS
    steps.add_(1)
    correction = (1 - second**steps).sqrt_()
    scale = (first**steps - 1).div_(rate)  # minus one over the step size
    for parameter, gradient, average, average_of_squares in zip(
        parameters, gradients, averages[::2], averages[1::2], strict=True
    ):
        if gradient is not None:
            average.lerp_(gradient, 1 - first)
            average_of_squares.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            denominator = average_of_squares.sqrt().div_(correction).add_(ADAM_EPSILON).mul_(scale)
            parameter.addcdiv_(average, denominator)


def _trace(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """Run `function` on fakes of the arguments and return the ATen calls it makes, and the fakes."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in arguments]
    with mode:
        module = make_fx(function)(*fakes)
    for node in list(module.graph.nodes):
        if node.target in _WITHOUT_EFFECT:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif node.target is _CHECK:
            module.graph.erase_node(node)
    module.recompile()
    return module, fakes


def _lift_constants(module: fx.GraphModule, after: int) -> list[_Held]:
    """Turn the tensors that the graph holds as attributes into placeholders, `after` as many others."""
    graph = module.graph
    constants: dict[str, tuple[_Held, fx.Node]] = {}
    place = list(graph.find_nodes(op="placeholder"))[after]
    for node in list(graph.find_nodes(op="get_attr")):
        tensor = getattr(module, node.target, None)
        if not isinstance(tensor, torch.Tensor):
            continue
        if node.target not in constants:
            with graph.inserting_before(place):
                lifted = graph.placeholder(node.target)
            _rename(lifted, f"c{node.target}")
            constants[node.target] = (_Held(lifted.name, "constant", tensor), lifted)
        node.replace_all_uses_with(constants[node.target][1])
        graph.erase_node(node)
    return [held for held, _ in constants.values()]


def _rename(node: fx.Node, name: str) -> None:
    """Name a placeholder, and the parameter of the generated code with it; a taken name gets a number."""
    if node.name != name:
        node._rename(name)
    node.target = node.name


def _check_flat(graph: fx.Graph, where: str) -> None:
    """Refuse control flow and other ops that run graphs of their own."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() not in _INLINED:
            raise ProgramError(
                f"{where}: node '{node.name}' ({node.target.name()}) chooses or repeats a graph of its own, "
                "which is not supported; export the model with that part fixed or unrolled"
            )


def _specialised(
    exported: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Mapping[str, int], where: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs of the sizes asked for; values are the examples' own, repeated or cut."""
    users = [spec for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    placeholders = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
    leaves, structure = pytree.tree_flatten((args, kwargs))
    if len(leaves) != len(users):
        raise ProgramError(
            f"{where}: the file has no example inputs; save the program that torch.export.export returned"
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
    if unknown := [shape for shape in shapes if shape not in {str(symbol) for symbol in symbols}]:
        raise UsageError(f"{where}: there is no symbolic size '{unknown[0]}'; it has {names or 'none'}")
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

    inputs = []
    for spec, example in zip(users, leaves, strict=True):
        fake = placeholders[spec.arg.name].meta.get("val")
        if isinstance(example, torch.Tensor):
            sizes = [size_of(size) for size in fake.shape]
            for axis, size in enumerate(sizes):
                example = example.index_select(axis, torch.arange(size, device=example.device) % example.shape[axis])
            inputs.append(example)
        else:
            inputs.append(size_of(fake) if isinstance(spec.arg, SymIntArgument) else example)
    return pytree.tree_unflatten(inputs, structure)


def _read_exported(path: str, device: str | None) -> ExportedProgram:
    if not Path(path).is_file():
        raise ProgramError(f"{path}: no such file")
    with _foreign_code(path, "not an exported program that can be read, or truncated"), _silent():
        exported = torch.export.load(path)
        return exported if device is None else torch.export.passes.move_to_device_pass(exported, device)


def _call_function(model: str) -> tuple[nn.Module, Any]:
    """Import and call the `function` of `module:function`."""
    module_name, _, function_name = model.partition(":")
    if not module_name or not function_name:
        raise ProgramError(f"'{model}' is neither a .pt2 file nor module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        with _foreign_code(model, f"module '{module_name}' cannot be imported"):
            module = importlib.import_module(module_name)
    except ProgramError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name in (module_name, module_name.partition(".")[0]):
            raise ProgramError(f"{model}: there is no module '{module_name}' here or in the environment") from None
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ProgramError(f"{model}: module '{module_name}' has no function '{function_name}'")
    with _foreign_code(model, f"{function_name}() failed"):
        result = function()
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], nn.Module)):
        raise ProgramError(f"{model}: {function_name}() must return a tuple (torch.nn.Module, example inputs)")
    return result


def _as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


@contextmanager
def _foreign_code(where: str, what: str) -> Iterator[None]:
    """Turn what a model's own code, or PyTorch in tracing it, raises into one sentence."""
    try:
        yield
    except SchedoptError:
        raise
    except _VALUE_DEPENDENT as error:
        raise ProgramError(
            f"{where}: the model reads the value of a tensor to decide what to do{_line_of(error)}, so no fixed graph "
            "stands for it; use torch.where or fixed sizes there"
        ) from error
    except UnsupportedOperatorException as error:
        raise ProgramError(f"{where}: op {error.func} has no meta implementation; register a fake for it") from error
    except Exception as error:  # code of others raises what it likes
        text = str(error).strip().split("\n")[0].split(". ")[0].removesuffix(".") or type(error).__name__
        raise ProgramError(f"{where}: {what}{_line_of(error)}: {text}") from error


def _line_of(error: BaseException) -> str:
    """Return ` at FILE:LINE` of the innermost frame that is neither PyTorch's nor ours; nothing if there is none."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent), importlib.__path__[0], "<")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what PyTorch warns, logs and prints about tracing from the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
