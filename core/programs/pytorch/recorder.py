"""Recorder of a step: its Python runs as it is, and its ops wait until values are asked for, or the step ends.

Every call records anew, so that whatever the step's Python decides (a learning rate, a counter, a branch) is what it is
without recording. Ops that were recorded before are found again in a tree, and no shape is inferred twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils import swap_tensors
from torch.utils.weak import TensorWeakRef

from ...base.errors import ProgramError
from .calls import tensors_in
from .recorded import (
    WITHOUT_EFFECT,
    Constant,
    Deferred,
    Layout,
    Number,
    RecordedOp,
    Result,
    Segment,
    Sort,
    TensorKey,
    Tree,
    layout_of,
    sort_of,
)
from .source_lines import SourceRecorder
from .torch_internals import (
    VALUE_DEPENDENT,
    OpOverload,
    TorchDispatchMode,
    disable_autocast,
    disable_current_modes,
    is_held_by_python_alone,
    is_traceable_wrapper_subclass,
    pytree,
    storage_of,
)

# Reads and writes of the generator's state, before which recorded ops have to draw their numbers.
_OF_GENERATOR = ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "seed")
# Methods of tensors that read their memory without a call of an op.
_READING = (
    *((torch.Tensor, name) for name in ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__", "data_ptr")),
    (torch.nn.Parameter, "__reduce_ex__"),
)

Run = Callable[[Segment, list[int]], dict[int, torch.Tensor]]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the ops of one call of a step.

    `tree` holds earlier records; `run` returns the values of a segment's tensors by number; `undo` takes functions that
    restore each tensor changed at once.
    """

    def __init__(
        self,
        tree: Tree,
        run: Run,
        undo: list[Callable[[], Any]],
        modules: Mapping[str, torch.nn.Module] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.root = tree.root
        self.fake_mode = tree.fake_mode
        self.run = run
        self.undo = undo
        self.segment = Segment(tree.root)
        self.leaves: dict[int, torch.Tensor] = {}
        self.made: list[TensorWeakRef] = []
        self.failed = False
        self.sources = SourceRecorder(modules or {})

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is called within."""
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            for module in (torch, torch.random, torch.cuda, torch.cuda.random):
                for name in set(_OF_GENERATOR) & set(dir(module)):
                    stack.callback(setattr, module, name, getattr(module, name))
                    setattr(module, name, self._after_draws(getattr(module, name)))
            for kind, name in _READING:
                stack.callback(_set_method, kind, name, vars(kind).get(name))
                _set_method(kind, name, self._after_all(getattr(kind, name)))
            stack.enter_context(self)
            yield

    def flush(self) -> None:
        """Run the ops that wait."""
        segment = self.segment
        if segment.last is self.root:
            return
        self.segment = Segment(self.root)
        self.made += segment.made
        alive = segment.alive()
        wanted = sorted(alive.keys() - segment.held.keys())
        values = segment.held
        if wanted or any(sort_of(node.op).writes or sort_of(node.op).is_random for node in segment.last.path()):
            with disable_current_modes(), disable_autocast(), torch.enable_grad():
                self.failed = True
                values = {**segment.held, **self.run(segment, wanted)}
                self.failed = False
        for number, tensors in alive.items():
            for tensor in tensors:
                tensor.value = values[number]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an op, or run it at once where it cannot wait."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            raise ProgramError(f"{func} calls functions of its own, which cannot be recorded")
        sort = sort_of(func)
        tensors = _tensors((args, kwargs.values()) if kwargs else args)
        if sort.without_tensors and not tensors:
            return func(*args, **kwargs)
        if func is torch.ops.aten.lift_fresh.default and not isinstance(tensors[0], Deferred):
            return tensors[0]
        can_run = self._can_run(sort, tensors, args, kwargs)
        if can_run or sort.gives_values:
            if not can_run:
                self.flush()
            return self._run(func, sort, tensors, args, kwargs)
        if sort.changes_shape:
            # If they have values, and no recorded op works on them.
            if all(not isinstance(tensor, Deferred) and self.segment.number(tensor) is None for tensor in tensors):
                return self._run(func, sort, tensors, args, kwargs)
            raise ProgramError(f"op {func} changes the shape of a tensor in place; use the op that returns a new one")
        try:
            return self._record(func, sort, args, kwargs)
        except VALUE_DEPENDENT:
            self.flush()
            return self._run(func, sort, tensors, args, kwargs)

    def settle(self, returned: Any) -> Any:
        """Give every tensor that the step has made its values, wherever it is referred to; return what was returned.

        Tensors to which autograd still refers stay what they are; all others become plain.
        """
        for leaf in self.leaves.values():
            if isinstance(leaf.grad, Deferred):
                value = leaf.grad.value
                leaf.grad = None
                leaf.grad = None if value is None else value.data
        made = [tensor for reference in self.made if (tensor := reference()) is not None]
        self.made.clear()
        while made:
            _become_plain(made.pop())
        return pytree.tree_map_only(Deferred, lambda made: None if made.value is None else made.value.data, returned)

    def recover(self) -> None:
        """After an error of the step's own code: run the ops before it. After one of an op: forget what they were for.

        Gradients and states of optimizers that have no value are dropped, as if they had not been made.
        """
        if not self.failed:
            self.flush()
        else:
            for undo in reversed(self.undo):
                undo()
        self.settle(None)

    def _after_draws(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.segment.draws:
                self.flush()
            return function(*args, **kwargs)

        return call

    def _after_all(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.flush()
            with disable_current_modes():
                return method(self.segment.value(tensor), *args, **kwargs)

        return call

    def _can_run(self, sort: Sort, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> bool:
        """Whether an op is arithmetic on single numbers in the CPU's memory, none of which waits for another op."""
        if sort.is_random or not tensors:
            on_cpu = torch.device(kwargs.get("device") or "cpu").type == "cpu"
            return not sort.is_random and sort.takes_size and on_cpu and (len(args[0]) == 0 or 0 in args[0])
        for tensor in tensors:
            value = self.segment.value(tensor)
            if value is None or not (sort.gives_values or (value.dim() == 0 and value.device.type == "cpu")):
                return False
            storage = storage_of(value)
            if storage in self.segment.written or (sort.writes and storage in self.segment.read):
                return False
        return True

    def _run(self, func: Any, sort: Sort, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Any:
        """Run an op on the values."""
        values = {id(tensor): self.segment.value(tensor) for tensor in tensors}
        for tensor in tensors:
            if isinstance(tensor, Deferred):
                tensor.value = values[id(tensor)]
        if sort.writes:
            self.undo += [_restoring(value) for value in values.values() if value is not None]
        real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda leaf: values[id(leaf)], (args, kwargs))
        result = func(*real_args, **real_kwargs)
        given = {id(values[id(tensor)]): tensor for tensor in tensors} if sort.writes else {}
        return pytree.tree_map_only(torch.Tensor, lambda leaf: given.get(id(leaf), leaf), result)

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
            try:
                node = self._infer(func, sort, key, numbers)
            except BaseException:
                self._forget(before)
                raise
            segment.last.after[func, key] = node
        segment.go_on(node, numbers, sort.is_random)
        return self._results(node, args, kwargs)

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
        """Return what stands for an argument in the tree, and note a number that may change."""
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
            raise ProgramError("a generator of its own cannot be recorded; draw from PyTorch's default generator")
        return Constant(type(value), value) if isinstance(value, (bool, float, complex)) else value

    def _check(self, tensor: torch.Tensor) -> None:
        """Refuse a tensor that cannot be recorded."""
        if tensor.layout is not torch.strided or tensor.is_quantized or is_traceable_wrapper_subclass(tensor):
            raise ProgramError(
                f"a {type(tensor).__name__} of layout {tensor.layout} and dtype {tensor.dtype} cannot be recorded; "
                "only strided tensors can"
            )

    def _infer(self, func: Any, sort: Sort, key: Any, numbers: list[Any]) -> RecordedOp:
        """Return an op that is new in the tree, with what its results are like."""
        segment = self.segment
        node = RecordedOp(func, key, segment.last)
        node.next = segment.next
        fakes = segment.all_fakes()
        for tensor in _tensor_keys(key):
            if tensor.layout is not None:
                node.fakes[tensor.number] = self._fake(tensor.layout)
        segment.add_fakes(node)
        given = {id(fakes[tensor.number]): tensor.number for tensor in _tensor_keys(key)}
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
            return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device=like.device)

    def _held_owners(self, fakes: Any) -> set[int]:
        """Return the numbers of the tensors with values in whose memory fakes lie."""
        owners = {self.segment.owners[storage_of(fake)] for fake in tensors_in(fakes)}
        return owners & self.segment.held.keys()

    def _results(self, node: RecordedOp, args: Any, kwargs: Any) -> Any:
        """Return the results of an op, without values."""
        segment = self.segment

        def tensor_of(result: Any) -> Any:
            if not isinstance(result, Result):
                return result
            if result.layout is None:
                given = tensors_in((args, kwargs))
                return next(tensor for tensor in given if segment.number(tensor) == result.number)
            tensor = Deferred(result.layout, result.number)
            segment.made.append(TensorWeakRef(tensor))
            return tensor

        return pytree.tree_map(tensor_of, node.returned)


def _become_plain(tensor: Deferred) -> None:
    """Make a tensor what its value is, in place, if nothing but Python refers to it."""
    if tensor.value is not None and is_held_by_python_alone(tensor):
        swap_tensors(tensor, tensor.value.data)  # type: ignore[no-untyped-call]


def _tensors(values: Any) -> list[torch.Tensor]:
    """Return the tensors among the arguments of an op, which lists hold at most."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Iterable) and not isinstance(value, str):
            found += _tensors(value)
    return found


def _tensor_keys(key: Any) -> list[TensorKey]:
    """Return the tensors in the key of an op."""
    if isinstance(key, TensorKey):
        return [key]
    return [found for part in key for found in _tensor_keys(part)] if isinstance(key, tuple) else []


def _set_method(kind: type, name: str, method: Callable[..., Any] | None) -> None:
    """Set a method of a class of tensors, or leave it to the class above."""
    if method is None:
        delattr(kind, name)
    else:
        setattr(kind, name, method)


def _restoring(tensor: torch.Tensor) -> Callable[[], Any]:
    """Return a function that gives a tensor the values that it has now."""
    values = tensor.detach().clone()
    return lambda: tensor.data.copy_(values)
