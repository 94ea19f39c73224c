"""The graphs that AOTAutograd gives to a backend of `torch.compile`, as a `CostGraph` each.

They differ from a program of `program.py`: sizes may be symbolic, of which the hints are planned with; some nodes
compute numbers; and the caller gives the tensors saved for the backward pass away, so that they are there from the
start and freed after their last reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...base.errors import ProgramError
from ...graph.graph import CostGraph
from .importer import Import, ImportedOp, graph_of
from .node_order import is_number
from .program import TorchProgram
from .torch_internals import FakeTensor, FakeTensorMode, HigherOrderOperator, storage_id
from .tracing import check_flat, foreign_code, silent

SAVED = "inputs"
"""Name of the op whose outputs are the tensors that the caller gives away."""
# What talks to other processes, which must hear it in the same order.
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")


def aot_graph(name: str, module: fx.GraphModule, inputs: Sequence[Any], kept: Sequence[bool]) -> CostGraph:
    """Return a graph of AOTAutograd as a `CostGraph`; its ops are named after the nodes."""
    for node in module.graph.nodes:
        if isinstance(node.target, HigherOrderOperator):
            raise ProgramError(f"{name}: node '{node.name}' ({node.target}) runs a graph or an op of its own")
    check_flat(module.graph, name)
    with foreign_code(name, "the graph cannot be imported"), silent():
        roles = tuple("input" if keeps else "saved" for keeps in kept)
        fakes = _concrete(inputs, FakeTensorMode(allow_fallback_kernels=False))
        program = TorchProgram(name, module, tuple(fakes), roles, ())
        return graph_of(program, walk=_AotImport)


def _concrete(values: Sequence[Any], mode: FakeTensorMode) -> list[Any]:
    """Return fakes of the tensors' hinted sizes, sharing storages as they do, and hints of the numbers."""
    storages: dict[int, torch.Tensor] = {}
    arguments = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            arguments.append(_hint(value))
            continue
        if value.layout is not torch.strided:
            raise ProgramError(f"an input has the layout {value.layout}; only strided tensors are supported")
        storage = value.untyped_storage()
        with mode:
            if storage_id(storage) not in storages:
                items = -(-_hint(storage.nbytes()) // value.element_size())
                storages[storage_id(storage)] = torch.empty(items, dtype=value.dtype, device=value.device)
            base = storages[storage_id(storage)].view(value.dtype)
            shape, strides = [_hint(size) for size in value.shape], [_hint(step) for step in value.stride()]
            arguments.append(base.as_strided(shape, strides, _hint(value.storage_offset())))
    return arguments


def _hint(value: Any) -> Any:
    """Return the number that a symbolic one stood for when it was traced."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    if value.node.hint is None:
        raise ProgramError(f"the size {value} depends on the values of tensors")
    return value.node.hint


class _AotImport(Import):
    """A walk that lets saved tensors go, computes numbers and keeps collective ops in order; its arguments are fake."""

    def __init__(self, program: TorchProgram, *costs: Any) -> None:
        super().__init__(program, *costs)
        modes = (argument.fake_mode for argument in program.arguments if isinstance(argument, FakeTensor))
        self.mode = next(modes, self.mode)
        self.numbers: dict[fx.Node, set[int]] = {}
        self.given_away: ImportedOp | None = None
        self.last_collective: int | None = None

    def _hold(self, node: fx.Node, argument: Any, name: str, role: str) -> None:
        self.values[node], self.ports[node] = argument, []
        if not isinstance(argument, torch.Tensor):
            return
        storage, size = self._storage(argument, node), argument.untyped_storage().nbytes()
        if role != "saved":
            self.residents.hold(storage, name, role, size)
        elif storage not in self.residents:
            self.ports[node] = [self._give_away(storage, size)]

    def _give_away(self, storage: int, size: int) -> tuple[int, int]:
        """Return the output that holds a storage, of the op that all others wait for."""
        for port, known in self.storage_of.items():
            if known == storage:
                return port
        if self.given_away is None:
            self.given_away = ImportedOp(SAVED, [], set(), [], [], [], 0.0, 0, True)
            self.ops.append(self.given_away)
        port = (0, len(self.given_away.outputs))
        self.storage_of[port] = storage
        self.allocated.add(storage)
        self.given_away.outputs.append(size)
        self.given_away.aliases.append(-1)
        self.given_away.final.append(False)
        return port

    def _add(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            constant = _concrete([getattr(self.program.module, str(node.target))], self.mode)[0]
            self._hold(node, constant, str(node.target), "constant")
        elif is_number(node):
            self._compute(node)
        else:
            super()._add(node)

    def _compute(self, node: fx.Node) -> None:
        """Compute a number; what uses it waits for the ops whose results it is computed from."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        self.values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        self.ports[node] = []
        producers = {op for source in node.all_input_nodes for op, _ in self.ports[source]}
        self.numbers[node] = producers | self._awaited(node)

    def _awaited(self, node: fx.Node) -> set[int]:
        """Return the ops that the numbers among the arguments of a node are computed from."""
        return {op for source in node.all_input_nodes for op in self.numbers.get(source, ())}

    def _call(self, node: fx.Node) -> None:
        super()._call(node)
        number, op = len(self.ops) - 1, self.ops[-1]
        op.control |= self._awaited(node)
        if getattr(node.target, "namespace", "") in _COLLECTIVES:
            if self.last_collective is not None:
                op.control.add(self.last_collective)
            self.last_collective = number
        op.control -= {producer for producer, _ in op.inputs}
        if self.given_away is not None and not op.inputs and not op.control:
            op.control.add(0)
