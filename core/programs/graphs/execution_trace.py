"""Execution traces of PyTorch as graphs: storages become tensors, so any eager program is a graph, without its model.

An op of the graph is an op of PyTorch that is not made of others (`aten::linear` is, `aten::addmm` is not), as in an
exported program. The memory of the ops inside it is its workspace. Views make nothing and are left out:
their readers read the storage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from ...base.errors import FormatError
from ...base.units import format_bytes
from ...files.costgraph import graph_name
from ...files.reading import read_json
from ...graph.annotations import Annotations, Resident, bytes_held
from ...graph.builder import GraphBuilder
from ...graph.graph import CostGraph
from ..options import ImportOptions, Roofline
from ..pytorch.calls import StorageAccesses
from ..pytorch.torch_internals import has_kernel, has_kernel_for

_DEEPEST = 64
_TENSOR_FIELDS = 6


class Tensor(NamedTuple):
    """A tensor as a node names it."""

    storage: int  # a later storage at the same address has the same number
    # where it begins, in elements; how many it has; bytes of one
    offset: int
    elements: int
    item: int
    device: str  # as PyTorch writes it, such as `cuda:0`
    # elements per dimension; strides are None in traces before schema 1.1.1
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def extent(self) -> int:
        """Bytes of its storage up to its last element."""
        if not self.elements:
            return 0
        span = self.elements
        if self.strides is not None and len(self.strides) == len(self.shape):
            span = 1 + sum((size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides, strict=True))
        return (self.offset + span) * self.item

    @property
    def is_expanded(self) -> bool:
        """Whether elements share memory, so that there are fewer bytes than elements say, where strides tell."""
        return self.strides is not None and 0 in self.strides


@dataclass
class TraceNode:
    """A node: an op that ran, or something around ops, such as a module, a gradient function or the optimizer."""

    # by the order in which nodes began; `parent` is the node that it ran in
    id: int
    parent: int
    # such as `aten::add` and `aten::add.Tensor(Tensor self, ...) -> Tensor`; the schema of no op is empty
    name: str
    schema: str
    inputs: list[Any]  # per argument its tensors, or its value
    outputs: list[Tensor]
    is_kernel: bool  # whether it is a kernel outside of PyTorch's own, such as Triton's
    children: list[TraceNode] = field(default_factory=list, repr=False)  # what ran in it, in order

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among its arguments."""
        return tensors_in(self.inputs)

    def subtree(self) -> Iterator[TraceNode]:
        """Yield all that ran in it, in order, without itself."""
        stack = self.children[::-1]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


def tensors_in(values: list[Any]) -> list[Tensor]:
    """Return the tensors in nested lists of values."""
    parts = (tensors_in(value) if isinstance(value, list) else [value] for value in values)
    return [value for part in parts for value in part if isinstance(value, Tensor)]


def read_roots(path: str) -> list[TraceNode]:
    """Read a trace, plain or gzip, and return the nodes that are in no other, in the order in which they began."""
    document = read_json(path)
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or not isinstance(document.get("nodes"), list):
        raise FormatError(f"{path}: not an execution trace: it has no schema and nodes")
    if not re.match(r"1\.[01]\b", schema):
        raise FormatError(f"{path}: an execution trace of schema {schema[:40]}; 1.0 and 1.1 are known")
    nodes: dict[int, TraceNode] = {}
    for place, written in enumerate(document["nodes"]):
        try:
            node = _node(written)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            name = written.get("name") if isinstance(written, dict) else None
            raise FormatError(f"{path}: node {place} ({str(name)[:80]}) is damaged: {error!r}") from error
        if node.id in nodes:
            raise FormatError(f"{path}: two nodes have the id {node.id}")
        nodes[node.id] = node
    roots = []
    for _, node in sorted(nodes.items()):
        parent = nodes.get(node.parent)
        if parent is None or parent is node:
            roots.append(node)
        elif parent.id > node.id:
            raise FormatError(f"{path}: node {node.id} ({node.name}) runs in node {parent.id}, which began later")
        else:
            parent.children.append(node)
    return roots


def _node(written: dict[str, Any]) -> TraceNode:
    if isinstance(written["inputs"], dict):  # schema 1.1
        attributes = {attribute["name"]: attribute["value"] for attribute in written["attrs"]}
        given, made, parent = written["inputs"], written["outputs"], written["ctrl_deps"]
    else:
        attributes = written
        given, made = (
            {"values": written[f"{kind}s"], "shapes": written[f"{kind}_shapes"], "types": written[f"{kind}_types"]}
            for kind in ("input", "output")
        )
        parent = written["parent"]
    return TraceNode(
        id=_whole(written["id"]),
        parent=_whole(parent),
        name=str(written["name"]),
        schema=str(attributes.get("op_schema", "")),
        inputs=_values(given),
        outputs=tensors_in(_values(made)),
        is_kernel=bool(attributes.get("kernel_backend")),
    )


def _values(written: dict[str, Any]) -> list[Any]:
    values = written["values"]
    strides = written.get("strides") or [None] * len(values)
    columns = zip(values, written["shapes"], written["types"], strides, strict=True)
    return [_value(value, shape, str(kind), stride) for value, shape, kind, stride in columns]


def _value(value: Any, shape: Any, kind: str, strides: Any, depth: int = 0) -> Any:
    """Return a value with a `Tensor` for each `[tensor, storage, offset, elements, item, device]` in it."""
    if depth > _DEEPEST:
        raise ValueError("lists are nested too deeply")
    if not isinstance(value, list):
        return value
    if "Tensor" in kind and len(value) == _TENSOR_FIELDS and isinstance(value[-1], str):
        storage, offset, elements, item = map(_whole, value[1:-1])
        sizes = tuple(map(_whole, shape)) if isinstance(shape, list) else ()
        steps = tuple(map(int, strides)) if isinstance(strides, list) else None
        return Tensor(storage, offset, elements, item, value[-1], sizes, steps)
    nothing = [None] * len(value)
    inner = [given if isinstance(given, list) and len(given) == len(value) else nothing for given in (shape, strides)]
    return [_value(part, size, kind, step, depth + 1) for part, size, step in zip(value, *inner, strict=True)]


def _whole(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool) or number != value or not 0 <= number < 2**63:
        raise ValueError(f"{value} is no whole number that counts something")
    return number


_PHASES = {"autograd::engine::evaluate_function": "backward", "Optimizer.step": "update"}
_COLLECTIVES = ("c10d::", "record_param_comms", "nccl:", "gloo:", "mpi:")


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Import an execution trace; every order keeps reads, writes, random numbers and collectives in its order."""
    roots = read_roots(model)
    imported = _Import(Roofline(options.flops, options.memory_bandwidth))
    for root in roots:
        imported.walk(root, "forward")
    if not imported.ops:
        raise FormatError(f"{model}: no op in the trace reads or makes a tensor; was the observer started?")
    return imported.graph(graph_name(re.sub(r"\.json(\.gz)?$", "", model)), model, note)


@dataclass
class _Storage:
    """Memory from its first tensor to its last: an address may hold several, one after the other."""

    device: str
    size: int
    producer: int | None
    place: tuple[int, int] | None = None  # the op and port through which it is read; None while the program holds it
    readers: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    is_replaced: bool = False  # another storage has its address later, so it was dropped before

    @property
    def is_unread(self) -> bool:
        """Whether nothing reads it after it was written last."""
        return max(self.readers, default=-1) <= max(self.writers, default=self.producer or 0)


class _Import:
    """One walk over the trace in the order in which nodes began."""

    def __init__(self, roofline: Roofline) -> None:
        self.roofline = roofline
        self.ops: list[dict[str, Any]] = []  # what `GraphBuilder.add_op` is told of each, but outputs and bytes held
        # by op: storages made, and then those written in place, with the index into its inputs of each
        self.outputs: list[list[tuple[_Storage, int]]] = []
        self.phases: list[str] = []
        self.storages: list[_Storage] = []
        self.current: dict[int, _Storage] = {}
        self.accesses = StorageAccesses()
        self.last: dict[str, int] = {}
        self.handed = 0

    def walk(self, node: TraceNode, phase: str) -> None:
        """Import the ops that ran in a node, which is an op or something around ops."""
        stack = [(node, phase)]
        while stack:
            node, phase = stack.pop()
            is_collective = node.name.startswith(_COLLECTIVES)
            if node.children and (not node.schema or is_composite(node.schema)):
                phase = next((late for start, late in _PHASES.items() if node.name.startswith(start)), phase)
                if not is_collective:
                    stack.extend((child, phase) for child in reversed(node.children))
                    continue
            if node.schema or node.is_kernel or is_collective:
                self._add(node, phase)

    def _add(self, node: TraceNode, phase: str) -> None:
        """Add an op, unless it makes and changes nothing and tells nothing: a view, or a question about settings."""
        is_trusted = bool(node.schema) and not node.name.startswith(_COLLECTIVES)
        written_at = written_arguments(node.schema) if is_trusted else None
        reads: dict[int, _Storage] = {}
        writes: set[int] = set()
        for place, value in enumerate(node.inputs):
            is_written = written_at is None or place in written_at
            for tensor in tensors_in([value]):
                if not tensor.elements or (not is_written and self._is_number(tensor)):
                    continue
                reads[tensor.storage] = self._given(tensor)
                if is_written:
                    writes.add(tensor.storage)
        made = {tensor.storage: tensor for tensor in node.outputs if tensor.elements and tensor.storage not in reads}
        if not made and not writes and (node.outputs or not reads):
            return
        op = len(self.ops)
        sizes, workspace = _inner_memory(node, made)
        control = self.accesses.add(op, [id(s) for s in reads.values()], {id(reads[at]) for at in writes})
        _, overload = _packet(node)
        is_random = overload is not None and torch.Tag.nondeterministic_seeded in overload.tags
        kinds = {"random": is_random, "collective": node.name.startswith(_COLLECTIVES)}
        ordered = [kind for kind, belongs in kinds.items() if belongs]  # they keep the order of the trace
        control.update(self.last[kind] for kind in ordered if kind in self.last)
        self.last.update(dict.fromkeys(ordered, op))
        inputs = [storage.place for storage in reads.values() if storage.place is not None]
        rewritten = [(reads[at], inputs.index(found)) for at in writes if (found := reads[at].place) is not None]
        for at, storage in reads.items():
            (storage.writers if at in writes else storage.readers).append(op)
        for port, (storage, _) in enumerate(rewritten, start=len(made)):
            storage.place = (op, port)
        outputs = [
            (self._new(at, _Storage(tensor.device, sizes[at], op, (op, port))), -1)
            for port, (at, tensor) in enumerate(made.items())
        ]
        self.handed += not made and not writes
        self.outputs.append(outputs + rewritten)
        self.phases.append(phase)
        self.ops.append(
            {
                "name": node.name.removeprefix("aten::"),
                "inputs": inputs,
                "control": sorted(control - {producer for producer, _ in inputs}),
                "runtime": _roofline_time(node, self.roofline, {**reads, **self.current}),
                "workspace": workspace,
                "once": bool(writes or ordered or not is_trusted),
            }
        )

    def _is_number(self, tensor: Tensor) -> bool:
        """Whether an argument is a number of Python that PyTorch made a tensor of: nothing ever made its storage."""
        if tensor.shape or tensor.device != "cpu" or tensor.elements > 1:
            return False
        held = self.current.get(tensor.storage)
        return held is None or held.size != tensor.item or held.producer is None

    def _given(self, tensor: Tensor) -> _Storage:
        """Return the storage of an argument; one that nothing made is the program's own."""
        storage = self.current.get(tensor.storage) or self._new(tensor.storage, _Storage(tensor.device, 0, None))
        if storage.producer is None and not tensor.is_expanded:
            storage.size = max(storage.size, tensor.extent)
        return storage

    def _new(self, at: int, storage: _Storage) -> _Storage:
        """Return a storage that begins at an address."""
        if at in self.current:
            self.current[at].is_replaced = True
        self.current[at] = storage
        self.storages.append(storage)
        return storage

    def graph(self, name: str, where: str, note: Callable[[str], None]) -> CostGraph:
        """Return the graph, and note the gaps of a trace."""
        bytes_on = Counter[str]()
        for storage in self.storages:
            bytes_on[storage.device] += storage.size
        device = bytes_on.most_common(1)[0][0]
        kept = [s for s in self.storages if s.producer is not None and s.is_unread and not s.is_replaced]
        residents = []
        given = (s for s in self.storages if s.producer is None and s.device == device)
        for number, storage in enumerate(given):
            readers, writers = tuple(storage.readers), tuple(storage.writers)
            first = min(readers + writers, default=-1)  # -1: the trace has views of it alone, so it is not counted
            residents.append(Resident(f"storage {number}", "input", storage.size, first, readers, writers))
        persistent = bytes_held(residents)
        builder = GraphBuilder(name, where)
        final = set(map(id, kept))
        for number, (op, outputs) in enumerate(zip(self.ops, self.outputs, strict=True)):
            builder.add_op(
                **op,
                outputs=[s.size if s.device == device else 0 for s, _ in outputs],
                aliases=[alias for _, alias in outputs],
                final=[id(s) in final and s.place == (number, port) for port, (s, _) in enumerate(outputs)],
                persistent=persistent[number],
            )
        held = format_bytes(sum(storage.size for storage in kept))
        note(
            f"{where}: a trace does not say when results are freed: each is freed after its last reader; "
            f"{len(kept):,} results without readers, {held}, are kept"
        )
        if others := sum(bytes_on.values()) - bytes_on[device]:
            note(f"{where}: the memory is that of {device}; {format_bytes(others)} on other devices are not counted")
        if self.handed:
            note(f"{where}: {self.handed:,} ops hand values to Python; what it did with them is not in the trace")
        return builder.build(Annotations(phases=tuple(self.phases), residents=tuple(residents)))


def _inner_memory(node: TraceNode, made: dict[int, Tensor]) -> tuple[dict[int, int], int]:
    """Return the bytes of each storage that an op made, and the most that it held beside them and its arguments."""
    given = {tensor.storage for tensor in node.tensors}
    spans: list[list[int]] = []
    current: dict[int, int] = {}
    last = 0
    for last, inner in enumerate(node.subtree()):
        taken = {tensor.storage for tensor in inner.tensors}
        for tensor in (*inner.tensors, *inner.outputs):
            at = tensor.storage
            if at in given or not tensor.elements or (at in taken and at not in current):
                continue
            if at not in taken and not inner.children and inner.schema:
                current[at] = len(spans)
                spans.append([last, last, 0])
            if at in current:
                span = spans[current[at]]
                span[1], span[2] = last, max(span[2], 0 if tensor.is_expanded else tensor.extent)
    sizes = {at: max(tensor.extent, spans[current[at]][2] if at in current else 0) for at, tensor in made.items()}
    returned = {current[at] for at in made if at in current}
    changes = [0] * (last + 2)
    for place, (start, end, size) in enumerate(spans):
        if place not in returned:
            changes[start] += size
            changes[end + 1] -= size
    return sizes, max(accumulate(changes))


@cache
def is_composite(schema: str) -> bool:
    """Whether an op is made of others alone, which autograd sees, so that an exported program has those instead."""
    name = schema.partition("(")[0]
    is_name = re.fullmatch(r"\w+::\w+(\.\w+)?", name, re.ASCII) is not None  # not so in a damaged trace
    return is_name and has_kernel(name) and has_kernel_for(name, "CompositeImplicitAutograd")


@cache
def written_arguments(schema: str) -> frozenset[int]:
    """Return the places of the arguments that an op writes, by the marks `Tensor(a!)` of its schema."""
    arguments = re.split(r",\s*(?![^(\[]*[)\]])", schema.partition("(")[2].rpartition(") ->")[0])
    places = [argument for argument in arguments if argument.strip() != "*"]
    return frozenset(place for place, argument in enumerate(places) if re.search(r"\([^)]*!", argument))


def _packet(node: TraceNode) -> tuple[Any, Any]:
    """Return the op as this PyTorch knows it, all overloads and the one that ran; None if it does not."""
    name, _, overload = node.schema.partition("(")[0].partition(".")
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space), base, None) if base else None
    return packet, getattr(packet, overload or "default", None)


def _roofline_time(node: TraceNode, roofline: Roofline, sizes: Mapping[int, Any]) -> float:
    """Return the time of an op by the roofline; where PyTorch counts no FLOPs, one per element it makes."""
    distinct = {(t.storage, t.offset, t.shape): t for t in (*node.tensors, *node.outputs)}.values()
    held = [sizes[t.storage].size if t.storage in sizes else t.extent for t in distinct]
    moved = sum(min(t.elements * t.item, size) for t, size in zip(distinct, held, strict=True))
    packet, _ = _packet(node)
    flops: float = sum(tensor.elements for tensor in node.outputs)
    if packet in flop_registry:
        # What another version of PyTorch wrote may not fit the arguments of this one.
        with suppress(TypeError, ValueError, IndexError, AssertionError, AttributeError, RuntimeError):
            flops = flop_registry[packet](*map(_on_meta, node.inputs), out_val=_on_meta(node.outputs[0]))
    return roofline.microseconds(flops, moved)


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(value.shape, device="meta")
    return [_on_meta(part) for part in value] if isinstance(value, list) else value
