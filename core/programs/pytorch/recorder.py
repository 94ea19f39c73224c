"""Recorder of a step: its Python runs as it is, and its ops wait until values are asked for, or the step ends."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import swap_tensors
from torch.utils.weak import TensorWeakRef

from ...base.errors import ProgramError, SchedoptError
from . import torch_internals as internals
from .calls import (
    COLLECTIVES,
    WITHOUT_EFFECT,
    Layout,
    Number,
    Result,
    Sort,
    TensorKey,
    given,
    is_random,
    layout_of,
    sort_of,
    tensor_keys,
    tensors_in,
    tensors_of,
    view_of,
)
from .torch_internals import VALUE_DEPENDENT, UnsupportedOperatorException, is_held_by_python_alone, pytree, storage_of
from .tracing import RECORDING, SourceRecorder, restoring, undo_all, zeros_like


def _on_values(name: str) -> Any:
    """Return a method of tensors, which reads their memory, for tensors whose values may be still to come."""

    def method(tensor: Deferred, *args: Any, **kwargs: Any) -> Any:
        values = tensor.values(shares=name == "numpy")
        with internals.disable_current_modes():
            return getattr(values, name)(*args, **kwargs)

    return method


class Deferred(torch.Tensor):
    """A tensor of a step that is being recorded: shape, type and device, and a value once its op has run."""

    number: int
    value: torch.Tensor | None

    @staticmethod
    def __new__(cls, like: Layout, number: int) -> Deferred:
        """Return a tensor without memory."""
        kind: dict[str, Any] = {"dtype": like.dtype, "layout": torch.strided, "device": like.device}
        made: Deferred = internals.make_wrapper_subclass(
            cls, like.shape, strides=like.stride, storage_offset=like.offset, **kind
        )
        if like.conjugate or like.negative:
            internals.set_conj(made, like.conjugate)
            internals.set_neg(made, like.negative)
        made.number, made.value = number, None
        return made

    __torch_function__ = internals.no_torch_function  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an op outside of the step on the values."""
        args, kwargs = pytree.tree_map_only(Deferred, _value, (args, kwargs or {}))
        return func(*args, **kwargs)

    __repr__, __format__, __reduce_ex__ = map(_on_values, ("__repr__", "__format__", "__reduce_ex__"))
    numpy, tolist = map(_on_values, ("numpy", "tolist"))

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.detach().clone()

    def values(self, shares: bool = False) -> torch.Tensor:  # type: ignore[override]
        """Return the values, of which no copy may do; a recording runs the ops before them."""
        with internals.disable_current_modes(), internals.disable_torch_function():
            return (_value(self) if RECORDING.recorder is None else RECORDING.recorder.read(self, shares)).data


internals.optimized_types.append(Deferred)  # type: ignore[arg-type]
internals.listed_types.append(Deferred)  # type: ignore[arg-type]


def _value(tensor: Deferred) -> torch.Tensor:
    if tensor.value is None:
        raise RuntimeError("this tensor was made while a step was recorded, not run, so it has no values")
    return tensor.value


def _empty(like: Layout) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device=like.device)


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
        """Take it, and its predecessors, out of the tree, up to where other steps went on or have a plan."""
        node = self
        while node.before is not None and not node.after and not node.plans:
            node.before.after.pop((node.op, node.key), None)
            node = node.before

    def call(self, tensor: Callable[[TensorKey], Any], number: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """Return arguments and keywords: each tensor as `tensor(key)`, each number that may change by `number()`."""

        def value_of(key: Any) -> Any:
            if isinstance(key, TensorKey):
                return tensor(key)
            if isinstance(key, Number):
                return number() if key.value is None else key.value
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
        self.fake_mode = internals.FakeTensorMode(allow_fallback_kernels=False)


class Segment:
    """The ops that wait, from the last that have run to now."""

    def __init__(self, root: RecordedOp) -> None:
        self.last = root  # its path is all of them
        self.held: dict[int, torch.Tensor] = {}  # tensors with values that they work on, by number
        self.numbers: list[Any] = []  # of their arguments, which may differ in the next call
        self.made: list[TensorWeakRef] = []  # tensors that they make, while anyone refers to them
        self.next = 0
        self.draws = False
        self.is_part = False  # of a step that runs in parts
        self.saved: set[int] = set()  # numbers of what earlier parts made and nobody else refers to
        self.number_of: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.fakes: dict[int, torch.Tensor] | None = None
        self.owners: dict[int, int] = {}

    def given(self) -> dict[int, torch.Tensor]:
        """Return the tensors with values, by number, without autograd; let go of those that nobody else refers to."""
        found = {number: tensor.data for number, tensor in self.held.items()}
        for number in self.saved:
            del self.held[number]
        return found

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

    def all_fakes(self) -> dict[int, torch.Tensor]:
        """Return a fake of each tensor, by number."""
        if self.fakes is None:
            self.fakes = {}
            for op in self.last.path():
                self.add_fakes(op)
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


# Reads and writes of the generator's state, before which recorded ops have to draw their numbers.
_OF_GENERATOR = ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "seed")
# Methods of tensors that read their memory without a call of an op; what the first ones return has the same memory.
_ALIKE = ("numpy", "__array__", "untyped_storage", "storage", "__dlpack__")
_READ = (*_ALIKE, "tolist", "__reduce_ex__", "data_ptr", "share_memory_", "is_shared")
_SHARING, _READING = ({getattr(torch.Tensor, name) for name in names} for names in (_ALIKE, _READ))
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_FRESH = (torch.ops.aten.lift_fresh.default, internals.MAKE_ZEROS)  # what these make is no result of a recorded op
_READS = (
    "it reads a value there before its ops have run; return the tensor instead, or give the step to "
    "schedopt.optimize, which runs it in parts"
)
_ALONE = "op {} has no kernel for tensors without data; register a fake, or give the step to schedopt.optimize: {}"

Run = Callable[[Segment, list[int], str], dict[int, torch.Tensor]]


class _NotInTree(Exception):
    """An op is new in a tree that may not grow."""


class _Shared(Exception):
    """An op works on memory that the step's Python reads or writes, too."""


class _Reads(TorchFunctionMode):
    """Gives values to the methods that read the memory of tensors, in the thread that records."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, a method that reads on the values."""
        recorder = RECORDING.recorder
        if func == _SET_DATA and recorder is not None:
            args = args[0], recorder.assigned(*args)
        if func in _READING and recorder is not None:
            with internals.disable_current_modes():
                value = recorder.read(args[0], func in _SHARING)
                value = value if args[0].requires_grad else value.detach()
                result = func(value, *args[1:], **(kwargs or {}))
            if func in _SHARING:
                of_tensor = func is torch.Tensor.__dlpack__  # whose result is a capsule
                recorder.shared[storage_of(value)] = TensorWeakRef(value) if of_tensor else weakref.ref(result)
            return args[0] if result is value else result
        if func in (torch.tensor, torch.as_tensor) and recorder is not None and isinstance(args[0], (list, tuple)):
            args = pytree.tree_map_only(Deferred, recorder.read, args)
        if func in internals.RECURRENT and recorder is not None and internals.runs_by_cudnn(args[0]):
            raise recorder.refused("a recurrent layer of cuDNN", "set torch.backends.cudnn.enabled = False")
        if func is internals.PAD_PACKED and recorder is not None:
            recorder.makes_lengths = True  # a tensor, to which it writes without a call
            try:
                return func(args[0], recorder.read(args[1]), *args[2:], **(kwargs or {}))
            finally:
                recorder.makes_lengths = False
        return func(*args, **(kwargs or {}))


def _after_draws(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that it first runs the ops that wait for random numbers in this thread."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = RECORDING.recorder
        if recorder is not None and recorder.segment.draws:
            recorder.flush("it reads or sets the state of the random generator after random ops that have not run")
        return function(*args, **kwargs)

    return call


def _is_seen(values: Iterable[Any]) -> bool:
    """Whether tensors or modes see a call, but for the mode of a recorder: PyTorch's modules do something else then."""
    if torch.compiler.is_compiling() or not isinstance(internals.function_mode(), _Reads):
        return bool(torch.overrides.has_torch_function_variadic(*values))  # which TorchDynamo knows
    with internals.without_function_mode():
        return bool(torch.overrides.has_torch_function_variadic(*values))


def _lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes tensors in the memory of others so that a recorder of this thread sees them."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return made if RECORDING.recorder is None else _FRESH[0](made)

    return call


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `to_dlpack`, which reads memory without a check for data, so that a recorder of this thread sees it."""
    return functools.wraps(function)(
        lambda tensor: function(tensor) if RECORDING.recorder is None else tensor.detach().__dlpack__()
    )


torch.overrides.has_torch_function = _is_seen  # type: ignore[assignment]
for module in (torch, torch.random, torch.cuda, torch.cuda.random):
    for name in set(_OF_GENERATOR) & set(dir(module)):
        setattr(module, name, _after_draws(getattr(module, name)))
for module in (torch, torch.utils.dlpack):
    for name in {"frombuffer", "from_dlpack"} & set(dir(module)):
        setattr(module, name, _lifted(getattr(module, name)))
    vars(module)["to_dlpack"] = _checked(vars(module)["to_dlpack"])


class Recorder(internals.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ops of one call of a step; those that were recorded before are found again in a tree."""

    supports_higher_order_operators = True  # so that it is asked, and refuses them

    def __init__(
        self,
        tree: Tree,
        run: Run,
        undo: list[Callable[[], Any]],
        modules: Mapping[str, torch.nn.Module] | None = None,
        may_grow: Callable[[], bool] = lambda: True,
        rehearses: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.root = tree.root
        self.fake_mode = tree.fake_mode
        self.run = run  # returns the values of a segment's tensors by number, and is told why it has to
        self.undo = undo  # restore each tensor that was changed at once
        self.may_grow = may_grow  # whether the tree takes new ops, without which the rest of the step runs op by op
        self.rehearses = rehearses  # on zeros
        self.segment = Segment(tree.root)
        self.leaves: dict[int, torch.Tensor] = {}
        self.made: list[TensorWeakRef] = []
        self.parts: set[int] = set()  # storages that parts of the step have made
        self.fresh: dict[int, torch.Tensor] = {}  # made of Python's values meanwhile
        self.shared: dict[int, Callable[[], Any]] = {}  # who else has a storage in his hands, while he is alive
        self.arrays: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by storage of a copy: an array, and the copy
        self.failed = False
        self.recovers = False  # from an error: what still waits is to run as it was recorded
        self.runs_meta = False  # as derivatives forward make tensors without data for shapes, and the step has none
        self.makes_lengths = False  # of packed sequences, at once
        self.is_waiting = True  # whether ops are recorded, or run at once
        self.sources = SourceRecorder(modules or {})
        self.seconds_of_new_ops = 0.0  # to know the results of ops that no call has recorded before

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function, and record the ops that this thread calls within."""
        with RECORDING, ExitStack() as stack:
            stack.callback(setattr, RECORDING, "recorder", RECORDING.recorder)
            RECORDING.recorder = self
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(_Reads())  # type: ignore[no-untyped-call]
            stack.enter_context(self)
            return RECORDING.call(function, *args, **kwargs)

    def flush(self, reason: str = "") -> None:
        """Run the ops that wait, for a reason unless the step has ended."""
        segment = self.segment
        if segment.last is self.root:
            return
        with RECORDING, internals.disable_torch_function():
            self.segment = Segment(self.root)
            self.made += segment.made
            alive = [tensor for reference in segment.made if (tensor := reference()) is not None]
            wanted = sorted({tensor.number for tensor in alive} - segment.held.keys())
            values = segment.held
            segment.is_part = bool(reason or self.parts)
            if self.parts:
                left = self.parts - {storage_of(value) for value in self.values()}
                left_of = {number for number, tensor in values.items() if storage_of(tensor) in left}
                segment.saved = left_of - {tensor.number for tensor in alive}  # which may be an alias of one
            outer = segment.storages.keys() - self.parts
            if wanted or segment.draws or segment.written:
                with internals.disable_current_modes(), internals.disable_autocast(), torch.enable_grad():
                    self.failed = True
                    values = self.run(segment, wanted, reason) | segment.held
                    self.failed = False
            for tensor in alive:
                tensor.value = values[tensor.number]
            if reason:  # the step goes on; others may take a freed storage's place
                made = {storage_of(values[number]) for number in wanted} - outer
                self.parts = (self.parts | made) & {storage_of(value) for value in self.values()}
            segment.made.clear()

    def read(self, tensor: torch.Tensor, shares: bool = False) -> torch.Tensor:
        """Return a tensor with its values, to which all ops that wait have written; not a copy where it is shared."""
        value = self.segment.value(tensor)
        if value is None or storage_of(value) in self.segment.read | self.segment.written:
            found = None if shares and not self.rehearses else self._constants([tensor])
            if found is None:
                self.flush(_READS)
            value = self.segment.value(tensor) if found is None else found[id(tensor)]
            assert value is not None
        if storage_of(value) in self.arrays:
            array, copy = self.arrays[storage_of(value)]
            copy.copy_(array)
        if shares and self.rehearses:  # Python's code may write to it
            self.undo.append(restoring(value))
        return value

    def assigned(self, tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the tensor whose memory another is to have; what waits has read that which it has now."""
        if isinstance(value, Deferred) or self.segment.number(tensor) is not None:
            self.flush("it assigns to .data there; use copy_, or give the step to schedopt.optimize: it runs in parts")
        known = self.segment.value(value)
        if known is None or isinstance(tensor, Deferred):
            raise self.refused("an assignment to .data", "use copy_, or assign to the name of the tensor")
        with internals.disable_current_modes():
            old = tensor.data
        self.undo.append(functools.partial(_SET_DATA, tensor, old))
        for made in (reference() for reference in self.made):
            if made is not None and made.value is tensor:  # `.data` or `detach()` of it, which stays with that memory
                made.value = old
        return known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an op, or run it at once where it cannot wait."""
        with RECORDING, internals.disable_torch_function():  # modes of functions have seen the call that makes it
            return self._take(func, args, kwargs or {})

    def _take(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(func, internals.OpOverload):
            raise self.refused(f"{func}, which calls functions of its own,", "branch and loop in Python there")
        if func.namespace in COLLECTIVES:
            raise self.refused("a collective", "plan what comes before it, and call it between planned functions")
        sort = sort_of(func)
        tensors = tensors_of((args, kwargs.values()) if kwargs else args)
        has_values = not self.is_waiting and not any(isinstance(tensor, Deferred) for tensor in tensors)
        has_values |= self.runs_meta and bool(tensors) and all(tensor.is_meta for tensor in tensors)
        if has_values or (sort.without_tensors and not tensors):
            return func(*args, **kwargs)
        if func in _FRESH and not isinstance(next(iter(tensors), None), Deferred):
            made = func(*args, **kwargs)
            if tensors and not made.untyped_storage().resizable():  # of an array, which the step may fill again
                array, made = made, made.clone()
                self.arrays[storage_of(made)] = array, made
                if not self.rehearses:
                    return made
            self.fresh[id(made)] = made
            return made
        if not self.is_waiting or self._can_run(sort, tensors, args, kwargs):
            return self._run(func, sort, tensors, args, kwargs)
        odd = sort.writes and not sort.changes_shape and not all(isinstance(t, Deferred) or t.numel() for t in tensors)
        if odd or any(tensor.is_nested or internals.is_zeros(tensor) for tensor in tensors):
            return self._run_alone(func, sort, tensors, args, kwargs, _ALONE.format(func, "a tensor is odd or empty"))
        if sort.gives_values:
            return self._run_alone(func, sort, tensors, args, kwargs, _READS)
        try:
            return self._reshape(func, args, kwargs) if sort.changes_shape else self._record(func, sort, args, kwargs)
        except SchedoptError:
            raise
        except _Shared:
            self.flush("it works on memory that Python's code has in its hands")
            return self._run(func, sort, tensors, args, kwargs)
        except _NotInTree:
            self.is_waiting, reason = False, ""
        except Exception as error:  # of a fake: the op itself may run
            if self.rehearses and not isinstance(error, (*VALUE_DEPENDENT, UnsupportedOperatorException)):
                try:
                    self.on_zeros(func, args, kwargs)
                except Exception:
                    raise error from None
            reason = _READS if isinstance(error, VALUE_DEPENDENT) else _ALONE.format(func, str(error).split("\n")[0])
        return self._run_alone(func, sort, tensors, args, kwargs, reason)

    def values(self) -> list[torch.Tensor]:
        """Return the values that the step has made and that anyone still refers to."""
        made = [tensor for reference in self.made if (tensor := reference()) is not None]
        return [tensor.value for tensor in made if tensor.value is not None]

    def settle(self, returned: Any) -> Any:
        """Give every tensor its values, make those plain that Python alone refers to, and return the step's result."""
        for leaf in self.leaves.values():
            if isinstance(leaf.grad, Deferred):
                value, leaf.grad = leaf.grad.value, None
                leaf.grad = None if value is None else value.data
        made = [reference() for reference in self.made]
        self.made.clear()
        while made:
            tensor = made.pop()
            value = tensor.value if isinstance(tensor, Deferred) else None
            if value is not None and is_held_by_python_alone(tensor) and not weakref.getweakrefcount(tensor):
                swap_tensors(tensor, value.data)  # type: ignore[no-untyped-call]
        return pytree.tree_map_only(Deferred, lambda made: None if made.value is None else made.value.data, returned)

    def recover(self) -> None:
        """After an error of the step's own code run the ops before it, after one of an op forget their purpose."""
        self.recovers = True
        try:
            if not self.failed:
                self.flush()
        finally:
            undo_all(self.undo if self.failed else [])
            self.settle(None)

    def _can_run(self, sort: Sort, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> bool:
        """Whether an op is arithmetic on single numbers in the CPU's memory, none of which waits for another op."""
        if sort.is_random or not tensors:
            on_cpu = torch.device(kwargs.get("device") or "cpu").type == "cpu"
            if sort.is_random or not sort.takes_size or not on_cpu:
                return False
            return len(args[0]) == 0 or 0 in args[0] or (self.makes_lengths and kwargs.get("dtype") == torch.int64)
        for tensor in tensors:
            value = self.segment.value(tensor)
            if value is None or not (sort.gives_values or (value.dim() == 0 and value.device.type == "cpu")):
                return False
            storage = storage_of(value)
            changes = sort.writes or storage in self.arrays
            if storage in self.segment.written or (changes and storage in self.segment.read):
                return False
        return True

    def _run_alone(
        self, func: Any, sort: Sort, tensors: list[torch.Tensor], args: Any, kwargs: Any, reason: str
    ) -> Any:
        """Run an op that cannot wait: on constants, or once all that waits has run."""
        constants = None if sort.writes or sort.is_random else self._constants(tensors)
        if constants is None:
            self.flush(reason)
            return self._run(func, sort, tensors, args, kwargs)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda leaf: constants[id(leaf)], (args, kwargs))
        result = func(*args, **kwargs)
        self.fresh.update((id(tensor), tensor) for tensor in tensors_in(result))
        return result

    def _run(self, func: Any, sort: Sort, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """Run an op on the values."""
        values = {id(tensor): self.segment.value(tensor) for tensor in tensors}
        for tensor in tensors:
            if isinstance(tensor, Deferred):
                tensor.value = values[id(tensor)]
        if sort.writes and self.is_waiting:
            self.undo += [restoring(value) for value in values.values() if value is not None]
        real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda leaf: values[id(leaf)], (args, kwargs))
        storages = {storage_of(value) for value in values.values() if value is not None} if self.arrays else set()
        of_arrays = [self.arrays[at] for at in storages & self.arrays.keys()]
        for array, copy in of_arrays:
            copy.copy_(array)
        result = func(*real_args, **real_kwargs)
        for array, copy in of_arrays if sort.writes else ():
            array.copy_(copy)
        if sort.changes_shape and isinstance(args[0], Deferred):
            with internals.without_dispatch():
                func(*args, **kwargs)
        given = {id(values[id(tensor)]): tensor for tensor in tensors} if sort.writes else {}
        return pytree.tree_map_only(torch.Tensor, lambda leaf: given.get(id(leaf), leaf), result)

    def on_zeros(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op on zeros."""
        fakes = self.segment.all_fakes()

        def zeros(tensor: torch.Tensor) -> torch.Tensor:
            number = self.segment.number(tensor)
            return zeros_like(tensor if number is None else fakes[number])

        with internals.disable_current_modes():
            args, kwargs = pytree.tree_map_only(torch.Tensor, zeros, (args, kwargs))
            return func(*args, **kwargs)

    def _reshape(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record an op that changes the shape of its argument in place as the view which that becomes."""
        tensor, view = args[0], view_of(func)
        if func is torch.ops.aten.resize_.default and not kwargs and tensor.shape == tuple(args[1]):
            return tensor
        if isinstance(args[1], (torch.UntypedStorage, torch.TypedStorage)) and isinstance(tensor, Deferred):
            with internals.disable_current_modes():  # of a tensor with values, as the weights of cuDNN's layers
                tensor.value = func(_empty(layout_of(tensor)), *args[1:], **kwargs)
            with internals.without_dispatch():
                return func(tensor, *args[1:], **kwargs)
        if not isinstance(tensor, Deferred) or view is None:  # one with values that no recorded op works on is changed
            if all(not isinstance(one, Deferred) and self.segment.number(one) is None for one in tensors_of(args)):
                return self._run(func, sort_of(func), tensors_of(args), args, kwargs)
            raise ProgramError(f"op {func} changes the shape of a tensor in place; use the op that returns a new one")
        tensor.number, tensor.value = self._record(view, sort_of(view), args, kwargs).number, None
        self.segment.made.append(TensorWeakRef(tensor))
        with internals.without_dispatch():
            func(*args, **kwargs)
        return tensor

    def _constants(self, tensors: list[torch.Tensor]) -> dict[int, torch.Tensor] | None:
        """Compute tensors that follow from shapes and Python's values alone, by `id`; None if others enter."""
        numbers = {id(tensor): self.segment.number(tensor) for tensor in tensors}
        if any(number is None and key not in self.fresh for key, number in numbers.items()):
            return None
        values = self.segment.constants({number for number in numbers.values() if number is not None}, self.fresh)
        if values is None:
            return None
        return {id(one): one if (at := numbers[id(one)]) is None else values[at] for one in tensors}

    def _record(self, func: Any, sort: Sort, args: Any, kwargs: Any) -> Any:
        segment = self.segment
        numbers: list[Any] = []
        before = segment.next
        key = (
            tuple(self._key(value, numbers, at in sort.numbers) for at, value in enumerate(args)),
            tuple((name, self._key(value, numbers, name in sort.numbers)) for name, value in kwargs.items()),
        )
        node = segment.last.after.get((func, key))
        if node is None:
            start = time.perf_counter()
            try:
                if not self.may_grow():
                    raise _NotInTree
                with internals.disable_current_modes():
                    node = self._infer(func, sort, key, numbers)
            except BaseException:
                self._forget(before)
                raise
            segment.last.after[func, key] = node
            self.seconds_of_new_ops += time.perf_counter() - start
        if (self.shared or self.arrays) and not self.rehearses and self._is_shared(node):
            self._forget(before)
            raise _Shared
        segment.go_on(node, numbers, sort.is_random and is_random(func, given(func, args, kwargs)))

        def tensor_of(result: Result) -> torch.Tensor:
            if result.layout is None:
                tensors = tensors_in((args, kwargs))
                return next(tensor for tensor in tensors if segment.number(tensor) == result.number)
            if self.runs_meta and result.layout.device.type == "meta":
                return _empty(result.layout)
            tensor = Deferred(result.layout, result.number)
            segment.made.append(TensorWeakRef(tensor))
            return tensor

        if isinstance(node.returned, Result):  # without PyTorch's walk, a third of what recording took
            return tensor_of(node.returned)
        return pytree.tree_map_only(Result, tensor_of, node.returned)

    def _is_shared(self, node: RecordedOp) -> bool:
        """Whether the step's Python may read or write memory of an op before it would run."""
        for number in node.reads:
            storage = storage_of(self.segment.held[number])
            if self.shared.get(storage, lambda: None)() is not None:
                return True
            bits = [one.reshape(-1).view(torch.uint8) for one in self.arrays.get(storage, ())]
            if bits and (number in node.writes or not torch.equal(*bits)):
                return True
        return False

    def _forget(self, first: int) -> None:
        """Forget the tensors that an op met which cannot be recorded."""
        segment = self.segment
        for number in range(first, segment.next):
            tensor = segment.held.pop(number)
            del segment.number_of[id(tensor)]
            if segment.storages.get(storage_of(tensor)) == number:
                del segment.storages[storage_of(tensor)]
            segment.all_fakes().pop(number, None)
        segment.next = first

    def _key(self, value: Any, numbers: list[Any], free: bool) -> Any:
        """Return the placeholder of an argument in the tree, and note a number that may change."""
        if isinstance(value, torch.Tensor):
            number = self.segment.number(value)
            if number is not None:
                return TensorKey(number)
            if not isinstance(value, Deferred):
                self._check(value)
                if value.requires_grad and value.is_leaf:
                    self.leaves[id(value)] = value
            known = self.segment.value(value)
            assert known is not None
            return self.segment.meet(known)
        if isinstance(value, (list, tuple)):
            return tuple(self._key(part, numbers, free) for part in value)
        if type(value) in (int, float) and free:
            numbers.append(value)
            return Number(type(value))
        if isinstance(value, torch.Generator):
            raise self.refused(
                "a torch.Generator of the step's own",
                "draw from PyTorch's default generator (torch.manual_seed), or give the numbers to the step",
            )
        return Number(type(value), value) if isinstance(value, (bool, float, complex)) else value

    def _check(self, tensor: torch.Tensor) -> None:
        """Refuse a tensor that cannot be recorded."""
        if tensor.is_nested:
            raise TypeError("it makes a nested tensor")  # as a fake's errors: the op runs by itself
        if tensor.layout is not torch.strided or tensor.is_quantized or internals.is_traceable_wrapper_subclass(tensor):
            raise self.refused(
                f"a tensor of layout {tensor.layout} and dtype {tensor.dtype}",
                "use a dense one: its to_dense() or dequantize(), or sparse=False of an embedding",
            )

    def refused(self, what: str, remedy: str) -> ProgramError:
        """Return the error of the user's code on the line that runs now."""
        line = self.sources.note({}, sys._getframe()).line
        return ProgramError(f"{f'{line}: ' if line else ''}{what} cannot be recorded; {remedy}")

    def _infer(self, func: Any, sort: Sort, key: Any, numbers: list[Any]) -> RecordedOp:
        """Return an op that is new in the tree, with the properties of its results."""
        segment = self.segment
        node = RecordedOp(func, key, segment.last)
        node.next = segment.next
        fakes = segment.all_fakes()
        for tensor in tensor_keys(key):
            if tensor.layout is not None:
                node.fakes[tensor.number] = self._fake(tensor.layout)
        segment.add_fakes(node)
        given = {id(fakes[tensor.number]): tensor.number for tensor in tensor_keys(key)}
        args, kwargs = node.call(lambda tensor: fakes[tensor.number], iter(numbers).__next__)
        if func in WITHOUT_EFFECT:
            first = next(iter(given.values()))
            node.returned = Result(first, layout_of(fakes[first]))
        elif sort.returns:
            with self.fake_mode:
                result = func(*args, **kwargs)

            def describe(fake: torch.Tensor) -> Result:
                self._check(fake)
                if id(fake) in given:
                    return Result(given[id(fake)])
                result = Result(node.next, layout_of(fake))
                # A fake may give one tensor twice where a run gives two (oneDNN's LSTM, the gradients of its biases).
                twice = any(fake is other for other in node.fakes.values())
                node.fakes[node.next] = self._fake(layout_of(fake)) if twice else fake
                node.next += 1
                return result

            node.returned = pytree.tree_map_only(torch.Tensor, describe, result)
            segment.add_fakes(node)
        values: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        node.reads = self._held_owners(values)
        node.writes = self._held_owners([value for key, value in values.items() if key in sort.writes])
        self.sources.note(node.meta, sys._getframe())
        return node

    def _fake(self, like: Layout) -> torch.Tensor:
        with self.fake_mode:
            return _empty(like)

    def _held_owners(self, fakes: Any) -> set[int]:
        """Return the numbers of the tensors with values in whose memory fakes lie."""
        owners = {self.segment.owners[storage_of(fake)] for fake in tensors_in(fakes)}
        return owners & self.segment.held.keys()
