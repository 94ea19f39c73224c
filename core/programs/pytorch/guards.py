"""Facts of a call that a plan depends on, to say how it differs from another: its inputs and PyTorch's settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ...base.errors import UsageError
from .torch_internals import pytree

Facts = tuple[tuple[str, Any], ...]
"""Names and facts, in the order in which errors look for the first difference."""


class TensorFact(NamedTuple):
    """What a plan depends on of a tensor."""

    dtype: torch.dtype
    shape: torch.Size
    device: torch.device
    # elements per dimension; 0 where the size is 0 or 1
    strides: tuple[int, ...]


def input_facts(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Facts:
    """Bind the inputs of a call by name, as Python does, and return the fact of each leaf: `x`, `batch['ids']`."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [str(parameter.replace(annotation=parameter.empty)) for parameter in signature.parameters.values()]
        raise UsageError(f"{error}; the inputs are {', '.join(known) or 'none'}") from None
    bound.apply_defaults()
    found: Any = pytree.tree_flatten_with_path(dict(bound.arguments))[0]
    names = [f"{path[0].key}{pytree.keystr(path[1:])}" for path, _ in found]
    return tuple((name, _fact(name, leaf)) for name, (_, leaf) in zip(names, found, strict=True))


def _fact(name: str, leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        _refuse_unknown(name, leaf)
        return type(leaf), repr(leaf)  # 0.0 is not -0.0, and nan is nan
    if leaf.layout is not torch.strided or leaf.is_nested:
        raise UsageError(f"input '{name}' is a tensor of layout {leaf.layout}, which is not supported; give to_dense()")
    empty = leaf.numel() == 0
    strides = tuple(0 if empty or size == 1 else step for size, step in zip(leaf.shape, leaf.stride(), strict=True))
    return TensorFact(leaf.dtype, leaf.shape, leaf.device, strides)


def _refuse_unknown(name: str, value: Any) -> None:
    kind = type(value).__qualname__
    if type(value).__module__ == "numpy":
        raise UsageError(f"input '{name}' is a NumPy {kind}; give a tensor (torch.from_numpy, torch.as_tensor)")
    if kind == "PackedSequence":
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        raise UsageError(
            f"input '{name}' is a dataclass that PyTorch does not know as a container; call "
            f"torch.utils._pytree.register_dataclass({kind})"
        )


def text_of(fact: Any) -> str:
    """Return a fact as errors show it: `float32[1, 8]`, `3.0`."""
    if isinstance(fact, TensorFact):
        text = f"{str(fact.dtype).removeprefix('torch.')}{list(fact.shape)}"
        return text + f" on {fact.device}" * (fact.device.type != "cpu")
    return str(fact[1]) if isinstance(fact, tuple) else str(fact)


def difference(expected: Facts, given: Facts) -> str | None:
    """Return the first difference as `expected x: float32[1, 8], got float32[4, 8]`; None if there is none."""
    wanted, found = dict(expected), dict(given)
    for name, one in wanted.items():
        if name not in found:
            return f"expected {name}: {text_of(one)}, got nothing"
        other = found[name]
        if one != other:
            texts = text_of(one), text_of(other)
            if texts[0] == texts[1] and isinstance(one, TensorFact):
                texts = f"{texts[0]} of strides {list(one.strides)}", f"{texts[1]} of strides {list(other.strides)}"
            return f"expected {name}: {texts[0]}, got {texts[1]}"
    return next((f"expected no {name}, got {text_of(other)}" for name, other in given if name not in wanted), None)


def autocast_devices() -> list[str]:
    """Return the types of devices that have autocast here."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def settings_facts() -> Facts:
    """Return PyTorch's settings that a plan depends on: autocast per type of device, defaults, determinism."""
    facts: list[tuple[str, Any]] = []
    for device in autocast_devices():
        on = torch.is_autocast_enabled(device)
        facts.append((f"autocast on {device}", torch.get_autocast_dtype(device) if on else "off"))
    facts.append(("default dtype", torch.get_default_dtype()))
    facts.append(("default device", torch.get_default_device()))
    facts.append(("deterministic algorithms", torch.are_deterministic_algorithms_enabled()))
    return tuple(facts)
