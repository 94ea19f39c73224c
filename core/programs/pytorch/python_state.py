"""The Python side of a step or a model: what it reaches, kept and restored, and what a step's tensors are called."""

from __future__ import annotations

import functools
import logging
import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ...base.errors import ProgramError
from .torch_internals import set_write_count, write_count

_BUILTINS: tuple[Any, ...] = (OrderedDict, dict, list, set, deque)  # the first that a container is


def copy_of(container: Any) -> Any:
    """Return what a dict, list, set or deque holds, in one of no class of its own."""
    return next(builtin for builtin in _BUILTINS if isinstance(container, builtin))(container)


def is_as(container: Any, kept: Any) -> bool:
    """Whether a container holds the very same things as when it was copied."""
    if len(container) != len(kept):
        return False
    if isinstance(container, dict):
        return all(key in container and dict.__getitem__(container, key) is kept[key] for key in kept)
    if isinstance(container, set):
        return {id(part) for part in container} == {id(part) for part in kept}
    return all(one is other for one, other in zip(container, kept, strict=True))


def put_back(container: Any, kept: Any) -> None:
    """Let a container hold what it held when it was copied.

    The methods are those of the builtin: a class of its own may refuse them, as configurations do that are frozen.
    """
    if is_as(container, kept):
        return
    builtin: Any = type(kept)
    builtin.clear(container)
    if builtin is OrderedDict:  # whose own `update` sets items by the methods of the class
        for key, value in kept.items():
            OrderedDict.__setitem__(container, key, value)
    else:
        (builtin.extend if builtin in (list, deque) else builtin.update)(container, kept)


_PLAIN: tuple[type, ...] = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)
_PLAIN += (types.BuiltinFunctionType, logging.Logger, np.ndarray, np.generic, torch.dtype, torch.device, torch.Size)


class PythonState:
    """What a function can change: what it reaches through closures, globals, defaults, attributes and containers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # with the name under which each was met
        self.modules: list[tuple[str, nn.Module]] = []
        self.named: list[tuple[str, torch.Tensor]] = []
        self.optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self._restoring: list[Callable[[], Any]] = []
        self._seen: dict[int, Any] = {}
        waiting: list[tuple[str, Any]] = [("", function)]
        while waiting:
            name, thing = waiting.pop()
            if isinstance(thing, _PLAIN) or id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing
            waiting += reversed(list(self._visit(name, thing)))
        python, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        self._random = random_states()
        self._restoring += [
            lambda: random.setstate(python),
            lambda: np.random.set_state(of_numpy),  # noqa: NPY002
            lambda: torch.set_rng_state(of_torch),
        ]

    def parameters(self) -> dict[int, tuple[str, torch.Tensor]]:
        """Return name and tensor of all parameters, by `id`, under the names of the outermost modules reached.

        With several of these, the name begins with that under which the module was met.
        """
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self._outermost():
            for name, parameter in module.named_parameters():
                found.setdefault(id(parameter), (prefix + name, parameter))
        return found

    def buffers(self) -> dict[int, str]:
        """Return the names of all buffers, by `id`; see `parameters`."""
        outermost = self._outermost()
        return {id(buffer): prefix + name for prefix, module in outermost for name, buffer in module.named_buffers()}

    def paths(self) -> dict[str, nn.Module]:
        """Return all modules by their paths; see `parameters`."""
        return {
            (prefix + path).rstrip("."): module
            for prefix, outer in self._outermost()
            for path, module in outer.named_modules()
        }

    def _outermost(self) -> list[tuple[str, nn.Module]]:
        """Return the modules that are in no other, each with what the names in it begin with."""
        inner = {id(part) for _, module in self.modules for part in module.modules() if part is not module}
        outermost = [(name, module) for name, module in self.modules if id(module) not in inner]
        return [(f"{name}." if len(outermost) > 1 and name else "", module) for name, module in outermost]

    def has_drawn(self) -> bool:
        """Whether somebody has drawn Python's or NumPy's random numbers since."""
        return self._random != random_states()

    def restore(self) -> None:
        """Make everything what it was."""
        for restore in self._restoring:
            restore()

    def _visit(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        """Keep what a thing consists of, and give it to be visited."""
        if isinstance(thing, torch.Tensor):
            if is_lazy(thing):
                raise ProgramError(f"'{name}' is not initialised yet; call the model once before")
            self.named.append((name, thing))
            self._keep_tensor(thing)
        elif isinstance(thing, types.FunctionType):
            yield from self._function(thing)
        elif isinstance(thing, types.MethodType):
            yield from ((name, thing.__self__), (name, thing.__func__))
        elif isinstance(thing, types.CellType):
            yield from self._cell(name, thing)
        elif isinstance(thing, functools.partial):
            yield from ((name, part) for part in (thing.func, *thing.args, *thing.keywords.values()))
        elif isinstance(thing, (tuple, frozenset)):
            yield from _parts(name, thing)
        elif isinstance(thing, (dict, list, set, deque)):
            yield from self._container(name, thing)
        if isinstance(thing, nn.Module):
            self.modules.append((name, thing))
            yield "", getattr(type(thing), "forward", None)
        elif isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append((name, thing))
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(thing, (types.FunctionType, torch.Tensor)):
            yield from self._container(name, attributes)

    def _keep_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and not tensor.is_inference():
            gradient, required, version = tensor.grad, tensor.requires_grad, write_count(tensor)

            def restore() -> None:
                tensor.requires_grad_(required)
                if tensor.grad is not gradient:
                    tensor.grad = None
                    tensor.grad = gradient
                if write_count(tensor) != version:
                    set_write_count(tensor, version)

            self._restoring.append(restore)

    def _function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        if (function.__module__ or "").partition(".")[0] in ("torch", "numpy"):
            return
        yield from zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from (("", part) for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        for name in _names(function.__code__):
            if name in function.__globals__:
                value = function.__globals__[name]
                self._restoring.append(functools.partial(function.__globals__.__setitem__, name, value))
                yield name, value

    def _cell(self, name: str, cell: types.CellType) -> Iterator[tuple[str, Any]]:
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            return
        self._restoring.append(lambda: setattr(cell, "cell_contents", value))
        yield name, value

    def _container(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        kept: Any = copy_of(thing)
        if isinstance(thing, dict):
            yield from ((name, key) for key in kept)
            yield from ((f"{name}.{key}" if name and isinstance(key, str) else name, kept[key]) for key in kept)
        else:
            yield from _parts(name, kept)
        self._restoring.append(functools.partial(put_back, thing, kept))


def _parts(name: str, things: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Return the parts of a list with the names that they have in it."""
    return ((f"{name}.{at}" if name else name, part) for at, part in enumerate(things))


def _names(code: types.CodeType) -> set[str]:
    """Return the names of globals and attributes in a function and the functions within it."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def random_states() -> tuple[Any, ...]:
    """Return the states of Python's and NumPy's random numbers; of NumPy the old generator, which all share."""
    state: Any = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return random.getstate(), state["key"].tobytes(), state["pos"]


@contextmanager
def untouched(model: nn.Module, tensors: Iterable[torch.Tensor] = ()) -> Iterator[PythonState]:
    """Undo what is done to a model's attributes, random numbers and these tensors, as when its code runs on fakes.

    PyTorch itself leaves fakes in the place of parameters of a layer that has two names (`functional_call`).
    """
    state = PythonState(model)
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield state
    finally:
        for tensor, value in kept:
            tensor.data.copy_(value)
        state.restore()
