"""The nodes of an execution trace, schema 1.0 and 1.1, as `torch.profiler.ExecutionTraceObserver` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.errors import FormatError
from ...files.reading import read_json

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
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list):
            found.extend(tensors_in(value))
    return found


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
    inner = [
        given if isinstance(given, list) and len(given) == len(value) else [None] * len(value)
        for given in (shape, strides)
    ]
    return [_value(part, size, kind, step, depth + 1) for part, size, step in zip(value, *inner, strict=True)]


def _whole(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool) or number != value or not 0 <= number < 2**63:
        raise ValueError(f"{value} is no whole number that counts something")
    return number
