"""Sources of PyTorch programs: exported files, functions that return a model with its inputs, models without data."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, SymIntArgument
from torch.export.passes import move_to_device_pass
from torch.nn.utils.rnn import PackedSequence

from ...base.errors import ProgramError, UsageError
from .calls import tensors_in
from .torch_internals import MODULES, FakeTensor, pytree, storage_id
from .tracing import fake_mode, foreign_code, silent


def specialised(
    exported: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Mapping[str, int], where: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs of the sizes asked for; values are the examples' own, repeated or cut."""
    users = [spec for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    placeholders = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
    expected = exported.call_spec.in_spec
    keywords = expected.child(1).context
    unknown = kwargs.keys() - set(keywords)
    kwargs = {key: kwargs[key] for key in keywords if key in kwargs}
    leaves, structure = pytree.tree_flatten((args, kwargs))
    if structure != expected or unknown:
        raise UsageError(
            f"{where}: it was exported for {expected.child(0).num_children} arguments and the keywords "
            f"{', '.join(keywords) or 'none'}, and is given other inputs"
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
    if missing := [shape for shape in shapes if shape not in {str(symbol) for symbol in symbols}]:
        raise UsageError(f"{where}: there is no symbolic size '{missing[0]}'; it has {names or 'none'}")
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

    inputs: list[Any] = []
    for spec, example in zip(users, leaves, strict=True):
        fake = placeholders[spec.arg.name].meta.get("val")
        if isinstance(example, torch.Tensor):
            for axis, size in enumerate(map(size_of, fake.shape)):
                example = example.index_select(axis, torch.arange(size, device=example.device) % example.shape[axis])
            inputs.append(example)
        else:
            inputs.append(size_of(fake) if isinstance(spec.arg, SymIntArgument) else example)
    call: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(inputs, structure)
    return call


def read_exported(path: str, device: str | None) -> ExportedProgram:
    """Read a file that `torch.export.save` wrote, and move its tensors to `device` if one is given."""
    if not Path(path).is_file():
        raise ProgramError(f"{path}: no such file")
    with foreign_code(path, "not an exported program that can be read, or truncated"), silent():
        exported = torch.export.load(path)
        if device is not None:
            exported = move_to_device_pass(exported, device)
    if exported.example_inputs is None:
        raise ProgramError(f"{path}: it has no example inputs; save the program that torch.export.export returned")
    return exported


def call_function(model: str, sizes: Mapping[str, int]) -> tuple[nn.Module | Callable[..., Any], Any]:
    """Import and call the `function` of `module:function`, and return the model or step and the inputs it returns."""
    module_name, _, function_name = model.partition(":")
    if not module_name or not function_name:
        raise ProgramError(f"'{model}' is neither a .pt2 file nor module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        with foreign_code(model, f"module '{module_name}' cannot be imported"):
            module = importlib.import_module(module_name)
    except ProgramError as error:
        missing = error.__context__
        if isinstance(missing, ModuleNotFoundError) and missing.name in (module_name, module_name.partition(".")[0]):
            raise ProgramError(f"{model}: there is no module '{module_name}' here or in the environment") from None
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ProgramError(f"{model}: module '{module_name}' has no function '{function_name}'")
    parameters = inspect.signature(function).parameters.values() if sizes else ()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if unknown := [name for name in sizes if not (takes_any or name in named)]:
        have = f"it has {', '.join(named)}" if named else "it has none"
        raise UsageError(f"{model}: the function has no keyword argument '{unknown[0]}' for a size; {have}")
    with foreign_code(model, f"{function_name}() failed"):
        result = function(**sizes)
    if not (isinstance(result, tuple) and len(result) == 2 and callable(result[0])):
        raise ProgramError(
            f"{model}: {function_name}() must return a tuple (torch.nn.Module, example inputs), or (function that does "
            "a training step, example inputs)"
        )
    return result


class Call(NamedTuple):
    """Example inputs of which some are given by place, and others by keyword."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs (a tuple, a dict of keywords, one value, or a `Call`) as arguments and keywords."""
    if isinstance(inputs, Call):
        return inputs
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    is_one = not isinstance(inputs, (tuple, list)) or isinstance(inputs, PackedSequence)
    return ((inputs,), {}) if is_one else (tuple(inputs), {})


Placed = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


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
) -> Placed:
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


def without_data(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Placed:
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
