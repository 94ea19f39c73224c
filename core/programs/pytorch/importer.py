"""A PyTorch program as a `CostGraph`: sizes and aliases from the storages that its ops use when run on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from ...base.errors import ProgramError
from ...base.units import format_bytes
from ...graph.annotations import Annotations, Resident, bytes_held
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ...kernels.caching_allocator import SMALL
from ..options import Roofline
from .calls import REDUCED_IN_PLACE, StorageAccesses, aten, can_run_again, given, is_random, read_by, tensors_in
from .calls import written as written_by
from .torch_internals import SAME_FLOPS, FakeTensor, OpOverload, pytree, schema_of, storage_of
from .tracing import TorchProgram, counts, fake_mode, fake_of, node_label, sources_of, zeros_like

SAVED = "saved tensors"  # the op, named as no node can be, whose outputs are the tensors that the caller gives away
_KNOWN = ("aten", "prims")  # whose schemas say all that they do; another op may keep something to itself


def graph_of(
    program: TorchProgram,
    roofline: Roofline | None = None,
    measured: Mapping[str, tuple[float, int, int]] | None = None,
    note: Callable[[str], None] = lambda text: None,
    walk: type[Import] | None = None,
) -> CostGraph:
    """Return the program as a graph whose every order gives the program's results, bit for bit."""
    imported = (walk or Import)(program, roofline or Roofline(), measured)
    ops, residents = imported.run()
    if unused := sum(resident.size for resident in residents if resident.op < 0):
        note(f"{program.name}: {format_bytes(unused)} of parameters, buffers and inputs are never read and not counted")
    builder, persistent = GraphBuilder(program.name), bytes_held(residents)
    for number, op in enumerate(ops):
        builder.add_op(**{**op, "control": sorted(op["control"])}, persistent=persistent[number])
    sources = sources_of(program.module.graph, program.names, program.roles)
    found = [sources.get(op["name"], ("", "", "")) for op in ops]  # that for what is given away is no node
    modules, lines, phases = map(tuple, zip(*found, strict=True)) if found else ((), (), ())
    modules, lines = (each if any(each) else () for each in (modules, lines))
    return builder.build(Annotations(modules, lines, phases, residents, view_offsets=imported.view_offsets))


@dataclass
class CallersStorage:
    """A storage that the caller gives and keeps, under the name of its first tensor, with its accesses."""

    name: str
    role: str
    size: int
    readers: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    holders: list[tuple[bool, int]] = field(default_factory=list)  # whether it is a view, and the op

    def resident(self) -> Resident:
        """Return it as bytes of the first op that accesses it and is no view; if all are, of the first of them."""
        op = min(self.holders, default=(False, -1))[1]
        return Resident(self.name, self.role, self.size, op, tuple(self.readers), tuple(self.writers))


class Import:
    """One walk over the program, running each node on fake tensors; `getitem` is no op but a port of one."""

    is_fake = False  # whether the arguments are fakes of their own mode

    def __init__(
        self, program: TorchProgram, roofline: Roofline, measured: Mapping[str, tuple[float, int, int]] | None
    ) -> None:
        self.program = program
        self.roofline = roofline
        self.measured = measured
        self.mode = fake_mode(program.arguments)
        self.device = program.device.type
        self.ops: list[dict[str, Any]] = []  # what `GraphBuilder.add_op` is told of each, but bytes held
        self.values: dict[fx.Node, Any] = {}  # all, as a storage is known by its address
        self.ports: dict[fx.Node, list[tuple[int, int]]] = {}
        self.accesses = StorageAccesses()
        self.residents: dict[int, CallersStorage] = {}
        self.allocated: set[int] = set()
        self.storage_of: dict[tuple[int, int], int] = {}
        self.view_offsets: dict[tuple[int, int], int] = {}  # bytes from the start of the base
        self.start_of: dict[tuple[int, int], int] = {}  # bytes from the start of the storage
        self.maker_of: dict[int, int] = {}
        self.last_random: int | None = None
        self.given_away: dict[str, Any] = {}  # the op that holds saved tensors, once there are some
        nodes = program.module.graph.nodes
        self.views_wait = any(torch.Tag.inplace_view in getattr(node.target, "tags", ()) for node in nodes)

    def run(self) -> tuple[list[dict[str, Any]], tuple[Resident, ...]]:
        """Return the ops in program order, and the tensors that the caller gives."""
        given = zip(self.program.arguments, self.program.names, self.program.roles, strict=True)
        for node in self.program.module.graph.nodes:
            if node.op == "placeholder":
                self._hold(node, *next(given))
            elif node.op == "output":
                for returned in node.all_input_nodes:
                    for op, port in self.ports[returned]:
                        self.ops[op]["final"][port] = True
            else:
                self._add(node)
        return self.ops, tuple(held.resident() for held in self.residents.values())

    def _hold(self, node: fx.Node, argument: Any, name: str, role: str) -> None:
        """Take a tensor that the caller gives, and keeps unless its role is `saved`."""
        self.ports[node] = []
        self.values[node] = fake = argument if self.is_fake else fake_of(self.mode, argument)
        if not isinstance(fake, torch.Tensor):
            return
        storage, size = self._storage(fake, node), self._bytes(fake, fake.untyped_storage().nbytes())
        if role != "saved":
            self.residents.setdefault(storage, CallersStorage(name, role, size))
        elif storage not in self.residents:
            self.ports[node] = [self._give_away(storage, size)]

    def _give_away(self, storage: int, size: int) -> tuple[int, int]:
        """Return the output that holds a storage, of the op that all others wait for."""
        if known := [port for port, other in self.storage_of.items() if other == storage]:
            return known[0]
        if not self.given_away:
            self.given_away.update(name=SAVED, inputs=[], control=set(), outputs=[], aliases=[], final=[], once=True)
            self.ops.append(self.given_away)
        port = (0, len(self.given_away["outputs"]))
        self.storage_of[port] = storage
        self.allocated.add(storage)
        for name, value in (("outputs", size), ("aliases", -1), ("final", False)):
            self.given_away[name].append(value)
        return port

    def _add(self, node: fx.Node) -> None:
        """Take a node that is neither an argument nor the result."""
        if node.target is getitem:
            self._take(node)
        elif node.op == "call_function" and isinstance(node.target, OpOverload):
            self._call(node)
        else:
            raise ProgramError(f"{self.program.name}: node {node_label(node)} is no call of an ATen op")

    def _take(self, node: fx.Node) -> None:
        """Fold `getitem` into the op that it takes from."""
        source, index = node.args
        assert isinstance(source, fx.Node)
        self.values[node] = value = self.values[source][index]
        before = len(pytree.tree_leaves(list(self.values[source][:index])))
        self.ports[node] = self.ports[source][before : before + len(pytree.tree_leaves(value))]

    def _call(self, node: fx.Node) -> None:
        target = node.target
        assert isinstance(target, OpOverload)
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        values = given(target, args, kwargs)
        read = {self._storage(tensor, node) for tensor in tensors_in(read_by(target, values))}
        changed = tensors_in(written_by(target, values))
        written = {self._storage(tensor, node): tensor.untyped_storage().nbytes() for tensor in changed}
        result = self._run(target, args, kwargs)
        if written != {self._storage(tensor, node): tensor.untyped_storage().nbytes() for tensor in changed}:
            raise ProgramError(
                f"{self.program.name}: node {node_label(node)} exchanges or resizes the memory of its argument, "
                "which is not supported"
            )
        self.values[node] = result
        op = len(self.ops)
        inputs = [port for source in node.all_input_nodes for port in self.ports[source]]
        sizes, aliases = self._outputs(node, op, result, inputs)

        made = tensors_in(result)
        is_view = bool(made) and not written and all(self._storage(tensor, node) in read for tensor in made)
        control = set() if is_view and not self.views_wait else self.accesses.add(op, read, written.keys())
        draws = is_random(target, values)
        if draws:
            if self.last_random is not None:
                control.add(self.last_random)
            self.last_random = op
        producers = {producer for producer, _ in inputs}
        # What made the memory that is written now, or read it for what is written, would do other than before.
        spoilt = {self.maker_of[storage] for storage in written if storage in self.maker_of}
        for earlier in spoilt | (control & producers):
            self.ops[earlier]["once"] = True
        control -= producers
        control |= {0} if self.given_away and not inputs and not control else set()
        if self.measured is not None:
            runtime, workspace, small = self.measured[node.name]
        else:
            runtime, workspace, small = 0.0 if is_view else self._roofline(target, args, kwargs, result), 0, 0
        if workspace > SMALL:  # then what lies in small blocks is in outputs of such sizes, which nothing reads
            blocks, rest = divmod(min(small, workspace), SMALL)
            sizes += [SMALL] * blocks + [rest] * (rest > 0)
            aliases += [-1] * (len(sizes) - len(aliases))
            workspace -= min(small, workspace)
        once = draws or target.namespace not in _KNOWN or not can_run_again(target, values)
        bases = {(op, port): inputs[alias] for port, alias in enumerate(aliases) if alias >= 0}
        starts = {view: self.start_of[view] - self.start_of.get(base, 0) for view, base in bases.items()}
        self.view_offsets.update((view, offset) for view, offset in starts.items() if offset)
        ports = {"inputs": inputs, "outputs": sizes, "aliases": aliases, "final": [False] * len(sizes)}
        costs = {"runtime": runtime, "workspace": workspace, "once": once}
        self.ops.append({"name": node.name, "control": control, **ports, **costs})
        for storage in self.residents.keys() & read:
            held = self.residents[storage]
            (held.writers if storage in written else held.readers).append(op)
            held.holders.append((is_view, op))

    def _run(self, target: OpOverload[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the results of a call on fakes, put right where a fake has other memory than a run."""
        if target is aten.mkldnn_rnn_layer.default:
            with torch.set_grad_enabled(self.program.training != "none"):
                results = target(*pytree.tree_map_only(FakeTensor, zeros_like, args), **kwargs)
            return pytree.tree_map_only(torch.Tensor, self.mode.from_tensor, results)
        if not schema_of(target).returns:  # it only writes to its arguments, and may have no fake
            return None
        with self.mode:
            if target.overloadpacket in REDUCED_IN_PLACE and (values := given(target, args, kwargs))["reduction"]:
                return target(**{**values, "reduction": 0}).as_strided((), ())
            results = target(*args, **kwargs)
            if target is aten.mkldnn_rnn_layer_backward.default:
                results = [result.clone() for result in results]
        return results

    def _outputs(
        self, node: fx.Node, op: int, result: Any, inputs: list[tuple[int, int]]
    ) -> tuple[list[int], list[int]]:
        """Return the size of each output and the input it aliases (-1: none); note where each can be read."""
        sizes, aliases = [], []
        self.ports[node] = []
        new: dict[int, int] = {}
        for port, leaf in enumerate([] if result is None else pytree.tree_leaves(result)):
            size, alias, readable = 0, -1, port
            if isinstance(leaf, torch.Tensor):
                storage = self._storage(leaf, node)
                if storage in new:
                    readable = new[storage]
                elif storage in self.allocated:
                    alias = next(at for at, source in enumerate(inputs) if self.storage_of.get(source) == storage)
                    self.start_of[op, port] = int(leaf.storage_offset()) * leaf.element_size()
                    size = self._bytes(leaf, _copied(leaf))
                elif storage not in self.residents:
                    size = self._bytes(leaf, leaf.untyped_storage().nbytes())
                    new[storage] = port
                    self.maker_of[storage] = op
                self.storage_of[op, port] = storage
            sizes.append(size)
            aliases.append(alias)
            self.ports[node].append((op, readable))
        self.allocated.update(new.keys())
        return sizes, aliases

    def _bytes(self, tensor: torch.Tensor, size: int) -> int:
        """Return the bytes of a tensor that count: of a program on CUDA those in the CPU's memory do not."""
        return size if counts(tensor, self.device) else 0

    def _roofline(self, target: OpOverload[Any, Any], args: tuple[Any, ...], kwargs: Any, result: Any) -> float:
        """Return microseconds; an op whose FLOPs PyTorch does not count does one per element that it makes."""
        made = tensors_in(result)
        packet = SAME_FLOPS.get(target.overloadpacket, target.overloadpacket)
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
        else:
            flops = sum(tensor.numel() for tensor in made)
        moved = {  # an expanded tensor has fewer bytes than its shape says
            id(tensor): min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
            for tensor in tensors_in((args, kwargs, made))
        }
        return self.roofline.microseconds(flops, sum(moved.values()))

    def _storage(self, tensor: torch.Tensor, node: fx.Node) -> int:
        """Return the identity of a tensor's storage."""
        if tensor.layout is not torch.strided:
            raise ProgramError(
                f"{self.program.name}: node {node_label(node)} has a tensor of layout {tensor.layout}; "
                "only strided ones are supported"
            )
        return storage_of(tensor)


def _copied(tensor: torch.Tensor) -> int:
    """Return the bytes that a copy of a view takes: of its elements each once, where an expanded one repeats them."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * step for size, step in steps)
    return min(tensor.numel(), max(0, span)) * tensor.element_size()
