"""Facts that a traced program depends on: the inputs of a call, a model's tensors, PyTorch's settings.

Each such thing is a fact, a value that compares equal as long as a trace stands for it, with a text for errors.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...base.errors import UsageError
from .torch_internals import OpOverload, pytree, storage_of

Facts = tuple[tuple[str, Any], ...]
"""Names and facts, in the order in which errors look for the first difference."""

_PLAIN = (int, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_NAMED = (enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, OpOverload)


class TensorFact(NamedTuple):
    """What a trace depends on of a tensor."""

    dtype: torch.dtype
    shape: torch.Size
    device: torch.device
    # elements per dimension; 0 where the size is 0 or 1
    strides: tuple[int, ...]
    requires_grad: bool
    bits: tuple[bool, bool] = (False, False)  # read conjugated, read negated
    shares: str | None = None  # which earlier tensor shares its memory, and how


class PlainFact(NamedTuple):
    """What a trace depends on of a value that is no tensor: its type and itself; of a float, all bits of it."""

    kind: type
    value: Any


def tensor_fact(tensor: torch.Tensor, shares: str | None = None) -> TensorFact:
    """Return the fact of a strided tensor."""
    shape = tensor.shape
    empty = 0 in shape
    strides = tuple(0 if empty or size == 1 else step for size, step in zip(shape, tensor.stride(), strict=True))
    bits = (tensor.is_conj(), tensor.is_neg())
    return TensorFact(tensor.dtype, shape, tensor.device, strides, tensor.requires_grad, bits, shares)


def plain_fact(value: Any) -> PlainFact | None:
    """Return the fact of a number, text, enum member, function or such; None if it is none of these."""
    if isinstance(value, (float, complex)):
        return PlainFact(type(value), repr(value))  # 0.0 is not -0.0, and nan is nan
    if isinstance(value, (*_PLAIN, *_NAMED)):
        return PlainFact(type(value), value)
    return None


def text_of(fact: Any) -> str:
    """Return a fact as errors show it: `float32[1, 8]`, `3.0`."""
    if isinstance(fact, TensorFact):
        more = [f"on {fact.device}"] * (fact.device.type != "cpu") + ["that requires a gradient"] * fact.requires_grad
        return " ".join([f"{str(fact.dtype).removeprefix('torch.')}{list(fact.shape)}", *more])
    if isinstance(fact, PlainFact):
        if fact.kind in (float, complex):
            return str(fact.value)
        return getattr(fact.value, "__qualname__", None) or repr(fact.value)
    return "nothing" if fact is None else str(fact)


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
                texts = f"{texts[0]} {_layout(one)}", f"{texts[1]} {_layout(other)}"
            return f"expected {name}: {texts[0]}, got {texts[1]}"
    for name, other in found.items():
        if name not in wanted:
            return f"expected no {name}, got {text_of(other)}"
    for name, other_name in zip(wanted, found, strict=True):
        if name != other_name:
            return f"expected {name} before {other_name}"
    return None


def _layout(fact: TensorFact) -> str:
    words = [f"of strides {list(fact.strides)}", fact.shares or "with memory of its own"]
    return ", ".join(words + ["conjugated"] * fact.bits[0] + ["negated"] * fact.bits[1])


class Inputs(NamedTuple):
    """The inputs of a call, in the one form that each way to call has."""

    # by place as far as possible; what equals its default is left out
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]  # of `(args, kwargs)`
    structure: pytree.TreeSpec
    facts: Facts  # of each leaf, by its name: `x`, `batch['ids']`


def bind(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs:
    """Bind the inputs of a call by name, as Python does, and take their facts."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [str(parameter.replace(annotation=parameter.empty)) for parameter in signature.parameters.values()]
        raise UsageError(f"{error}; the inputs are {', '.join(known) or 'none'}") from None
    _drop_defaults(bound)
    found, structure = pytree.tree_flatten_with_path(dict(bound.arguments))
    names = [_name(path) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    return Inputs(bound.args, bound.kwargs, leaves, structure, tuple(_input_facts(names, leaves)))


def _name(path: Any) -> str:
    return f"{path[0].key}{pytree.keystr(path[1:])}"


def _drop_defaults(bound: inspect.BoundArguments) -> None:
    """Leave out plain inputs that equal their defaults, so that to give them or not is the same call."""
    by_place = any(
        parameter.kind is inspect.Parameter.VAR_POSITIONAL and bound.arguments.get(name)
        for name, parameter in bound.signature.parameters.items()
    )
    for name, parameter in bound.signature.parameters.items():
        keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if name in bound.arguments and (
            keyword or (parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and not by_place)
        ):
            fact = plain_fact(bound.arguments[name])
            if fact is not None and fact == plain_fact(parameter.default):
                del bound.arguments[name]


def _input_facts(names: Sequence[str], leaves: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    before: list[tuple[str, torch.Tensor, int, int]] = []
    for name, leaf in zip(names, leaves, strict=True):
        if not _is_tensor(leaf):
            fact = plain_fact(leaf)
            if fact is None:
                raise UsageError(_unknown(name, leaf))
            yield name, fact
            continue
        if leaf.layout is not torch.strided or leaf.is_nested:
            raise UsageError(
                f"input '{name}' is a tensor of layout {leaf.layout}, which is not supported; give to_dense()"
            )
        start, end = _extent(leaf)
        shares = None
        for other_name, other, other_start, other_end in before:
            if leaf is other:
                shares = f"the same tensor as {other_name}"
                break
            if start < other_end and other_start < end:
                if storage_of(leaf) != storage_of(other):
                    raise UsageError(
                        f"inputs '{other_name}' and '{name}' share memory, which PyTorch does not know; clone() one"
                    )
                shares = f"sharing memory with {other_name} from byte {start - other_start}"
                break
        before.append((name, leaf, start, end))
        yield name, tensor_fact(leaf, shares)


def _is_tensor(value: Any) -> bool:
    """Whether PyTorch's own kernels run on it: not so for fake and distributed tensors, and others of that kind."""
    return isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the one after its last; an empty one has none."""
    start = tensor.data_ptr() if tensor.device.type != "meta" else 0
    if not start or not tensor.numel():
        return 0, 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _unknown(name: str, value: Any) -> str:
    kind = type(value).__qualname__
    if type(value).__module__ == "numpy":
        return f"input '{name}' is a NumPy {kind}; give a tensor (torch.from_numpy, torch.as_tensor)"
    if dataclasses.is_dataclass(value):
        return (
            f"input '{name}' is a dataclass that PyTorch does not know as a container; call "
            f"torch.utils._pytree.register_dataclass({kind})"
        )
    return f"input '{name}' is a {kind}; inputs are tensors, plain values, and tuples, lists and dicts of these"


class State(NamedTuple):
    """What a trace depends on besides the inputs."""

    facts: Facts
    tensors: Mapping[str, torch.Tensor]  # parameters and buffers, by name


def autocast_devices() -> list[str]:
    """Return the types of devices that have autocast here."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def settings_facts() -> Facts:
    """Return PyTorch's settings that a trace depends on: autocast per type of device, defaults, determinism."""
    facts: list[tuple[str, Any]] = []
    for device in autocast_devices():
        on = torch.is_autocast_enabled(device)
        facts.append((f"autocast on {device}", torch.get_autocast_dtype(device) if on else "off"))
    facts.append(("default dtype", torch.get_default_dtype()))
    facts.append(("default device", torch.get_default_device()))
    facts.append(("deterministic algorithms", torch.are_deterministic_algorithms_enabled()))
    return tuple(facts)
