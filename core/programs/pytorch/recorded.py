"""Records of a step: tensors whose values are still to come, the ops that give them, and the segment that waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils.weak import TensorWeakRef

from .calls import UNMARKED_WRITES, aten
from .torch_internals import (
    FakeTensorMode,
    disable_current_modes,
    make_wrapper_subclass,
    no_torch_function,
    pytree,
    schema_of,
    set_conj,
    set_neg,
    storage_of,
)

_RESIZING = (aten.resize_, aten.resize_as_, aten.set_)
# What these give has a shape and type that no number among their arguments changes, as that of a pointwise op.
_FILLED = (aten.full, aten.full_like, aten.new_full, aten.fill, aten.addmm, aten.baddbmm, aten.scalar_tensor)


class _Recording(threading.local):
    """The recorder of this thread, while a step of it is recorded."""

    recorder: Any = None


RECORDING = _Recording()


class Deferred(torch.Tensor):
    """A tensor of a step that is being recorded: shape, type and device, and a value once its op has run."""

    number: int
    value: torch.Tensor | None

    @staticmethod
    def __new__(cls, like: Layout, number: int) -> Deferred:
        """Return a tensor without memory."""
        made: Deferred = make_wrapper_subclass(
            cls,
            like.shape,
            strides=like.stride,
            storage_offset=like.offset,
            dtype=like.dtype,
            layout=torch.strided,
            device=like.device,
        )
        if like.conjugate:
            set_conj(made, True)
        if like.negative:
            set_neg(made, True)
        made.number = number
        made.value = None
        return made

    __torch_function__ = no_torch_function  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an op outside of the step on the values."""
        args, kwargs = pytree.tree_map_only(Deferred, _value, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return repr(self.values())

    def __format__(self, format_spec: str) -> str:
        return format(self.values(), format_spec)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Return the values as an array of NumPy."""
        return self.values().numpy(*args, **kwargs)

    def tolist(self) -> Any:
        """Return the values as lists of numbers."""
        return self.values().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what a pickle holds: a plain tensor."""
        values = self.values()
        with disable_current_modes():
            return values.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def values(self) -> torch.Tensor:  # type: ignore[override]
        """Return the values; a recording runs the ops before them."""
        with disable_current_modes():
            return (_value(self) if RECORDING.recorder is None else RECORDING.recorder.read(self)).data


def _value(tensor: Deferred) -> torch.Tensor:
    if tensor.value is None:
        raise RuntimeError("this tensor was made while a step was recorded, not run, so it has no values")
    return tensor.value


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


class Sort:
    """What the schema of an op says about how it is recorded."""

    def __init__(self, op: Any) -> None:
        schema = schema_of(op)
        tags = op.tags
        places = [*range(len(schema.arguments))]
        names = [argument.name for argument in schema.arguments]
        unmarked = UNMARKED_WRITES.get(op.overloadpacket, ())
        marked = [(a.alias_info is not None and a.alias_info.is_write) or a.name in unmarked for a in schema.arguments]
        # positions and keywords
        self.writes = {key for at in places if marked[at] for key in (at, names[at])}
        returned = [r.alias_info is not None and r.alias_info.is_write for r in schema.returns]
        self.only_writes = all(returned)  # all that it returns are arguments that it wrote to
        kinds = [str(r.type) for r in schema.returns]
        # returns numbers, so that it cannot wait
        self.gives_values = bool(kinds) and not any("Tensor" in kind for kind in kinds)
        free = self.only_writes or torch.Tag.pointwise in tags or schema.name.startswith("aten::_foreach_")
        free = free or op.overloadpacket in _FILLED
        types = [str(a.type) for a in schema.arguments]
        is_number = [any(t in kind for t in ("number", "Scalar", "float", "Tensor")) for kind in types]
        # positions and keywords where a number may be another in each call, since no shape depends on it
        self.numbers = {key for at in places if free and is_number[at] for key in (at, names[at])}
        self.changes_shape = torch.Tag.inplace_view in tags or op.overloadpacket in _RESIZING
        self.is_random = torch.Tag.nondeterministic_seeded in tags
        self.returns = bool(schema.returns)
        self.without_tensors = not any("Tensor" in kind for kind in (*kinds, *types))
        # makes a tensor of the size that is its first argument
        self.takes_size = bool(types) and types[0] == "List[int]"


sort_of = cache(Sort)


@cache
def view_of(op: Any) -> Any:
    """Return the op that gives as a view what an op makes of its argument in place; None if there is none."""
    packet = getattr(aten, op.overloadpacket.__name__.removesuffix("_"), None)
    if packet in (None, op.overloadpacket) or op.overloadpacket in _RESIZING:
        return None
    views = (getattr(packet, name) for name in packet.overloads())
    types = [str(argument.type) for argument in schema_of(op).arguments]
    return next((view for view in views if [str(one.type) for one in schema_of(view).arguments] == types), None)


class TensorKey(NamedTuple):
    """A tensor among the arguments of a recorded op; one met for the first time has its layout, and whose memory."""

    number: int
    layout: Layout | None = None
    memory_of: int = -1


class Number(NamedTuple):
    """A number among the arguments of a recorded op that may be another in each call."""

    kind: type


class Constant(NamedTuple):
    """A bool or a float among the arguments of a recorded op, which equals a number of another type."""

    kind: type
    value: Any


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


class RecordedOp:
    """An op that a step has recorded, as a node of a tree: steps that began with the same ops share these."""

    def __init__(self, op: Any = None, key: tuple[Any, ...] = ((), ()), before: RecordedOp | None = None) -> None:
        # `key`: arguments and keywords; tensors by number, numbers that may change by type
        self.op = op
        self.key = key
        self.before = before  # None for the root of the tree
        self.after: dict[Any, RecordedOp] = {}  # by op and key
        self.returned: Any = None  # a nest with a `Result` for each tensor
        self.fakes: dict[int, torch.Tensor] = {}  # of each tensor that steps meet or make, by number
        self.next = 0  # number of the next tensor
        # numbers of tensors with values
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        # for a graph: the line of the user's code, and the number of its forward op
        self.meta: dict[str, Any] = {}
        self.plans: list[Any] = []  # of steps that end with it

    def written(self) -> set[int]:
        """Return the numbers of the tensors that it writes to."""
        args, kwargs = self.key
        given = [value for at, value in (*enumerate(args), *kwargs) if at in sort_of(self.op).writes]
        return {key.number for key in tensor_keys(tuple(given))}

    def path(self) -> list[RecordedOp]:
        """Return the ops from the first one to this one."""
        ops: list[RecordedOp] = []
        node = self
        while node.before is not None:
            ops.append(node)
            node = node.before
        return ops[::-1]

    def forget(self) -> None:
        """Take it, and what came before it, out of the tree, up to where other steps went on or have a plan."""
        node = self
        while node.before is not None and not node.after and not node.plans:
            node.before.after.pop((node.op, node.key), None)
            node = node.before

    def call(
        self, tensor: Callable[[TensorKey], Any], number: Callable[[], Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments and keywords: each tensor as `tensor(key)`, each number that may change by `number()`."""

        def value_of(key: Any) -> Any:
            if isinstance(key, TensorKey):
                return tensor(key)
            if isinstance(key, Number):
                return number()
            if isinstance(key, Constant):
                return key.value
            return [value_of(part) for part in key] if isinstance(key, tuple) else key

        args, kwargs = self.key
        return tuple(map(value_of, args)), {name: value_of(part) for name, part in kwargs}

    def run(self, values: dict[int, Any], number: Callable[[], Any]) -> None:
        """Run it on tensors by their numbers, and add those that it returns."""
        args, kwargs = self.call(lambda key: values[key.number], number)
        made = pytree.tree_leaves(self.op(*args, **kwargs))
        leaves = zip(pytree.tree_leaves(self.returned), made, strict=True)
        values.update((result.number, leaf) for result, leaf in leaves if isinstance(result, Result))


class Tree:
    """The ops that the calls of a step have recorded, and the mode of their fakes."""

    def __init__(self) -> None:
        self.root = RecordedOp()
        self.fake_mode = FakeTensorMode(allow_fallback_kernels=False)


class Segment:
    """The ops that wait, from the last that have run to now."""

    def __init__(self, root: RecordedOp) -> None:
        self.last = root  # its path is all of them
        self.held: dict[int, torch.Tensor] = {}  # tensors with values that they work on, by number
        self.numbers: list[Any] = []  # of their arguments, which may differ in the next call
        self.made: list[TensorWeakRef] = []  # tensors that they make, while anyone refers to them
        self.next = 0
        self.draws = False
        self.number_of: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.fakes: dict[int, torch.Tensor] | None = None
        self.owners: dict[int, int] = {}

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor that has the values, or None if an op has to run first."""
        if not isinstance(tensor, Deferred):
            return tensor
        return self.held.get(tensor.number) if tensor.value is None else tensor.value

    def number(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor, or None if it has values and is met for the first time."""
        if isinstance(tensor, Deferred):
            return tensor.number if tensor.value is None else self.number_of.get(id(tensor.value))
        return self.number_of.get(id(tensor))

    def meet(self, tensor: torch.Tensor) -> TensorKey:
        """Give a number to a tensor with values."""
        number = self.next
        self.next += 1
        self.held[number] = tensor
        self.number_of[id(tensor)] = number
        return TensorKey(number, layout_of(tensor), self.storages.setdefault(storage_of(tensor), number))

    def go_on(self, node: RecordedOp, numbers: list[Any], draws: bool) -> None:
        """Add an op."""
        self.last = node
        self.next = node.next
        self.numbers += numbers
        self.draws |= draws
        if self.fakes is not None:
            self.add_fakes(node)
        self.read.update(storage_of(self.held[number]) for number in node.reads)
        self.written.update(storage_of(self.held[number]) for number in node.writes)

    def alive(self) -> dict[int, list[Deferred]]:
        """Return the tensors that wait for an op and that anyone still refers to, by number."""
        found: dict[int, list[Deferred]] = {}
        for reference in self.made:
            if (tensor := reference()) is not None:
                found.setdefault(tensor.number, []).append(tensor)
        return found

    def all_fakes(self) -> dict[int, torch.Tensor]:
        """Return a fake of each tensor, by number."""
        if self.fakes is None:
            self.fakes = {}
            for node in self.last.path():
                self.add_fakes(node)
        return self.fakes

    def add_fakes(self, node: RecordedOp) -> None:
        """Add the fakes of an op, and whose memory each has."""
        assert self.fakes is not None
        self.fakes.update(node.fakes)
        for number, fake in node.fakes.items():
            self.owners.setdefault(storage_of(fake), number)

    def constants(self, wanted: set[int], given: Collection[int]) -> dict[int, torch.Tensor] | None:
        """Compute tensors by number that follow from values `given`, by `id`, alone; None if others enter."""
        fakes = self.all_fakes()
        owners = {number: self.owners[storage_of(fake)] for number, fake in fakes.items()}
        needed = {owners[number] for number in wanted}
        chosen: set[RecordedOp] = set()
        path = self.last.path()
        for op in reversed(path):
            read = {key.number for key in tensor_keys(op.key)}
            if needed.isdisjoint(owners[number] for number in (op.fakes.keys() - read) | op.written()):
                continue
            needed.update(owners[number] for number in read)
            if sort_of(op.op).is_random or any(id(self.held[at]) not in given for at in needed & self.held.keys()):
                return None
            chosen.add(op)
        if any(id(self.held[at]) not in given for at in needed & self.held.keys()):
            return None
        values = {at: self.held[at].clone() for at in needed & self.held.keys()}
        numbers = iter(self.numbers)
        for op in path:
            if op in chosen:
                op.run(values, numbers.__next__)
            else:
                op.call(lambda key: None, numbers.__next__)
        return values
