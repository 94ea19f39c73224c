"""Calls of ATen ops: their arguments by name, writes and random draws, and the accesses that keep their order."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch

from .torch_internals import OpOverload, pytree, schema_of

Op: TypeAlias = "OpOverload[Any, Any]"
aten = torch.ops.aten
# The mean or sum that these return keeps the memory of the losses that it sums up.
REDUCED_IN_PLACE = (aten.mse_loss, aten.smooth_l1_loss, aten.binary_cross_entropy, aten.soft_margin_loss)
# Namespaces of what talks to other processes, which must hear it in the same order.
COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")
# Calls that return their argument as it is (no autograd here).
WITHOUT_EFFECT = (aten.detach.default, aten.detach_.default, aten.alias.default, aten.lift_fresh.default)
# These write to arguments that their schemas do not mark as written, those with a flag `training` only if it is set.
_STATISTICS = ("running_mean", "running_var")
UNMARKED_WRITES = {
    aten.native_batch_norm: _STATISTICS,
    aten.cudnn_batch_norm: _STATISTICS,
    aten.miopen_batch_norm: _STATISTICS,
    aten.batch_norm_update_stats: _STATISTICS,
    aten.batch_norm_gather_stats: _STATISTICS,
    aten.batch_norm_gather_stats_with_counts: _STATISTICS,
    aten.rrelu_with_noise: ("noise",),
}
_RESIZING = (aten.resize_, aten.resize_as_, aten.set_)
# What these give has a shape and type that no number among their arguments changes, as that of a pointwise op.
_FILLED = (aten.full, aten.full_like, aten.new_full, aten.fill, aten.addmm, aten.baddbmm, aten.scalar_tensor)

# These give the same bits in training without the statistics that they update, so that they can run again.
_NORMS = (aten.native_batch_norm, aten.cudnn_batch_norm)
_NORM_BACKWARDS = (aten.native_batch_norm_backward, aten.cudnn_batch_norm_backward)


def given(target: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each argument of a call by its name, defaults included."""
    parameters = schema_of(target).arguments
    defaults = {parameter.name: parameter.default_value for parameter in parameters if parameter.has_default_value()}
    return {**defaults, **{parameter.name: value for parameter, value in zip(parameters, args, strict=False)}, **kwargs}


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors in any nest of values."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return the tensors among the arguments of an op, which lists hold at most."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Iterable) and not isinstance(value, str):
            found += tensors_of(value)
    return found


class Layout(NamedTuple):
    """How a strided tensor lies in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    conjugate: bool
    negative: bool


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return how a strided tensor lies in memory."""
    place = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    return Layout(*place, tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg())


class TensorKey(NamedTuple):
    """A tensor among the arguments of a recorded op; one met for the first time has its layout, and whose memory."""

    number: int
    layout: Layout | None = None
    memory_of: int = -1


class Number(NamedTuple):
    """A number among the arguments of a recorded op, equal to none of another type."""

    kind: type
    value: Any = None  # None where it may be another in each call


@dataclass(frozen=True)
class Result:
    """A tensor that an op returns: new, with its layout, or one of its arguments."""

    number: int
    layout: Layout | None = None


def tensor_keys(key: Any) -> list[TensorKey]:
    """Return the tensors in the key of an op."""
    if isinstance(key, TensorKey):
        return [key]
    return [found for part in key for found in tensor_keys(part)] if isinstance(key, tuple) else []


def written(target: Op, values: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that a call writes to, of those that `given` returned."""
    names = [a.name for a in schema_of(target).arguments if a.alias_info is not None and a.alias_info.is_write]
    if values.get("training", True):
        names += UNMARKED_WRITES.get(target.overloadpacket, ())
    return [values[name] for name in names if name in values]


def read_by(target: Op, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a call reads, by name, of those that `given` returned."""
    unread = _STATISTICS if target.overloadpacket in _NORM_BACKWARDS and values.get("train", True) else ()
    return {name: value for name, value in values.items() if name not in unread}


def is_random(target: Op, values: Mapping[str, Any]) -> bool:
    """Whether a call draws from the random number generator, with the arguments that `given` returned."""
    idle = values.get("train") is False or values.get("training") is False or values.get("dropout_p") == 0.0
    return torch.Tag.nondeterministic_seeded in target.tags and not idle


def can_run_again(target: Op, values: Mapping[str, Any]) -> bool:
    """Whether a call writes to nothing but running statistics, which a second run leaves out; see `run_again`."""
    return not written(target, values) or (target.overloadpacket in _NORMS and values["training"])


def run_again(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a second run of a call, which updates no running statistics."""
    if not isinstance(target, OpOverload) or target.overloadpacket not in _NORMS:
        return args, kwargs
    values = given(target, args, kwargs)
    return (), {**values, **dict.fromkeys(_STATISTICS)} if values["training"] else values


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the names of the leaves of `tree_flatten((args, kwargs))`: `image`, `batch['ids']` or `args[0]`."""
    try:
        signature = inspect.signature(function)
        taken = [name for name, parameter in signature.parameters.items() if parameter.kind in _BY_POSITION]
    except (TypeError, ValueError):  # written in C, or without one
        taken = []
    names = [*taken[: len(args)], *(f"args[{place}]" for place in range(len(taken), len(args))), *kwargs]
    paths: list[Any] = [path for path, _ in pytree.tree_flatten_with_path([*args, *kwargs.values()])[0]]
    return [f"{names[path[0].idx]}{pytree.keystr(path[1:])}" for path in paths]


class StorageAccesses:
    """The accesses of a program's ops to storages, told in program order."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: defaultdict[int, list[int]] = defaultdict(list)  # since it was written last

    def add(self, op: int, read: Iterable[int], written: Collection[int]) -> set[int]:
        """Return the ops that `op` has to follow: writers of its inputs, and readers of memory that it writes."""
        before: set[int] = set()
        for storage in read:
            if storage in self._writer:
                before.add(self._writer[storage])
            if storage in written:
                before.update(self._readers.pop(storage, ()))
                self._writer[storage] = op
            else:
                self._readers[storage].append(op)
        return before


class Sort:
    """The schema of an op, as far as it matters for recording."""

    def __init__(self, op: Any) -> None:
        schema = schema_of(op)
        tags = op.tags
        places = [*range(len(schema.arguments))]
        names = [argument.name for argument in schema.arguments]
        unmarked = UNMARKED_WRITES.get(op.overloadpacket, ())
        marked = [(a.alias_info is not None and a.alias_info.is_write) or a.name in unmarked for a in schema.arguments]
        self.writes = {key for at in places if marked[at] for key in (at, names[at])}  # positions and keywords
        only_writes = all(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        kinds = [str(r.type) for r in schema.returns]
        self.gives_values = bool(kinds) and not any("Tensor" in kind for kind in kinds)  # so that it cannot wait
        free = only_writes or torch.Tag.pointwise in tags or schema.name.startswith("aten::_foreach_")
        free = free or op.overloadpacket in _FILLED
        types = [str(a.type) for a in schema.arguments]
        is_number = [any(t in kind for t in ("number", "Scalar", "float", "Tensor")) for kind in types]
        # positions and keywords where a number may be another in each call, since no shape depends on it
        self.numbers = {key for at in places if free and is_number[at] for key in (at, names[at])}
        # whether it works on lists of tensors, on those of each place by themselves
        self.is_listwise = schema.name.startswith(("aten::_foreach_", "aten::_fused_")) and "List[Tensor]" in types
        self.is_listwise &= "out" not in names and ("scalars", "Tensor") not in zip(names, types, strict=True)
        self.is_listwise &= len(kinds) < 2  # else it returns several lists
        self.changes_shape = torch.Tag.inplace_view in tags or op.overloadpacket in _RESIZING
        self.is_random = torch.Tag.nondeterministic_seeded in tags
        self.returns = bool(schema.returns)
        self.without_tensors = not any("Tensor" in kind for kind in (*kinds, *types))
        self.takes_size = types[:1] == ["List[int]"]  # and makes a tensor of it


sort_of = cache(Sort)


@cache
def view_of(op: Any) -> Any:
    """Return the op that gives as a view the result of an op on its argument in place; None if there is none."""
    packet = getattr(aten, op.overloadpacket.__name__.removesuffix("_"), None)
    if packet in (None, op.overloadpacket) or op.overloadpacket in _RESIZING:
        return None
    views = (getattr(packet, name) for name in packet.overloads())
    types = [str(argument.type) for argument in schema_of(op).arguments]
    return next((view for view in views if [str(one.type) for one in schema_of(view).arguments] == types), None)
