"""A run of a program op by op, which leaves the tensors that it is given as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from ..fresh_process import return_freed_memory
from .calls import given, tensors_in, written
from .source_lines import node_label
from .torch_internals import OpOverload, neg_view, pytree, storage_id, storage_of
from .tracing import foreign_code

SEED = 0


@dataclass
class _Memory:
    """A storage that was given, or the copy that took its place: who is in it."""

    arguments: list[int] = field(default_factory=list)
    nodes: set[fx.Node] = field(default_factory=set)
    copied: bool = False


class Replay:
    """Runs a graph of ATen calls in its order and, as generated code does, drops each value after its last use.

    Memory that was given is copied before an op writes to it, and the copy dropped after its last use. So what was
    given stays as it is, whatever fails, and hardly more is held than in a run in place.
    """

    def __init__(self, name: str, module: fx.GraphModule) -> None:
        self.name = name
        self.module = module
        self._last_uses: dict[fx.Node, list[fx.Node]] = {}
        used: set[fx.Node] = set()
        for node in reversed(module.graph.nodes):
            self._last_uses[node] = [source for source in node.all_input_nodes if source not in used]
            used.update(node.all_input_nodes)
        self._forget(())

    def run(self, arguments: Sequence[Any], grad: bool) -> Any:
        """Run once, with random numbers of a fixed seed, and return the results."""
        return_freed_memory()  # else a run needs what it needs beside the pieces that were left behind before
        self._forget(arguments)
        try:
            with torch.random.fork_rng(), torch.set_grad_enabled(grad):
                torch.manual_seed(SEED)
                return self._run()
        finally:
            self._forget(())
            return_freed_memory()

    def call_op(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op of a node."""
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def wrote(self, number: int, value: torch.Tensor) -> None:
        """Take what the argument of this number has become, once no op has a use for it."""

    def _forget(self, arguments: Sequence[Any]) -> None:
        self._arguments = arguments
        self._values: dict[fx.Node, Any] = {}
        self._memories: dict[int, _Memory] = {}

    def _run(self) -> Any:
        results: Any = None
        numbers = iter(range(len(self._arguments)))
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                number = next(numbers)
                self._hold(node, self._arguments[number], [number])
            elif node.op == "get_attr":
                self._hold(node, attrgetter(node.target)(self.module), [])
            elif node.op == "output":
                results = fx.map_arg(node.args[0], self._values.__getitem__)
            else:
                result = self._call(node)
                if node.users:
                    self._keep(node, result)
                del result
            for last in self._last_uses[node]:
                self._drop(last)
        return results

    def _hold(self, node: fx.Node, value: Any, arguments: list[int]) -> None:
        """Take what is the caller's."""
        if isinstance(value, torch.Tensor):
            self._memories.setdefault(storage_of(value), _Memory()).arguments += arguments
        self._keep(node, value)

    def _call(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if not isinstance(node.target, OpOverload):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        for tensor in tensors_in(written(node.target, given(node.target, args, kwargs))):
            old = storage_of(tensor)
            if old in self._memories and not self._memories[old].copied:
                self._copy(old, tensor.untyped_storage())
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        with foreign_code(self.name, f"node {node_label(node)} fails when run"):
            return self.call_op(node, args, kwargs)

    def _copy(self, old: int, storage: torch.UntypedStorage) -> None:
        """Let all values that are in a storage be in a copy of it."""
        copy: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]

        def moved(value: torch.Tensor) -> torch.Tensor:
            return _moved(value, copy) if storage_of(value) == old else value

        self._memories[storage_id(copy)] = memory = self._memories.pop(old)
        memory.copied = True
        for node in memory.nodes:
            self._values[node] = pytree.tree_map_only(torch.Tensor, moved, self._values[node])

    def _keep(self, node: fx.Node, value: Any) -> None:
        self._values[node] = value
        for tensor in tensors_in(value):
            if memory := self._memories.get(storage_of(tensor)):
                memory.nodes.add(node)

    def _drop(self, node: fx.Node) -> None:
        for tensor in tensors_in(self._values.pop(node)):
            if (memory := self._memories.get(storage_of(tensor))) is None:
                continue
            memory.nodes.discard(node)
            if memory.copied and not memory.nodes:
                del self._memories[storage_of(tensor)]
                for number in memory.arguments:
                    self.wrote(number, _moved(self._arguments[number], tensor.untyped_storage()))


def _moved(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor like this one in a copy of its storage."""
    new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    new.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    new = new.conj() if tensor.is_conj() else new
    return neg_view(new) if tensor.is_neg() else new
