"""Graphs of recorded steps: the ops as one flat graph, and the rehearsal that records a step without running it."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.amp import GradScaler

from ...base.errors import ProgramError
from .calls import argument_names, tensors_in
from .python_state import PythonState
from .recorded import WITHOUT_EFFECT, Deferred, RecordedOp, Result, Segment, Tree, tensor_keys
from .recorder import Recorder
from .torch_internals import SCALER_STEP, entered, pytree
from .tracing import foreign_code, refuse_wrapped, silent, zeros_like

Named = Mapping[int, tuple[str, str]]
"""Role and name of tensors, by `id`."""


class StepGraph(NamedTuple):
    """The ops that a step has recorded as a program; its fields are those of `TorchProgram`."""

    module: fx.GraphModule
    arguments: tuple[Any, ...]
    roles: tuple[str, ...]
    names: tuple[str, ...]
    results: tuple[str, ...]


def step_graph(segment: Segment, wanted: Sequence[int], named: Named) -> StepGraph:
    """Return the ops that a step has recorded as a graph; numbers that change from call to call are its constants."""
    graph = fx.Graph()
    nodes: dict[int, fx.Node] = {}
    roles, names = [], []
    for number, tensor in segment.held.items():
        role, label = named.get(id(tensor), ("constant", f"tensor_{number}"))
        nodes[number] = node = graph.placeholder(re.sub(r"\W", "_", f"{role}_{label}"))
        node.target = node.name  # which no other has
        roles.append(role)
        names.append(label)
    labels = [f"number_{at}" for at in range(len(segment.numbers))]
    numbers = iter([graph.placeholder(label) for label in labels])
    for op in segment.last.path():
        if op.op not in WITHOUT_EFFECT:
            _add(graph, op, nodes, numbers.__next__)
    graph.output(tuple(nodes[number] for number in wanted))
    return StepGraph(
        module=fx.GraphModule(torch.nn.Module(), graph),
        arguments=(*arguments_of(segment),),
        roles=(*roles, *("constant" for _ in labels)),
        names=(*names, *labels),
        results=("output",) * len(wanted),
    )


def arguments_of(segment: Segment) -> list[Any]:
    """Return what the program of a segment runs on: tensors, without autograd, that share memory with those met."""
    return [*(tensor.data for tensor in segment.held.values()), *segment.numbers]


def run_in_order(segment: Segment, wanted: Sequence[int], outer: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Run the ops that a step has recorded as it recorded them, each value until its last use, seen by modes."""
    path = segment.last.path()
    last: dict[int, RecordedOp] = {}
    for op in path:
        last.update(dict.fromkeys([*(key.number for key in tensor_keys(op.key)), *_numbers(op)], op))
    drops: defaultdict[RecordedOp, list[int]] = defaultdict(list)
    for number in last.keys() - set(wanted):
        drops[last[number]].append(number)
    values: dict[int, Any] = {number: tensor.data for number, tensor in segment.held.items()}
    numbers = iter(segment.numbers)
    with torch.no_grad(), entered(outer):
        for op in path:
            args, kwargs = op.call(lambda key: values[key.number], numbers.__next__)
            made = pytree.tree_leaves(op.op(*args, **kwargs))
            del args, kwargs
            leaves = zip(pytree.tree_leaves(op.returned), made, strict=True)
            values.update((result.number, leaf) for result, leaf in leaves if isinstance(result, Result))
            del made, leaves
            for number in drops[op]:
                del values[number]
    return {number: values[number] for number in wanted}


def _numbers(op: RecordedOp) -> list[int]:
    """Return the numbers of the tensors that an op returns."""
    return [result.number for result in pytree.tree_leaves(op.returned) if isinstance(result, Result)]


def _add(graph: fx.Graph, op: RecordedOp, nodes: dict[int, fx.Node], number: Callable[[], Any]) -> None:
    """Add an op to the graph, and a node for each of its results that is a tensor."""
    args, kwargs = op.call(lambda tensor: nodes[tensor.number], number)
    node = graph.create_node("call_function", op.op, args, kwargs, name=op.op.overloadpacket.__name__)
    node.meta.update(op.meta)

    def take(part: Any, source: fx.Node) -> None:
        if isinstance(part, Result):
            nodes[part.number] = source
        elif isinstance(part, (tuple, list)):
            for at, inner in enumerate(part):
                if any(isinstance(leaf, Result) for leaf in pytree.tree_leaves(inner)):
                    take(inner, graph.call_function(getitem, (source, at)))

    take(op.returned, node)


class StepNames:
    """What the tensors that a call of a step works on are called."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trained: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        self._function = function
        names = argument_names(function, args, kwargs)
        leaves = zip(pytree.tree_leaves((args, kwargs)), names, strict=True)
        self._given = tensors_in((args, kwargs))
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
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    where: str,
    tree: Tree,
    take: Take,
    what: str = "the step cannot be recorded",
) -> tuple[int, float]:
    """Record two calls of a step without running them; the second has the gradients and states that the first makes.

    Return how many ops the last one recorded, and how many seconds a call takes for these once it knows them all.

    Modules, optimizers, gradients, attributes, closures, globals and generators are then as before; other effects
    (files, iterators) cannot be undone. `take` gets the segment, what it shall return, the names of tensors, and
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
        take(segment, wanted, names, reason)
        fakes = segment.all_fakes()
        return {number: zeros_like(fakes[number]) for number in wanted}

    try:
        for _ in range(2):
            names = StepNames(function, args, kwargs, state.parameters().values())
            recorder = Recorder(tree, run, changes, state.paths(), rehearses=True)
            start = time.perf_counter()
            with foreign_code(where, what), silent(), torch.enable_grad(), recorder.recording():
                returned = function(*args, **kwargs)  # what the caller will hold has to be there
            recorder.flush()
            recorder.settle(returned)
            del returned
    except Enough:
        pass
    finally:
        for undo in reversed(changes):
            undo()
        state.restore()
    return ops, seconds


def graph_of_step(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> StepGraph:
    """Return the graph of a step, as it is once optimizers have their state.

    Where a `GradScaler` asks whether gradients are finite, they are taken to be.
    """
    found: list[StepGraph] = []

    def take(segment: Segment, wanted: Sequence[int], names: StepNames, reason: str) -> None:
        if reason:
            raise RuntimeError(reason)
        found.append(step_graph(segment, wanted, names.of_held()))

    with _finite_gradients():
        rehearse(function, args, kwargs, where, Tree(), take, "no one graph stands for the step")
    if not found:
        raise ProgramError(f"{where}: the step calls no op of PyTorch")
    return found[-1]


@contextmanager
def _finite_gradients() -> Iterator[None]:
    """Have gradient scalers do their optimizers' steps without a look at what they have found."""

    def step(scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    before = getattr(GradScaler, SCALER_STEP)
    setattr(GradScaler, SCALER_STEP, step)
    try:
        yield
    finally:
        setattr(GradScaler, SCALER_STEP, before)
