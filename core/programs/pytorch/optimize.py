"""Models and their training steps as plans: how they are traced, and which tensors a plan runs on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from ...base.errors import UsageError
from .guards import Inputs, State, TensorFact
from .model_attributes import Attributes
from .model_guard import ModelGuard
from .plans import Planned, PlanSettings, Traced
from .program import TorchProgram, program_of
from .sources import Call, as_call
from .torch_internals import NON_PERSISTENT, REGISTRIES, STATE_HOOKS, pytree
from .training import STEP_COUNT

_SHARED = (*REGISTRIES, NON_PERSISTENT, *STATE_HOOKS)


class PlannedModel(Planned):
    """A model, or its training step, that runs in orders of less peak memory; see `schedopt.optimize`.

    Its parameters, buffers, modules and mode are the model's own, so that `parameters()`, `state_dict()`, `train()`,
    `to()` and `load_state_dict()` are, too.
    """

    _model: nn.Module

    def __init__(self, model: nn.Module, inputs: Any, training: str, settings: PlanSettings) -> None:
        tracer = ForwardTracer(model) if training == "none" else StepTracer(model, training)
        args, kwargs = as_call(inputs)
        super().__init__(tracer, args, kwargs, settings)
        self.__dict__["_model"] = model  # as no module of its own: its parts are, under the model's names
        self.__dict__.update((name, model.__dict__[name]) for name in _SHARED)

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self._model.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_model" in self.__dict__:  # else it is what every new module sets
            self._model.training = mode


class ModelTracer:
    """What the tracers of a model's forward pass and of its training step have in common."""

    def __init__(self, model: nn.Module, training: str) -> None:
        self.model = model
        self.training = training
        self._guard = ModelGuard(model)
        self._written: set[str] = set()

    @property
    def name(self) -> str:
        """The model's class, and what is done with it."""
        return type(self.model).__name__ + f", {self.training}" * (self.training != "none")

    @property
    def signature(self) -> inspect.Signature:
        """What the model's `forward` is called with."""
        return inspect.signature(self.model.forward)

    def state(self) -> State:
        """Return what a trace depends on of the model, and its parameters and buffers."""
        return self._guard.state()

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TorchProgram:
        """Trace the model, and find out which of its attributes its own code sets."""
        at_call: list[Attributes] = []
        written: set[str] = set()
        # Around the call itself: before it, PyTorch puts fakes in the place of parameters; after it, torch.export
        # undoes some of what was written, and not all.
        hooks = [
            self.model.register_forward_pre_hook(lambda *_: at_call.append(Attributes(self.model))),
            self.model.register_forward_hook(lambda *_: written.update(at_call.pop().replaced())),
        ]
        try:
            program = program_of(self.model, Call(args, kwargs), self.training)
        finally:
            for hook in hooks:
                hook.remove()
        if new := written - self._written:
            names = ", ".join(sorted(new))
            warnings.warn(f"{type(self.model).__name__} sets {names} as it runs, which its plans do not", stacklevel=2)
            self._written |= new
            self._guard.leave_out(new)
        return program


class ForwardTracer(ModelTracer):
    """The forward pass of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, "none")

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that autograd follows, as the program has no backward."""
        name = _requiring_gradient(inputs)
        if name is not None and torch.is_grad_enabled():
            raise UsageError(
                f"input '{name}' requires a gradient, which a forward program does not give; call it under "
                "torch.no_grad(), or optimize a training step"
            )

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """Export the model with these inputs."""
        program = self._program(args, kwargs)
        slots, exported, roles = _slots(program), program.exported, program.results
        if exported is None:
            raise TypeError("a forward program is an exported program")
        signature, structure = exported.graph_signature, exported.call_spec.out_spec
        given = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
        places = {name: place for place, name in enumerate(given)}

        def result(returned: Sequence[Any], leaves: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> Any:
            outputs = []
            for spec, role, value in zip(signature.output_specs, roles, returned, strict=True):
                if role == "output":
                    outputs.append(value)
                else:  # of a functionalised export: the new value of what the model writes in place
                    old = leaves[places[spec.target]] if role == "input" else tensors[spec.target]
                    old.copy_(value)
            return pytree.tree_unflatten(outputs, structure)

        return Traced(program, lambda leaves, tensors: _fill(slots, leaves, tensors, {}), result)


class StepTracer(ModelTracer):
    """A training step of a model; the optimizer's state is one, whichever plan runs."""

    def __init__(self, model: nn.Module, training: str) -> None:
        super().__init__(model, training)
        self._optimizer: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}

    def check(self, inputs: Inputs) -> None:
        """Refuse inputs that autograd follows, as the step gives gradients to parameters alone."""
        name = _requiring_gradient(inputs)
        if name is not None:
            raise UsageError(
                f"input '{name}' requires a gradient, which a training step gives to parameters alone; detach() it"
            )

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """Trace a training step with these inputs."""
        program = self._program(args, kwargs)
        slots = _slots(program)
        layouts = {}
        for (role, name, _), value in zip(slots, program.arguments, strict=True):
            if role == "state":
                layouts[name] = _Layout(value.shape, value.dtype, value.device)
                self._optimizer.setdefault(name, value)
        state = self._state_for(layouts)
        values = tuple(
            state[slot.name] if slot.role == "state" else value
            for slot, value in zip(slots, program.arguments, strict=True)
        )

        def arguments(leaves: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> list[Any]:
            given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            return _fill(slots, given, tensors, self._state_for(layouts))

        def result(loss: torch.Tensor, leaves: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
            self._counts.update((name, self._counts.get(name, 0) + 1) for name in layouts)
            return loss

        return Traced(replace(program, arguments=values), arguments, result)

    def _state_for(self, layouts: Mapping[str, _Layout]) -> dict[str, torch.Tensor]:
        """Return the optimizer's state for a plan; where its parameter has another dtype or device now, it follows."""
        counts = {self._counts.get(name, 0): name for name in layouts if name != STEP_COUNT}
        if STEP_COUNT in layouts and len(counts) > 1:
            about = " and ".join(f"'{name}' {count} times" for count, name in list(counts.items())[:2])
            raise UsageError(
                f"{self.training} has updated {about}, and counts for all parameters of a step at once; freeze or use "
                "the same parameters in each step, or optimize a step function with an optimizer of its own"
            )
        for name, (shape, dtype, device) in layouts.items():
            value = self._optimizer[name]
            if value.shape != shape:
                raise UsageError(
                    f"the state '{name}' of {self.training} is of shape {list(value.shape)}, and its parameter is of "
                    f"shape {list(shape)} now; optimize the model again"
                )
            self._optimizer[name] = value.to(device, dtype)
        if STEP_COUNT in layouts:
            self._optimizer[STEP_COUNT].fill_(max(counts, default=0))
        return {name: self._optimizer[name] for name in layouts}


class _Slot(NamedTuple):
    """An argument of a program: its role, what its holder calls it, and its value if it is a constant."""

    role: str
    name: str
    constant: Any


class _Layout(NamedTuple):
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


def _slots(program: TorchProgram) -> list[_Slot]:
    return [
        _Slot(role, name, value if role == "constant" else None)
        for role, name, value in zip(program.roles, program.names, program.arguments, strict=True)
    ]


def _fill(
    slots: Sequence[_Slot], given: Sequence[Any], tensors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]
) -> list[Any]:
    """Return what a program runs on: inputs in their order, and what the model and the optimizer hold now."""
    inputs = iter(given)
    values: list[Any] = []
    for role, name, constant in slots:
        if role == "input":
            values.append(next(inputs))
        elif role == "constant":
            values.append(constant)
        elif role == "state":
            values.append(state[name])
        else:
            values.append(tensors[name].detach())
    return values


def _requiring_gradient(inputs: Inputs) -> str | None:
    """Return the name of the first input that autograd follows."""
    return next((name for name, fact in inputs.facts if isinstance(fact, TensorFact) and fact.requires_grad), None)
