"""What a model returns, where PyTorch does not know its type: dataclasses are registered, the rest is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ...base.errors import ProgramError
from .torch_internals import pytree

_PLAIN = (torch.Tensor, bool, int, float, complex, str, torch.dtype, torch.device, type(None))


@contextmanager
def known_outputs(model: nn.Module, where: str, *, every: bool) -> Iterator[None]:
    """Register the dataclasses that a model returns with PyTorch's trees as soon as it returns one.

    A type stays registered, as `torch.export.register_dataclass` leaves it, for what runs the program makes one.
    """

    def look(_model: nn.Module, _args: Any, outputs: Any) -> None:
        for leaf in pytree.tree_leaves(outputs):
            if isinstance(leaf, _PLAIN):
                continue
            if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
                torch.export.register_dataclass(type(leaf))
                look(_model, _args, outputs)
                return
            if every:
                raise ProgramError(f"{where}: the model returns a {type(leaf).__name__}, {_remedy(leaf)}")

    handle = model.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()


def _remedy(value: Any) -> str:
    if "Cache" in type(value).__name__:
        return "whose tensors PyTorch does not know; call it with use_cache=False"
    return (
        "whose tensors PyTorch does not know; return tensors, a dict or a dataclass, or register the type by "
        "torch.utils._pytree.register_pytree_node"
    )
