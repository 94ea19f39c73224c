"""Facts of a model that a trace depends on: its parameters and buffers, its modules and their plain attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ...base.errors import UsageError
from .guards import Facts, PlainFact, State, plain_fact, tensor_fact
from .model_attributes import containers, held_by, parts_of
from .torch_internals import CALL_HOOKS, NON_PERSISTENT, REGISTRIES, storage_of

_NO_FACTS = {*REGISTRIES, NON_PERSISTENT}


class SameTensor:
    """A tensor that is neither parameter nor buffer, equal to none but itself, as traces hold it as a constant."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameTensor) and self.tensor is other.tensor

    def __hash__(self) -> int:
        return id(self.tensor)

    def __str__(self) -> str:
        return f"the tensor of shape {list(self.tensor.shape)} at {id(self.tensor):#x}"


class ModelGuard:
    """The state of a model, read anew only where something of it was replaced since the last time."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._written: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self._state: State | None = None
        self._seen: list[_Seen] = []
        self._layouts: list[tuple[torch.Tensor, Any]] = []

    def state(self) -> State:
        """Return facts of parameters, buffers, plain attributes, hooks and types of modules, and the tensors."""
        if self._state is None or not self._is_as_seen():
            facts, tensors = _read(self._model)
            self._state = State(tuple(fact for fact in facts if not self._is_written(fact[0])), tensors)
            visited: set[int] = set()
            self._seen = [_Seen.of(module, visited) for module in self._model.modules()]
            known = {id(tensor) for tensor in tensors.values()}
            loose = [tensor for seen in self._seen for tensor in seen.tensors() if id(tensor) not in known]
            self._layouts = [(tensor, _layout(tensor)) for tensor in [*tensors.values(), *loose]]
        return self._state

    def leave_out(self, names: Iterable[str]) -> None:
        """Take attributes that the model itself changes when it runs, a counter say, for no facts."""
        self._written |= {f"attribute {name}" for name in names}
        self._forget()

    def _is_written(self, name: str) -> bool:
        """Whether it is what the model sets, or in it."""
        return name in self._written or any(
            name.startswith((f"{written}.", f"{written}[", f"{written} with ")) for written in self._written
        )

    def _is_as_seen(self) -> bool:
        return all(seen.is_so() for seen in self._seen) and all(
            _layout(tensor) == layout for tensor, layout in self._layouts
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": self._model, "_written": self._written, "_state": None, "_seen": [], "_layouts": []}


class _Seen(NamedTuple):
    """A module as it was: its type, its attributes, and what its registries, hooks, containers and objects held.

    It holds what it saw, so that nothing new can take the place of an old thing in memory.
    """

    module: nn.Module
    kind: type
    keys: list[str]
    values: list[Any]
    empty: list[Any]
    filled: list[tuple[Any, list[Any], list[Any]]]

    @classmethod
    def of(cls, module: nn.Module, visited: set[int]) -> _Seen:
        """Keep a module as it is; what is in `visited` another one has kept."""
        attributes = vars(module)
        found = [held for _, _, held in containers(attributes, visited)]
        filled = [(value, list(value), list(_members(value))) for value in found if value]
        empty = [value for value in found if not value]
        return cls(module, type(module), list(attributes), list(attributes.values()), empty, filled)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the tensors that it has and holds."""
        for values in (self.values, *(members for _, _, members in self.filled)):
            yield from (value for value in values if isinstance(value, torch.Tensor))

    def is_so(self) -> bool:
        """Whether the module is as it was."""
        attributes = self.module.__dict__
        return (
            type(self.module) is self.kind
            and len(attributes) == len(self.values)
            and all(map(is_, attributes.values(), self.values))
            and list(attributes) == self.keys
            and not any(self.empty)
            and all(
                len(container) == len(keys)
                and all(map(is_, container, keys))
                and all(map(is_, _members(container), members))
                for container, keys, members in self.filled
            )
        )


def _members(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _layout(tensor: torch.Tensor) -> Any:
    """Return what changes when `to()`, `requires_grad_()` or `data` change a tensor in its place."""
    if tensor.layout is not torch.strided:
        return tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad
    where = tensor.data_ptr() if tensor.device.type != "meta" else 0
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, where


def _read(model: nn.Module) -> tuple[Facts, dict[str, torch.Tensor]]:
    facts: list[tuple[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    first_with: dict[int, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        before = f"{path}." if path else ""
        facts.append((f"module '{path}'", plain_fact(type(module))))
        for kind, registry in zip(("parameter", "buffer"), REGISTRIES, strict=False):
            for key, tensor in module.__dict__[registry].items():
                if tensor is None:
                    continue
                name = before + key
                if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
                    raise UsageError(f"{kind} '{name}' is not initialised yet; call the model once before")
                tensors[name] = tensor
                first = first_with.setdefault(storage_of(tensor), name)
                shares = None if first == name else f"sharing memory with {first} from {tensor.storage_offset()}"
                facts.append((f"{kind} {name}", tensor_fact(tensor, shares)))
        facts += _attributes(module, before)
    return tuple(facts), tensors


def _attributes(module: nn.Module, before: str) -> Iterator[tuple[str, Any]]:
    for key, value in vars(module).items():
        name = f"attribute {before}{key}"
        if key in CALL_HOOKS:
            yield name, tuple(value)
        elif key not in _NO_FACTS:
            yield from _attribute_facts(name, value)


def _attribute_facts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return the facts of a module's attribute: plain values, tensors, and containers and objects that hold these."""
    around: set[int] = set()
    waiting: list[tuple[str, Any]] = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, nn.Parameter):  # a second reference to it, as layers of `nn.LSTM` have
            continue
        if isinstance(value, torch.Tensor):
            yield name, (SameTensor(value), tensor_fact(value) if value.layout is torch.strided else None)
            continue
        is_container = isinstance(value, (tuple, frozenset)) or held_by(value) is not None
        fact = plain_fact(type(value) if is_container else value)
        if fact is None and callable(value) and not isinstance(value, nn.Module):
            fact = PlainFact(type(value), value)
        if fact is not None:
            yield name, fact
        if is_container and id(value) not in around:  # else it is one that is in itself
            around.add(id(value))
            waiting += reversed(parts_of(name, value))
