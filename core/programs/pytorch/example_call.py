"""The call that a program was traced with: which tensors a later call gives for its inputs, if it fits at all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...errors import UsageError
from .sources import as_call


class ExampleCall:
    """A call of a model, which others must match: by position or keyword, but of the same shapes and types.

    What a program was traced with is part of it: the scale of a mean, or the branch that a flag chose. Other sizes may
    fail in the middle of a step, with half of the parameters updated, or be broadcast and give another loss.

    Parameters
    ----------
    forward
        What is called, whose signature says which arguments are the same.
    inputs
        What with: a tuple of arguments, a dict of keywords, or one tensor.
    """

    def __init__(self, forward: Callable[..., Any], inputs: Any) -> None:
        self._signature = inspect.signature(forward)
        leaves, structure = pytree.tree_flatten(as_call(inputs))
        marks = [object() for _ in leaves]
        args, kwargs = pytree.tree_unflatten(marks, structure)
        found, self._structure = pytree.tree_flatten_with_path(self._bind(args, kwargs))
        place_of = {id(leaf): place for place, (_, leaf) in enumerate(found)}
        self._expected = [leaf for _, leaf in found]
        for mark, leaf in zip(marks, leaves, strict=True):
            self._expected[place_of[id(mark)]] = leaf
        self._names = [_name(path) for path, _ in found]
        tensors = [mark for mark, leaf in zip(marks, leaves, strict=True) if isinstance(leaf, torch.Tensor)]
        self._places = [place_of[id(mark)] for mark in tensors]

    def tensors_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of a call, in the order in which those of the example are inputs of the program.

        Raises
        ------
        TypeError
            If these are no arguments of the model.
        UsageError
            If an argument is not like that of the example; the message names it.
        """
        bound = self._bind(args, kwargs)
        try:
            given = self._structure.flatten_up_to(bound)
        except ValueError as error:
            raise UsageError(f"the inputs are nested otherwise than the example inputs: {error}") from error
        for name, expected, value in zip(self._names, self._expected, given, strict=True):
            if not _alike(expected, value):
                raise UsageError(f"input '{name}' is {_text(value)}; the step was made for {_text(expected)}")
        return [given[place] for place in self._places]

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


def _name(path: Any) -> str:
    return f"{path[0].key}{pytree.keystr(path[1:])}"


def _alike(expected: Any, given: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(given, torch.Tensor) and _layout(given) == _layout(expected)
    return given is expected or (type(given) is type(expected) and bool(given == expected))


def _layout(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def _text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    shape, dtype, device = _layout(value)
    return f"a tensor of shape {tuple(shape)}, {str(dtype).removeprefix('torch.')}, on {device}"
