"""Recorded steps: as graphs, rehearsed without a run, their live bytes; the Python objects in reach, restored."""

from __future__ import annotations

import dis
import functools
import gc
import logging
import random
import re
import sys
import time
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import getitem
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import fx, nn
from torch.amp import GradScaler
from torch.nn.parameter import is_lazy
from torch.utils import swap_tensors

from ...base.errors import ProgramError
from ...base.speed import without_gc
from ...model.allocators import Allocator
from ...report.memory_by_role import RESIDENT_ROLES, TENSOR_ROLES, Holder, Peak
from .calls import (
    REDUCED_IN_PLACE,
    WITHOUT_EFFECT,
    Result,
    Sort,
    argument_names,
    aten,
    given,
    sort_of,
    tensor_keys,
    tensors_in,
)
from .recorder import Deferred, RecordedOp, Recorder, Segment, Tree
from .torch_internals import SCALER_STEP, entered, pytree, set_write_count, storage_of, write_count
from .tracing import (
    RECORDING,
    STEP,
    TorchProgram,
    foreign_code,
    refuse_wrapped,
    restoring,
    silent,
    source_of,
    undo_all,
    zeros_like,
)

PARTS = 16
"""Of an op on lists of tensors: more let go of gradients sooner, by at most this share of them, and take time each."""

Named = Mapping[int, tuple[str, str]]  # role and name of tensors, by `id`
Call = tuple[tuple[Any, ...], dict[str, Any]]  # arguments and keywords


def step_graph(
    name: str, segment: Segment, wanted: Sequence[int], named: Named, *, is_cut: bool = True
) -> TorchProgram:
    """Return the ops that a step has recorded as a program; numbers that change from call to call are its constants.

    An op on lists of tensors, such as an optimizer's, is cut into up to `PARTS` ops, so that the first of them need not
    wait for the last gradient.
    """
    graph = fx.Graph()
    nodes: dict[int, fx.Node] = {}
    roles, names = [], []
    for number, tensor in segment.held.items():
        role, label = named.get(id(tensor), ("saved" if number in segment.saved else "constant", f"tensor_{number}"))
        nodes[number] = node = graph.placeholder(re.sub(r"\W", "_", f"{role}_{label}"))
        node.target = node.name  # which no other has
        roles.append(role)
        names.append(label)
    labels = [f"number_{at}" for at in range(len(segment.numbers))]
    numbers = iter([graph.placeholder(label) for label in labels])
    fakes = segment.all_fakes()
    for op in segment.last.path():
        if op.op not in WITHOUT_EFFECT:
            _add(graph, op, nodes, numbers.__next__, _parts_of(op, fakes) if is_cut else [])
    graph.output(tuple(nodes[number] for number in wanted))
    module = fx.GraphModule(torch.nn.Module(), graph)
    roles += ["constant"] * len(labels)
    results = ("output",) * len(wanted)
    arguments = (*(tensor.data for tensor in segment.held.values()), *segment.numbers)
    return TorchProgram(name, module, arguments, (*roles,), (*names, *labels), results, training=STEP)


def run_in_order(segment: Segment, wanted: Sequence[int], outer: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Run the ops that a step has recorded as it recorded them, each value until its last use, seen by modes.

    Autograd is on, as for plans: without, an LSTM does not keep the tensors of its backward pass.
    """
    path = segment.last.path()
    last: dict[int, RecordedOp] = {}
    for op in path:
        returned = [leaf for leaf in pytree.tree_leaves(op.returned) if isinstance(leaf, Result)]
        tensors: list[Any] = [*tensor_keys(op.key), *returned]
        last.update((tensor.number, op) for tensor in tensors)
    drops: defaultdict[RecordedOp, list[int]] = defaultdict(list)
    for number in last.keys() - set(wanted):
        drops[last[number]].append(number)
    values: dict[int, Any] = segment.given()
    numbers = iter(segment.numbers)
    with entered(outer):
        for op in path:
            RECORDING.call(op.run, values, numbers.__next__)
            for number in drops[op]:
                del values[number]
    return {number: values[number] for number in wanted}


def has_lists(segment: Segment) -> bool:
    """Whether a step has ops on lists of tensors that its graph cuts."""
    return any(sort_of(op.op).is_listwise for op in segment.last.path())


def _parts_of(op: RecordedOp, fakes: Mapping[int, torch.Tensor]) -> list[int]:
    """Return where the parts of an op on lists of tensors end, of about equal bytes; nothing for another op."""
    if not sort_of(op.op).is_listwise:
        return []
    lists = [value for value in op.key[0] if type(value) is tuple and tensor_keys(value)]
    if not lists:
        return []
    bytes_to = np.cumsum([fakes[key.number].nbytes for key in tensor_keys(lists[0])])
    ends = np.searchsorted(bytes_to, bytes_to[-1] * np.arange(1, PARTS) / PARTS) + 1
    return sorted({*ends.tolist(), len(lists[0])})


def _add(
    graph: fx.Graph, op: RecordedOp, nodes: dict[int, fx.Node], number: Callable[[], Any], ends: Sequence[int]
) -> None:
    """Add an op to the graph, in parts that end there, and a node for each of its results that is a tensor."""
    args, kwargs = op.call(lambda tensor: nodes[tensor.number], number)

    def take(part: Any, source: fx.Node) -> None:
        if isinstance(part, Result):
            nodes[part.number] = source
        elif isinstance(part, (tuple, list)):
            for at, inner in enumerate(part):
                if any(isinstance(leaf, Result) for leaf in pytree.tree_leaves(inner)):
                    take(inner, graph.call_function(getitem, (source, at)))

    count = ends[-1] if ends else -1
    for part in [slice(*ends) for ends in pairwise([0, *ends])] or [slice(None)]:
        own = [value[part] if isinstance(value, list) and len(value) == count else value for value in args]
        node = graph.create_node("call_function", op.op, tuple(own), kwargs, name=op.op.overloadpacket.__name__)
        node.meta.update(op.meta)
        take(op.returned[part] if ends and op.returned else op.returned, node)


class StepNames:
    """The names of the tensors that a call of a step works on."""

    def __init__(self, function: Callable[..., Any], call: Call, trained: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._function = function
        leaves = zip(pytree.tree_leaves(call), argument_names(function, *call), strict=True)
        self._given = tensors_in(call)
        self._inputs = {id(leaf): name for leaf, name in leaves if isinstance(leaf, torch.Tensor)}
        self._gradients = {id(tensor.grad): name for name, tensor in trained if tensor.grad is not None}

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors with values that the step reaches now."""
        reached = [*(tensor for _, tensor in PythonState(self._function).named), *self._given]
        reached += [tensor.grad for tensor in reached if tensor.is_leaf and tensor.grad is not None]
        return [tensor for tensor in reached if not isinstance(tensor, Deferred)]

    def of_held(self) -> Named:
        """Return role and name of each tensor that is known, by `id`."""
        state = PythonState(self._function)
        named = {key: ("input", name) for key, name in self._inputs.items()}
        parameters = state.parameters()
        loose = {id(tensor): name for name, tensor in state.named}
        for name, optimizer in state.optimizers:
            for at, parameter in enumerate(part for group in optimizer.param_groups for part in group["params"]):
                called = loose.get(id(parameter)) or f"{name or 'optimizer'}.{at}"
                parameters.setdefault(id(parameter), (called, parameter))
            for parameter, entries in optimizer.state.items():
                owner = parameters[id(parameter)][0]
                for key, value in entries.items() if isinstance(entries, dict) else ():
                    if isinstance(value, torch.Tensor):
                        named[id(value)] = ("state", f"{owner}.{key}")
        named.update((key, ("gradient", f"{name}.grad")) for key, name in self._gradients.items())
        named.update((key, ("buffer", name)) for key, name in state.buffers().items())
        named.update((key, ("parameter", name)) for key, (name, _) in parameters.items())
        return named


Take = Callable[[Segment, Sequence[int], StepNames, str], Any]


class Enough(BaseException):
    """Ends a rehearsal."""


def rehearse(
    function: Callable[..., Any],
    call: Call,
    where: str,
    tree: Tree,
    take: Take,
    what: str = "the step cannot be recorded",
) -> tuple[int, float]:
    """Record two calls of a step without running them; the second has the gradients and states that the first makes.

    Return how many ops the last one recorded, and how many seconds a call takes for these once it knows them all.

    Modules, optimizers, gradients, attributes, closures, globals and generators are then as before; other effects
    (files, iterators) cannot be undone. `take` gets the segment, the values to return, the names of tensors, and
    why its ops have to run before the function returns, empty if it has; it may raise `Enough`.
    """
    state = PythonState(function)
    for _, module in state.modules:
        refuse_wrapped(module, where)
    changes: list[Callable[[], Any]] = []
    ops, seconds = 0, 0.0

    def run(segment: Segment, wanted: list[int], reason: str) -> dict[int, torch.Tensor]:
        nonlocal ops, seconds
        ops, seconds = len(segment.last.path()), time.perf_counter() - start - recorder.seconds_of_new_ops
        RECORDING.call(take, segment, wanted, names, reason)
        fakes = segment.all_fakes()
        return {number: zeros_like(fakes[number]) for number in wanted}

    try:
        for _ in range(2):
            names = StepNames(function, call, state.parameters().values())
            recorder = Recorder(tree, run, changes, state.paths(), rehearses=True)
            recorder.runs_meta = not any(tensor.is_meta for tensor in names.tensors())
            start = time.perf_counter()
            with foreign_code(where, what), silent(), torch.enable_grad():
                returned = recorder.call(function, *call)  # what the caller will hold has to be there
            recorder.flush()
            recorder.settle(returned)
            del returned
    except Enough:
        pass
    finally:
        undo_all([state.restore, *changes])
    return ops, seconds


def program_of_step(
    function: Callable[..., Any], call: Call, name: str, where: str, device: str | None
) -> TorchProgram:
    """Return a step, as it is once optimizers have their state, its gradients finite should a `GradScaler` ask."""
    found: list[TorchProgram] = []

    def take(segment: Segment, wanted: Sequence[int], names: StepNames, reason: str) -> None:
        if reason:
            raise RuntimeError(reason)
        found.append(step_graph(name, segment, wanted, names.of_held()))

    def unseen(scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *given: Any, **named: Any) -> Any:
        return optimizer.step(*given, **named)  # without a look at what a scaler finds

    with patch.object(GradScaler, SCALER_STEP, unseen), RECORDING:
        rehearse(function, call, where, Tree(), take, "no one graph stands for the step")
    if not found:
        raise ProgramError(f"{where}: the step calls no op of PyTorch")
    others = {value.device.type for value in found[-1].arguments if isinstance(value, torch.Tensor)} - {device}
    if device is not None and others:
        raise ProgramError(f"{where}: its tensors are on {', '.join(sorted(others))}; make the step on {device}")
    return found[-1]


class _Counter(Recorder):  # type: ignore[no-untyped-call]
    """Counts the storages that calls of the user's own hold, Python's names included; no op of them runs."""

    def __init__(self, modules: Mapping[str, nn.Module], given: Iterable[torch.Tensor]) -> None:
        super().__init__(Tree(), lambda *_: {}, [], modules, rehearses=True)
        self.fresh.update((id(tensor), tensor) for tensor in given)  # whose values decide what Python does
        self.sizes: list[int] = []  # bytes of each storage
        self.makers: list[tuple[RecordedOp, int]] = []  # of each storage: the op, and which of its results
        self.events: list[int] = []  # `a`: storage `a` is made; `~a`: it is freed
        self.guessed: dict[str, None] = {}  # lines that read values which no run gives
        self.holders: dict[int, dict[int, weakref.ref[torch.Tensor]]] = {}  # of each storage that is alive, by `id`
        self._numbers: dict[int, int] = {}  # of storages, by the tensor that owns each in the segment

    def flush(self, reason: str = "") -> None:
        """Let all ops wait for good."""

    def _run_alone(self, func: Any, sort: Sort, tensors: list[torch.Tensor], *call: Any) -> Any:
        """Run an op on values that follow from the inputs; one that gives Python a number on zeros, too."""
        if sort.writes or sort.is_random or not (sort.gives_values or super()._constants(tensors)):
            what = f"op {func}, whose bytes depend on values or are not known,"
            raise self.refused(what, "use torch.where or fixed sizes there, or register a fake")
        return super()._run_alone(func, sort, tensors, *call)

    def _constants(self, tensors: list[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Return tensors with values by `id`: those that follow from the inputs, zeros for others."""
        if (found := super()._constants(tensors)) is not None:
            return found
        self.guessed[self.sources.note({}, sys._getframe()).line or "a line of a library"] = None
        fakes, numbers = self.segment.all_fakes(), map(self.segment.number, tensors)
        pairs = zip(tensors, numbers, strict=True)
        return {id(tensor): tensor if at is None else zeros_like(fakes[at]) for tensor, at in pairs}

    def _record(self, func: Any, sort: Sort, args: Any, kwargs: Any) -> Any:
        before, segment = len(self.segment.made), self.segment
        result = super()._record(func, sort, args, kwargs)
        for port, reference in enumerate(segment.made[before:]):
            tensor = reference()
            assert isinstance(tensor, Deferred)
            fake = segment.all_fakes()[tensor.number]
            owner = segment.owners[storage_of(fake)]
            if owner in segment.held:
                continue
            number = self._numbers.setdefault(owner, len(self.sizes))
            if number == len(self.sizes):
                is_kept = func.overloadpacket in REDUCED_IN_PLACE and given(func, args, kwargs)["reduction"]
                values = max(one.numel() for one in tensors_in(args)) if is_kept else 1
                made = fake
                # Its fake leaves out what the backward pass needs.
                if func is aten.mkldnn_rnn_layer.default and torch.is_grad_enabled():
                    made = tensors_in(self.on_zeros(func, args, kwargs))[port]
                self.sizes.append(values * made.untyped_storage().nbytes())
                self.makers.append((segment.last, port))
            if number not in self.holders:
                self.holders[number] = {}
                self.events.append(number)
            self.holders[number][id(tensor)] = weakref.ref(tensor, functools.partial(self._drop, number, id(tensor)))
        return result

    def _drop(self, number: int, key: int, reference: object) -> None:
        """Note that a tensor is gone, and its storage with the last one."""
        del self.holders[number][key]
        if not self.holders[number]:
            del self.holders[number]
            self.events.append(~number)


@dataclass(frozen=True)
class LiveBytes:
    """The allocations of two calls of the user's own code, counted without a run."""

    peak: Peak  # of both calls; parameters and the like are holders by their role
    sizes: tuple[int, ...]  # bytes of each storage, the last being there before the calls
    events: tuple[int, ...]  # as `Allocator.replay` has them
    guessed: tuple[str, ...]  # lines that read values, which are taken to be 0

    def reserved(self, allocator: Allocator) -> int:
        """Return the bytes that PyTorch's caching allocator reserves."""
        sizes, events = np.array(self.sizes, np.int64), np.array(self.events, np.int64)
        return max(allocator.replay(events, sizes, is_downwards=way).peak for way in (False, True))


def live_bytes(function: Callable[..., Any], call: Call, where: str, grad: bool) -> LiveBytes:
    """Count the bytes of two calls of a function, which are recorded and not run.

    The second has the gradients and states that the first makes; afterwards all is as before, as with `rehearse`.
    """
    state = PythonState(function)
    for _, module in state.modules:
        refuse_wrapped(module, where)
    counter = _Counter(state.paths(), tensors_in(call))
    try:
        gc.collect()
        with foreign_code(where, "its bytes cannot be counted"), silent(), torch.set_grad_enabled(grad), without_gc():
            for _ in range(2):
                counter.call(function, *call)
        names = StepNames(function, call, PythonState(function).parameters().values())
        roles = {key: RESIDENT_ROLES[role] for key, (role, _) in names.of_held().items()}
        if counter.segment.last is counter.root and len(counter.fresh) <= len(tensors_in(call)):
            raise ProgramError(f"{where}: the call calls no op of PyTorch in this thread, so there is nothing to count")
        # Others are what follows from Python's numbers and the inputs' values, counted throughout.
        others = (*counter.segment.held.values(), *counter.fresh.values())
        before = {storage_of(tensor): tensor for tensor in (*others, *names.tensors())}
        kept = {number: roles[key] for number, keys in counter.holders.items() for key in keys if key in roles}
    finally:
        undo_all([state.restore, *counter.undo])
    shares, count = Counter[str](), len(counter.sizes)
    for tensor in before.values():
        shares[roles.get(id(tensor), RESIDENT_ROLES["constant"])] += tensor.untyped_storage().nbytes()
    sizes = (*counter.sizes, *(tensor.untyped_storage().nbytes() for tensor in before.values()))
    events = (*range(count, len(sizes)), *counter.events)
    return LiveBytes(_peak(counter, kept, shares), sizes, events, tuple(counter.guessed))


def _peak(counter: _Counter, kept: Mapping[int, str], before: Mapping[str, int]) -> Peak:
    """Return the peak: bytes by role of what was there before and what the calls keep, and all other storages."""
    live = np.cumsum([0, *(counter.sizes[at] if at >= 0 else -counter.sizes[~at] for at in counter.events)])
    past = counter.events[: live.argmax()]
    alive = {event for event in past if event >= 0} - {~event for event in past}
    shares, holders, seen, runs = Counter(before), list[Holder](), Counter[str](), ("", "")
    for storage, (op, port) in enumerate(counter.makers):
        source, size = source_of(op), counter.sizes[storage]
        kind = f"{source.module}.{op.op.overloadpacket.__name__}".strip(".")
        seen[kind] += port == 0
        name = f"{kind}#{seen[kind]}:{port}"
        if storage in past[-1:]:
            runs = name, source.line
        if storage in alive & kept.keys():
            shares[kept[storage]] += size
        elif size and storage in alive:
            holders.append(Holder(name, size, (), TENSOR_ROLES[source.phase], source.line))
    holders += (Holder(role, size, ()) for role, size in shares.items() if size)
    holders.sort(key=lambda holder: (-holder.size, holder.name))
    return Peak(len(past), 0, int(live.max()) + sum(before.values()), runs[0], 0, 0, tuple(holders), runs[1])


_BUILTINS: tuple[Any, ...] = (OrderedDict, dict, list, set, deque)  # the first that a container is


def copy_of(container: Any) -> Any:
    """Return the content of a dict, list, set or deque, in one of no class of its own."""
    builtin: Any = next(builtin for builtin in _BUILTINS if isinstance(container, builtin))
    if isinstance(container, dict):  # a class of its own may make what it is asked for, as registries do
        return builtin((key, dict.__getitem__(container, key)) for key in container)
    return builtin(container)


def is_unchanged(container: Any, kept: Any) -> bool:
    """Whether a container holds the very same things as when it was copied."""
    if isinstance(container, dict):
        held, before = ({key: id(dict.__getitem__(one, key)) for key in one} for one in (container, kept))
        return held == before
    kind = set if isinstance(container, set) else list
    return kind(map(id, container)) == kind(map(id, kept))


def put_back(container: Any, kept: Any) -> None:
    """Let a container hold its content of when it was copied."""
    if is_unchanged(container, kept):
        return
    builtin: Any = type(kept)  # a class of its own may refuse its methods, as configurations do that are frozen
    builtin.clear(container)
    if builtin is OrderedDict:  # whose own `update` sets items by the methods of the class
        for key, value in kept.items():
            OrderedDict.__setitem__(container, key, value)
    else:
        (builtin.extend if builtin in (list, deque) else builtin.update)(container, kept)


_PLAIN: tuple[type, ...] = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)
_PLAIN += (types.BuiltinFunctionType, logging.Logger, np.ndarray, np.generic, torch.dtype, torch.device, torch.Size)


class PythonState:
    """The reach of a function: closures, globals, defaults, attributes and containers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # with the name under which each was met
        self.modules: list[tuple[str, nn.Module]] = []
        self.named: list[tuple[str, torch.Tensor]] = []
        self.optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self._restoring: list[Callable[[], Any]] = []
        self._seen: dict[int, Any] = {}
        waiting: list[tuple[str, Any]] = [("", function)]
        while waiting:
            name, thing = waiting.pop()
            if isinstance(thing, _PLAIN) or id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing
            waiting += reversed(list(self._visit(name, thing)))
        self._random = random_states()
        self._restoring += [
            functools.partial(random.setstate, random.getstate()),
            functools.partial(np.random.set_state, np.random.get_state()),  # noqa: NPY002
            functools.partial(torch.set_rng_state, torch.get_rng_state()),
        ]

    def parameters(self) -> dict[int, tuple[str, torch.Tensor]]:
        """Return name and tensor of all parameters, by `id`, as the outermost modules name them."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for prefix, module in self._outermost():
            for name, parameter in module.named_parameters():
                found.setdefault(id(parameter), (prefix + name, parameter))
        return found

    def buffers(self) -> dict[int, str]:
        """Return the names of all buffers, by `id`; see `parameters`."""
        outermost = self._outermost()
        return {id(buffer): prefix + name for prefix, module in outermost for name, buffer in module.named_buffers()}

    def paths(self) -> dict[str, nn.Module]:
        """Return all modules by their paths; see `parameters`."""
        named = ((prefix + path, part) for prefix, outer in self._outermost() for path, part in outer.named_modules())
        return {path.rstrip("."): part for path, part in named}

    def _outermost(self) -> list[tuple[str, nn.Module]]:
        """Return the modules that are in no other, each with the prefix of the names in it."""
        inner = {id(part) for _, module in self.modules for part in module.modules() if part is not module}
        outermost = [(name, module) for name, module in self.modules if id(module) not in inner]
        return [(f"{name}." if len(outermost) > 1 and name else "", module) for name, module in outermost]

    def has_drawn(self) -> bool:
        """Whether somebody has drawn Python's or NumPy's random numbers since."""
        return self._random != random_states()

    def restore(self) -> None:
        """Restore every object."""
        undo_all(reversed(self._restoring))

    def _visit(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        """Keep the parts of an object, and give it to be visited."""
        if isinstance(thing, torch.Tensor):
            if is_lazy(thing):
                raise ProgramError(f"'{name}' is not initialised yet; call the model once before")
            self.named.append((name, thing))
            if thing.is_leaf and not thing.is_inference():
                written = write_count(thing)
                self._restoring.append(functools.partial(_restore, thing, thing.grad, thing.requires_grad, written))
        elif isinstance(thing, random.Random):
            self._restoring.append(functools.partial(thing.setstate, thing.getstate()))
        elif isinstance(thing, np.random.Generator):
            self._restoring.append(functools.partial(setattr, thing.bit_generator, "state", thing.bit_generator.state))
        elif isinstance(thing, (np.random.RandomState, torch.Generator)):
            self._restoring.append(functools.partial(thing.set_state, thing.get_state()))  # type: ignore[arg-type]
        elif isinstance(thing, types.FunctionType):
            yield from self._function(thing)
        elif isinstance(thing, types.MethodType):
            yield from ((name, thing.__self__), (name, thing.__func__))
        elif isinstance(thing, types.CellType):
            with suppress(ValueError):  # not assigned yet
                self._restoring.append(functools.partial(setattr, thing, "cell_contents", thing.cell_contents))
                yield name, thing.cell_contents
        elif isinstance(thing, functools.partial):
            yield from ((name, part) for part in (thing.func, *thing.args, *thing.keywords.values()))
        elif isinstance(thing, (tuple, frozenset)):
            yield from _parts(name, thing)
        elif isinstance(thing, (dict, list, set, deque)):
            yield from self._container(name, thing)
        if isinstance(thing, nn.Module):
            self.modules.append((name, thing))
            yield "", getattr(type(thing), "forward", None)
        elif isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append((name, thing))
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(thing, (types.FunctionType, torch.Tensor)):
            yield from self._container(name, attributes)

    def _function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        if (function.__module__ or "").partition(".")[0] in ("torch", "numpy"):
            return
        yield from zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from (("", part) for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        for name in _names(function.__code__):
            if name in function.__globals__:
                value = function.__globals__[name]
                self._restoring.append(functools.partial(function.__globals__.__setitem__, name, value))
                yield name, value

    def _container(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        kept: Any = copy_of(thing)
        if isinstance(thing, dict):
            yield from ((name, key) for key in kept)
            yield from ((f"{name}.{key}" if name and isinstance(key, str) else name, kept[key]) for key in kept)
        else:
            yield from _parts(name, kept)
        self._restoring.append(functools.partial(put_back, thing, kept))


def _restore(tensor: torch.Tensor, gradient: torch.Tensor | None, required: bool, version: int) -> None:
    """Restore autograd's state of a tensor."""
    if not tensor.is_leaf:  # a value with a gradient was written into it
        try:
            tensor.detach_()
        except RuntimeError:  # a view
            swap_tensors(tensor, tensor.detach())  # type: ignore[no-untyped-call]
    tensor.requires_grad_(required)
    if tensor.grad is not gradient:
        tensor.grad = None
        tensor.grad = gradient
    if write_count(tensor) != version:
        set_write_count(tensor, version)


def _parts(name: str, things: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Return the parts of a list with the names that they have in it."""
    return ((f"{name}.{at}" if name else name, part) for at, part in enumerate(things))


@functools.lru_cache(1000)
def _names(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals in a function and the functions within it."""
    own = frozenset(one.argval for one in dis.get_instructions(code) if one.opname.endswith(("_GLOBAL", "_NAME")))
    return own.union(*(_names(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def random_states() -> tuple[Any, ...]:
    """Return the states of Python's and NumPy's random numbers; of NumPy the old generator, which all share."""
    state: Any = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return random.getstate(), state["key"].tobytes(), state["pos"]


@contextmanager
def untouched(model: nn.Module, tensors: Iterable[torch.Tensor] = ()) -> Iterator[PythonState]:
    """Undo changes of a model's attributes, random numbers and these tensors, as when its code runs on fakes."""
    state = PythonState(model)
    changes = [restoring(tensor) for tensor in tensors]
    try:
        yield state
    finally:
        undo_all([state.restore, *changes])
