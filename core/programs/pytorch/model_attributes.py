"""The attributes of a model's modules: which ones its code sets, and how they are as before after it ran on fakes.

Attributes are those of modules, and what these hold in containers and in plain objects, a configuration say.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .python_state import copy_of, put_back
from .torch_internals import REGISTRIES

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OTHERS = sys.stdlib_module_names - {"types", "collections", "__main__"} | {"torch", "numpy"}
"""Whose objects are no configuration: loggers, locks, random generators."""


def held_by(value: Any) -> dict[Any, Any] | list[Any] | set[Any] | None:
    """Return the container that a value is, or that an object's attributes are in; None if it is neither."""
    if isinstance(value, (dict, list, set)):
        return value
    if isinstance(value, (type, types.ModuleType, torch.Tensor)) or callable(value):
        return None
    if type(value).__module__.partition(".")[0] in _OTHERS:
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else None


def parts_of(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return what a value holds, each with its name: `sizes[0]`, `options['scale']`, `config.heads`."""
    held = value if isinstance(value, (tuple, frozenset)) else held_by(value)
    if held is None:
        return []
    if isinstance(held, (set, frozenset)):
        return [(f"{name} with {part!r}", part) for part in sorted(held, key=repr)]
    if isinstance(held, dict):
        is_object = not isinstance(value, dict)
        return [(f"{name}.{key}" if is_object else f"{name}[{key!r}]", part) for key, part in held.items()]
    return [(f"{name}[{place}]", part) for place, part in enumerate(held)]


def containers(attributes: Mapping[str, Any], seen: set[int]) -> Iterator[tuple[str, Any, Any]]:
    """Return each container below attributes: the name of what it is or is in, that, and the container.

    Those whose `id` is in `seen` are left out, and those returned put there.
    """
    waiting = list(attributes.items())[::-1]
    while waiting:
        name, value = waiting.pop()
        held = held_by(value)
        if id(value) in seen or (held is None and not isinstance(value, tuple)):
            continue
        if held is not None:
            seen.add(id(value))
            yield name, value, held
        waiting += reversed(parts_of(name, value))


class Attributes:
    """The attributes that all modules of a model have, and its parameters, buffers and submodules."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._values = [dict(module.__dict__) for module in self._modules.values()]
        self._registries = [
            [(module.__dict__[name], dict(module.__dict__[name])) for name in REGISTRIES]
            for module in self._modules.values()
        ]
        seen: set[int] = set()
        self._held = [
            (name, value, held, copy_of(held))
            for path, module in self._modules.items()
            for name, value, held in containers(_own(path, module), seen)
            if not _refers_to_parameters(held)
        ]

    def replaced(self) -> Iterator[str]:
        """Return the names of attributes that were added, removed or replaced."""
        for (path, module), before in zip(self._modules.items(), self._values, strict=True):
            now = module.__dict__
            for key in now.keys() | before.keys():
                if now.get(key) is not before.get(key) and not _refers_to_parameters(before.get(key)):
                    yield f"{path}.{key}" if path else key
        for name, value, held, kept in self._held:
            if len(held) != len(kept):
                yield name  # all of it, as the next call may add another part
                continue
            before = dict(parts_of(name, kept if held is value else types.SimpleNamespace(**dict(kept))))
            now = dict(parts_of(name, value))
            yield from (key for key in now.keys() | before.keys() if now.get(key) is not before.get(key))

    def restore(self) -> None:
        """Make everything as it was."""
        for module, before in zip(self._modules.values(), self._values, strict=True):
            module.__dict__.clear()
            module.__dict__.update(before)
        for registries in self._registries:
            for registry, members in registries:
                registry.clear()
                registry.update(members)
        for _, _, held, kept in self._held:
            put_back(held, kept)


def _own(path: str, module: nn.Module) -> dict[str, Any]:
    """Return the attributes that not every module has, with the module's path before their names."""
    before = f"{path}." if path else ""
    return {before + key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}


def _refers_to_parameters(value: Any) -> bool:
    """Whether it is a list of parameters, which `nn.LSTM` makes anew when these are replaced, as tracing does."""
    return isinstance(value, list) and any(isinstance(item, (nn.Parameter, weakref.ref)) for item in value)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Undo what is done to a model's attributes within, as its code does it to fakes when it is traced.

    PyTorch itself leaves fakes in the place of parameters of a layer that has two names (`functional_call`).
    """
    before = Attributes(model)
    try:
        yield
    finally:
        before.restore()
