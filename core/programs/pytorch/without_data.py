"""Programs without data: models on PyTorch's meta device, or for a device that is not here, as fake tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ...base.errors import ProgramError
from .calls import tensors_in
from .torch_internals import MODULES, FakeTensor, pytree, storage_id
from .tracing import fake_mode, foreign_code

Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


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


def placed(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: str | None,
    where: str,
    note: Callable[[str], None],
) -> Call:
    """Return a model and its inputs on a device: moved there, or without data where there is none or no such device."""
    absent = device == "cuda" and not torch.cuda.is_available()
    if absent:
        note(
            f"{where}: there is no CUDA device here, so it is planned without data and with the ops of the CPU; "
            "CUDA may take others for attention, dropout, batch norm and recurrent layers"
        )
    if absent or lacks_data((tensors_of(model), args, kwargs)):
        return without_data(model, args, kwargs, where)
    if device is not None:
        with foreign_code(where, f"the model cannot be moved to {device}"):
            model = model.to(device)
            args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    return model, args, kwargs


def without_data(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Call:
    """Return a copy of a model and of its inputs in which all tensors are fakes of the CPU; no data is copied.

    A fake tensor knows its device, so PyTorch makes the calls that it makes there; on the meta device it makes others.
    """
    mode = fake_mode()
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
    args, kwargs = pytree.tree_map_only(torch.Tensor, fake, (args, kwargs))
    return planned, args, kwargs
