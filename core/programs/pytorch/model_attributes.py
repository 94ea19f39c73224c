"""The attributes of a model's modules: which ones its code sets, and how they are as before after it ran on fakes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


class Attributes:
    """The attributes that all modules of a model have, and its parameters, buffers and submodules.

    Parameters
    ----------
    model
        Any module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._values = [dict(module.__dict__) for module in self._modules.values()]
        self._registries = [
            [(registry, dict(registry)) for registry in (module._parameters, module._buffers, module._modules)]
            for module in self._modules.values()
        ]

    def replaced(self) -> Iterator[str]:
        """Return the names of attributes that were added, removed or replaced."""
        for (path, module), before in zip(self._modules.items(), self._values, strict=True):
            now = module.__dict__
            for key in now.keys() | before.keys():
                if now.get(key) is not before.get(key) and not _refers_to_parameters(before.get(key)):
                    yield f"{path}.{key}" if path else key

    def restore(self) -> None:
        """Make everything as it was."""
        for module, before in zip(self._modules.values(), self._values, strict=True):
            module.__dict__.clear()
            module.__dict__.update(before)
        for registries in self._registries:
            for registry, members in registries:
                registry.clear()
                registry.update(members)


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
