"""Models called through PyTorch's own guards: each graph of TorchDynamo is a plan, checked against the model itself."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from ...base.errors import ProgramError, SchedoptError, UsageError
from . import tracing
from .calls import argument_names, tensors_in
from .dynamo_internals import FailOnRecompileLimitHit, TorchDynamoException, dynamo_config, run_only
from .plans import Facts, PlanSettings, as_traced, difference, input_facts, ordered, settings_facts
from .program import as_call, refuse_without_data, tensors_of
from .run import begin_anew, digests
from .step_graph import random_states, untouched
from .torch_internals import NON_PERSISTENT, REGISTRIES, STATE_HOOKS, current_modes, pytree, storage_of, write_count
from .tracing import LOCK, TorchProgram, line_of

_SHARED = (*REGISTRIES, NON_PERSISTENT, *STATE_HOOKS)
# Hooks are guarded, recurrent layers are ops as others, and the limit of plans is our own.
_CONFIG: dict[str, Any] = {"skip_nnmodule_hook_guards": False, "allow_rnn": True, "recompile_limit": sys.maxsize}
# In an error of TorchDynamo while any thread traces, for which PyTorch has one flag.
_TRACED = "symbolically trace a dynamo-optimized function"
_SEEDED = torch.Tag.nondeterministic_seeded


class PlannedModel(nn.Module):
    """A model's forward pass in orders of less peak memory, with the model's own state; see `schedopt.optimize`."""

    _model: nn.Module

    def __init__(self, model: nn.Module, inputs: Any, settings: PlanSettings) -> None:
        super().__init__()
        args, kwargs = as_call(inputs)
        name = type(model).__name__
        tracing.refuse_foreign(model, name)
        refuse_without_data(name, (*tensors_of(model), *args, *kwargs.values()))
        self.__dict__["_model"] = model  # as no module of its own: its parts are, under the model's names
        self.__dict__.update((shared, model.__dict__[shared]) for shared in _SHARED)
        self._settings = settings
        self._facts: Facts | None = None  # of the last kind of call that was planned
        self._start()
        with LOCK:
            self._plan(args, kwargs)

    def _start(self) -> None:
        """Begin without plans."""
        self._plans = _Plans(type(self._model).__name__, self._settings)
        self._differs = False
        self._told = False
        self._unfitting = 0  # checks in a row after which the same call needed another plan
        model = self._model

        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                raise _Stopped
            return model(*args, **kwargs)

        # TorchDynamo keeps guards with the code and graphs in its globals, so each model has its own of both.
        own = types.FunctionType(call.__code__.replace(), {**call.__globals__}, "call", None, call.__closure__)
        # Guards of functions and classes never let go of the globals: what is in them goes with the model.
        weakref.finalize(self, lambda scope: scope.update(dict.fromkeys(scope)), own.__globals__).atexit = False
        self._compiled = torch.compile(own, backend=self._plans.compile, dynamic=False, fullgraph=True)
        self._planned = run_only(own)  # calls `own` itself where no graph fits

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plan for these inputs, which is made where there is none yet."""
        if torch.is_grad_enabled():
            self._warn_without_gradients(args, kwargs)
        if self._differs or current_modes():  # under a dispatch mode TorchDynamo makes no graph
            return self._model(*args, **kwargs)
        if any(isinstance(value, np.ndarray) for value in (*args, *kwargs.values())):
            self._facts_of(args, kwargs)  # refuses it: to TorchDynamo it would be the tensor that it can become
        try:
            return self._run(args, kwargs, "run")
        except _Stopped:
            pass
        except RuntimeError as error:
            if _TRACED not in str(error):
                raise
            with LOCK, suppress(_Stopped):  # held by the thread that traces
                return self._run(args, kwargs, "run")
        with LOCK:
            if not self._fits(args, kwargs):
                self._plan(args, kwargs)
            if self._settings.verify:
                return self._checked(args, kwargs)
            return self._run(args, kwargs, "check")

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], stage: str) -> Any:
        """Call the model through PyTorch's guards."""
        now = self._plans.now
        now.stage, now.grad = stage, torch.is_grad_enabled()
        with torch.no_grad():
            return self._planned(*args, **kwargs)

    def _plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the plan for a call, without a change of anything."""
        facts, count, limit = self._facts_of(args, kwargs), self._plans.count, self._settings.plan_limit
        changed = "the model has changed"
        found = (None if self._facts is None else difference(self._facts, facts)) or changed
        if self._facts is not None and self._settings.dynamic is False and (count or found != changed):
            raise UsageError(f"{found}; it was made with dynamic=False")
        if count >= limit:
            raise UsageError(
                f"{found}; there are {count} plans, one per kind of call, and plan_limit={count} allows no more: give "
                "inputs of fewer shapes, or a higher limit"
            )
        try:
            self._graph(args, kwargs)()
        except SchedoptError as error:
            if isinstance(error, ProgramError) and self._facts is not None:
                error = ProgramError(f"{found}; no plan can be made for that: {error}")
            raise error.with_traceback(None) from None
        if self._facts is None or self._settings.dynamic is None:
            self._facts = facts

    def _graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None]:
        """Have TorchDynamo trace a call, and return the maker of the plan for it."""
        self._plans.now.stage = "look"
        try:
            with torch.no_grad(), dynamo_config.patch(_CONFIG), tracing.silent():
                self._compiled(*args, **kwargs)
        except _Stopped as stopped:
            if stopped.make is not None:
                return stopped.make
            raise ProgramError(
                "torch.compile is switched off, and plans need it; unset TORCHDYNAMO_DISABLE, or call "
                'torch.compiler.set_stance("default")'
            ) from None
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            why = error
        # The model may raise as well: then that is what the caller gets.
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), (args, kwargs))
        with untouched(self._model, tensors_of(self._model)), torch.random.fork_rng(), tracing.silent():
            self._model(*args, **kwargs)
        said = str(why).strip().split("\n")[0].removesuffix(".")
        raise ProgramError(
            f"{self._plans.name}: PyTorch makes no one graph of the model{line_of(why)}: {said}; change that line, "
            'give optimize a function that calls the model, or use torch.compile(model, backend="schedopt"), which '
            "plans each part"
        )

    def _facts_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Facts:
        return input_facts(inspect.signature(self._model.forward), args, kwargs) + settings_facts()

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the model's own results, and compare them with those of its plan on copies."""
        now, model, name = self._plans.now, self._model, self._plans.name
        planned: list[Any] | str
        try:
            with untouched(model), torch.random.fork_rng():
                returned = self._run(args, kwargs, "check on copies")
                copies = {id(given): copied for given, copied in now.written}  # Dynamo returns an input as it was given
                returned = pytree.tree_map_only(torch.Tensor, lambda one: copies.get(id(one), one), returned)
                tracing.know_outputs(returned, name, every=True)
                planned = [*digests(returned, [copied for _, copied in now.written]), *_generators()]
        except SchedoptError:
            raise
        except (Exception, _Stopped) as error:  # the model may raise as well: then that is what the caller gets
            planned = str(error)
        written = [given for given, _ in now.written]
        others = {id(tensor): tensor for tensor in tensors_in([tensors_of(model), args, kwargs])}
        counts = {key: _writes(tensor) for key, tensor in others.items()}
        storages = {storage_of(tensor) for tensor in written}
        now.written = []
        returned = model(*args, **kwargs)
        is_same = planned == [*digests(returned, written), *_generators()] and all(
            _writes(tensor) == counts[key] or storage_of(tensor) in storages for key, tensor in others.items()
        )
        now.confirm()
        self._unfitting = 0 if self._fits(args, kwargs) else self._unfitting + 1
        if not is_same or self._unfitting > 1:
            self._differs = True
            why = (
                "results of its plan are not bitwise those of the model, because PyTorch traces another branch, or "
                "the model draws numbers outside of PyTorch"
            )
            if is_same:
                why = "its own code changes an attribute at each call, so that no plan fits twice; count in a buffer"
            why += "; the model itself is called; a function that calls it is recorded instead, not traced"
            warnings.warn(f"{name}: {why}", stacklevel=5)
        if not is_same:
            return returned
        return pytree.tree_map_only(torch.Tensor, lambda one: one if one.grad_fn is None else one.detach(), returned)

    def _fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether there is a plan for a call."""
        try:
            self._run(args, kwargs, "look")
        except _Stopped as stopped:
            return stopped.is_planned
        return True

    def _warn_without_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        remedy = (
            "call it under torch.no_grad(); to train, give optimize a step function, or use "
            'torch.compile(model, backend="schedopt")'
        )
        names = argument_names(self._model.forward, args, kwargs)
        for name, value in zip(names, pytree.tree_leaves((args, kwargs)), strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise UsageError(f"input '{name}' requires a gradient, which a planned model does not give; {remedy}")
        if not self._told and any(parameter.requires_grad for parameter in self._model.parameters()):
            self._told = True
            warnings.warn(f"{self._plans.name}: results of a planned model have no gradients; {remedy}", stacklevel=5)

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self._model.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_model" in self.__dict__:  # else it is what every new module sets
            self._model.training = mode

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_plans", "_compiled", "_planned")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        count = self._plans.count
        return f"{type(self).__name__}({type(self._model).__name__}, {count} plan{'s' * (count != 1)})"


class _Stopped(BaseException):
    """Ends a call before it has run anything, as its plan is missing, was made just now, or is not checked yet."""

    def __init__(self, make: Callable[[], None] | None = None, *, is_planned: bool = False) -> None:
        super().__init__()
        self.make = make  # the plan that its graph lacks
        self.is_planned = is_planned


class _Now(threading.local):
    """The purpose of a thread's call of the model."""

    stage = "run"  # or `look` whether there is a plan, `check on copies`, or `check`, without a comparison
    grad = False  # whether the caller has autograd on
    written: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()  # what the check would write to, and copies that it did
    confirm: Callable[[], Any] = bool  # notes that the plan which the check ran is right


class _Plans:
    """The plans of a model, and the purpose of a call; they refer to nothing of the model."""

    def __init__(self, name: str, settings: PlanSettings) -> None:
        self.name = name
        self.settings = settings
        self.now = _Now()
        self.graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()  # that TorchDynamo has not dropped

    @property
    def count(self) -> int:
        """The number of plans."""
        return sum(len(graph.ordered) for graph in self.graphs)

    def compile(self, module: fx.GraphModule, inputs: Sequence[Any]) -> _Graph:
        """Return a graph of TorchDynamo, which has no plan yet."""
        graph = _Graph(self, module)
        self.graphs.add(graph)
        return graph


class _Graph:
    """A graph of TorchDynamo, with a plan for each way in which arguments that it writes to share memory."""

    def __init__(self, plans: _Plans, module: fx.GraphModule) -> None:
        self.plans = plans
        self.module = module
        self.writes = self.draws = False  # to arguments, and random numbers; known with the first plan
        self.ordered: dict[Any, tuple[fx.GraphModule, list[Any], list[int]]] = {}
        self.checked: set[Any] = set()  # keys of plans, and whether autograd was on

    def __call__(self, *args: Any) -> Any:
        now, key = self.plans.now, self._sharing(args)
        found = self.ordered.get(key)
        if found is None or now.stage == "look":
            raise _Stopped(functools.partial(self._plan, args), is_planned=found is not None)
        module, constants, written = found
        checked = key, now.grad
        if now.stage == "check on copies":
            now.confirm = functools.partial(self.checked.add, checked)
            copies = copy.deepcopy([args[number].detach() for number in written])
            now.written = list(zip([args[number] for number in written], copies, strict=True))
            changed = dict(zip(written, copies, strict=True))
            args = tuple(changed.get(number, value) for number, value in enumerate(args))
        elif now.stage == "check":
            self.checked.add(checked)
        elif checked not in self.checked:
            raise _Stopped(is_planned=True)
        else:
            begin_anew(module)
        with LOCK if self.writes or self.draws else nullcontext(), as_traced(grad=False):
            return module(*args, *constants)

    def _sharing(self, args: Sequence[Any]) -> Any:
        """Return which arguments share memory, and where they begin, if the graph writes to one."""
        if not self.writes:
            return ()
        first: dict[int, int] = {}
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        at = [first.setdefault(storage_of(tensor), number) for number, tensor in enumerate(tensors)]
        if len(first) == len(at):
            return ()
        return tuple((number, tensor.storage_offset()) for number, tensor in zip(at, tensors, strict=True))

    def _plan(self, args: Sequence[Any]) -> None:
        """Make the plan for arguments, with the constants that it takes too, and the numbers of those it writes to."""
        name = self.plans.name
        with torch.inference_mode(False), torch.no_grad():
            with tracing.foreign_code(name, "the model cannot be traced"), tracing.silent():
                module, _ = tracing.trace(self.module, args, name)
            constants = [held.tensor for held in tracing.lift_constants(module)]
            names = tuple(node.name for node in module.graph.find_nodes(op="placeholder"))
            roles = ("input",) * len(args) + ("constant",) * len(constants)
            program = TorchProgram(name, module, (*args, *constants), roles, names, ("output",))
        with as_traced(grad=False):
            graph, in_order = ordered(program, self.plans.settings)
        written = {resident.name for resident in graph.annotations.residents if resident.writers}
        storages = {storage_of(arg) for label, arg in zip(names, args, strict=False) if label in written}
        tensors = ((number, arg) for number, arg in enumerate(args) if isinstance(arg, torch.Tensor))
        numbers = [number for number, arg in tensors if storage_of(arg) in storages]
        self.writes = bool(numbers)
        self.draws = any(_SEEDED in getattr(node.target, "tags", ()) for node in in_order.graph.nodes)
        self.ordered[self._sharing(args)] = in_order, constants, numbers


def _writes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else write_count(tensor)


def _generators() -> list[Any]:
    """Return the states of PyTorch's, Python's and NumPy's random numbers."""
    return [*digests(torch.get_rng_state()), *random_states()]
