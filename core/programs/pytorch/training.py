"""A training step as a program: forward, backward, and the optimizer's update in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from ...base.errors import ProgramError, UsageError
from .calls import argument_names
from .torch_internals import pytree
from .tracing import Held, foreign_code, known_outputs, lift_constants, rename, silent, trace

DEFAULTS = {
    "sgd": {"learning_rate": 0.01, "weight_decay": 0.0},
    "adam": {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0},
}
"""The parameters of each optimizer, as `torch.optim` has them but for sgd's learning rate."""
STEP_COUNT = "step"
"""What the state of Adam calls its number of steps."""


class Update(NamedTuple):
    """How parameters are updated: the optimizer's name and its parameters."""

    optimizer: str
    parameters: Mapping[str, float]


def update_of(training: str) -> Update:
    """Return what a text says, such as `sgd` or `adam:learning_rate=0.01,weight_decay=0.1`."""
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
    """Trace one step of `sgd` or `adam`: forward, backward, then the update of each parameter that has a gradient.

    Returned are the module, which returns the loss, a tensor per placeholder, and the loss in words. The loss is the
    model's first output if that is a single float, else the sum of the means of its float outputs.
    """
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
        steps = torch.zeros((), device=parameters[trained[0]].device)
        held.append(Held("step", "state", steps, STEP_COUNT))
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
    """Return the loss of a model's outputs and what it is, in words."""
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
