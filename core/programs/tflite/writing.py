"""A TFLite file with another list of operators, whose old bytes all stay as they are.

A FlatBuffer's offsets lead forward alone. So what is new (the root, its subgraphs, their lists) is put before the old
file, which follows from byte 0 to its end: weights, options, quantisation and whatever else is not the order are the
bytes that they were.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tflite

from ...base.errors import FormatError
from .flatbuffer import FlatBuffer, Table
from .program import IDENTIFIER, OFFLINE_PLAN, Subgraph, TfliteProgram

_OFFSET = 0
"""Marks a field that is an offset; other fields have their width in bytes."""

_MODEL = (4, *[_OFFSET] * 7)
_SUBGRAPH = (*[_OFFSET] * 5, 4)
_TENSOR = (_OFFSET, 1, 4, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 1, _OFFSET)
_OPERATOR = (4, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 8, 8, 1, _OFFSET, 4)
_ALIGNMENT = 64
"""Of the old file in the new one: whatever lay aligned in it still does."""

_DATA_ALIGNMENT = 16


@dataclass(frozen=True)
class Old:
    """Something at a position of the old file."""

    position: int


@dataclass(frozen=True)
class Numbers:
    """A new vector of scalars, or a text."""

    data: bytes
    count: int
    alignment: int = 4


@dataclass(frozen=True)
class Objects:
    """A new vector of offsets."""

    items: Sequence[Node]


@dataclass(frozen=True)
class NewTable:
    """A new table: scalars as their bytes, or what an offset leads to, by the number of the field."""

    fields: Mapping[int, bytes | Node]


Node = Old | Numbers | Objects | NewTable


def integers(values: Sequence[int]) -> Numbers:
    """Return a vector of 32-bit whole numbers."""
    return Numbers(struct.pack(f"<{len(values)}i", *values), len(values))


def text(value: str) -> Numbers:
    """Return a text, which ends with a zero byte that is not counted."""
    data = value.encode()
    return Numbers(data + b"\0", len(data))


def copied(table: Table, widths: Sequence[int], changes: Mapping[int, bytes | Node]) -> NewTable:
    """Return a table with some fields changed."""
    fields: dict[int, bytes | Node] = {}
    for number, offset in enumerate(table.fields):
        if not offset:
            continue
        if number >= len(widths):
            raise FormatError(f"{table.buffer.where}: {table.what} has a field {number}, which is not known here")
        width = widths[number]
        if width == _OFFSET:
            target = table.target(number)
            assert target is not None
            fields[number] = Old(target)
        else:
            place = table.place(number, width)
            assert place is not None
            fields[number] = table.buffer.data[place : place + width]
    return NewTable({**fields, **changes})


@dataclass
class Layout:
    """Places new things before the old file, each before what it leads to."""

    pieces: list[tuple[int, Node]] = field(default_factory=list)
    end: int = 8

    def add(self, root: Node) -> None:
        """Place a thing, and then all that it leads to."""
        waiting, seen = deque([root]), set[int]()
        while waiting:
            node = waiting.popleft()
            if isinstance(node, Old) or id(node) in seen:
                continue
            seen.add(id(node))
            position = self._place(node)
            self.pieces.append((position, node))
            waiting.extend(_children(node))

    def _place(self, node: Numbers | Objects | NewTable) -> int:
        """Return where a thing begins: a table behind its list of fields, a vector at its count."""
        if isinstance(node, NewTable):
            vtable = self.end + self.end % 2
            position = vtable + 4 + 2 * (max(node.fields, default=-1) + 1)
            position += (4 - position) % 8  # so that the fields, the widest first, are aligned behind four bytes
            self.end = position + 4 + sum(_width(value) for value in node.fields.values())
            return position
        alignment, size = (node.alignment, len(node.data)) if isinstance(node, Numbers) else (4, 4 * len(node.items))
        position = self.end + (-self.end - 4) % alignment
        self.end = position + 4 + size
        return position

    def write(self, root: Node, old: bytes) -> bytes:
        """Return the new file."""
        base = self.end + (-self.end) % _ALIGNMENT
        data = bytearray(base)
        places = {id(node): position for position, node in self.pieces}

        def link(position: int, node: Node) -> None:
            target = base + node.position if isinstance(node, Old) else places[id(node)]
            struct.pack_into("<I", data, position, target - position)

        link(0, root)
        data[4:8] = IDENTIFIER
        for position, node in self.pieces:
            if isinstance(node, Numbers):
                struct.pack_into("<I", data, position, node.count)
                data[position + 4 : position + 4 + len(node.data)] = node.data
            elif isinstance(node, Objects):
                struct.pack_into("<I", data, position, len(node.items))
                for place, item in enumerate(node.items):
                    link(position + 4 + 4 * place, item)
            elif isinstance(node, NewTable):
                _write_table(data, position, node, link)
        return bytes(data) + old


def _children(node: Node) -> Sequence[Node]:
    if isinstance(node, Objects):
        return node.items
    if isinstance(node, NewTable):
        return [value for value in node.fields.values() if not isinstance(value, bytes)]
    return ()


def _width(value: bytes | Node) -> int:
    return len(value) if isinstance(value, bytes) else 4


def _write_table(data: bytearray, position: int, table: NewTable, link: Callable[[int, Node], None]) -> None:
    """Write a table behind its list of fields, its widest fields first."""
    count = max(table.fields, default=-1) + 1
    vtable = position - 4 - 2 * count
    struct.pack_into("<i", data, position, position - vtable)
    place = position + 4
    for number in sorted(table.fields, key=lambda key: (-_width(table.fields[key]), key)):
        value = table.fields[number]
        struct.pack_into("<H", data, vtable + 4 + 2 * number, place - position)
        if isinstance(value, bytes):
            data[place : place + len(value)] = value
        else:
            link(place, value)
        place += _width(value)
    struct.pack_into("<2H", data, vtable, 4 + 2 * count, place - position)


@dataclass(frozen=True)
class Run:
    """A run of an operator: its number in the old file, and the tensors that it reads and writes in the new one."""

    operator: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Edit:
    """What of a subgraph becomes other."""

    runs: Sequence[Run]  # operators in their new order, perhaps repeated
    # tensors that are there once more, behind its own, with their new names
    copies: Sequence[tuple[int, str]] = ()
    # bytes of further tensors that are inputs and outputs, so that they live throughout
    blocks: Sequence[int] = ()
    # per tensor of the new file; None writes no `OfflineMemoryAllocation`
    offsets: Sequence[int] | None = None
    # inputs and outputs of the subgraph, which then is the only one of the new file; other tensors that no run names
    # take nothing. None keeps all
    given: Sequence[int] | None = None
    taken: Sequence[int] = ()


def edited(program: TfliteProgram, edit: Edit, subgraph: int = 0) -> bytes:
    """Return a program's file with one subgraph edited."""
    model = FlatBuffer(program.data, program.path).root()
    tables = model.tables(2, "subgraph")
    new = _edited_subgraph(tables[subgraph], program, edit, subgraph)
    subgraphs = [new if n == subgraph else Old(table.position) for n, table in enumerate(tables)]
    changes: dict[int, bytes | Node] = {2: Objects(subgraphs if edit.given is None else [new])}
    changes |= _metadata(model, edit.offsets)
    root = copied(model, _MODEL, changes)
    layout = Layout()
    layout.add(root)
    return layout.write(root, program.data)


def _edited_subgraph(table: Table, program: TfliteProgram, edit: Edit, number: int) -> NewTable:
    """Return the table of the edited subgraph."""
    operators = [_run(table.buffer, program, number, run) for run in edit.runs]
    changes: dict[int, bytes | Node] = {3: Objects(operators)}
    own = program.subgraphs[number].tensors
    if edit.copies or edit.blocks or edit.given is not None:
        tensors = _own_tensors(program.subgraphs[number], edit)
        for original, name in edit.copies:
            old = table.buffer.table_at(own[original].position, f"tensor {original}")
            tensors.append(copied(old, _TENSOR, {3: text(name)}))
        for size in edit.blocks:
            tensors.append(_block(size))
        changes[0] = Objects(tensors)
    if edit.given is not None:
        blocks = range(len(own) + len(edit.copies), len(own) + len(edit.copies) + len(edit.blocks))
        changes |= {1: integers([*edit.given, *blocks]), 2: integers([*edit.taken, *blocks])}
    return copied(table, _SUBGRAPH, changes)


def _own_tensors(subgraph: Subgraph, edit: Edit) -> list[Node]:
    """Return the tensors of a subgraph; where it stands alone, those that no run names are empty."""
    if edit.given is None:
        return [Old(tensor.position) for tensor in subgraph.tensors]
    named = {tensor for run in edit.runs for tensor in (*run.inputs, *run.outputs)}
    named.update(tensor for run in edit.runs for tensor in subgraph.operators[run.operator].intermediates)
    empty = _block(0)
    return [Old(tensor.position) if n in named else empty for n, tensor in enumerate(subgraph.tensors)]


def _block(size: int) -> NewTable:
    """Return a tensor of some bytes."""
    return NewTable({0: integers([size]), 1: struct.pack("<b", tflite.TensorType.INT8), 2: bytes(4)})


def _run(buffer: FlatBuffer, program: TfliteProgram, subgraph: int, run: Run) -> Node:
    """Return an operator as it is, if it has its old tensors, or else with its new ones."""
    old = program.subgraphs[subgraph].operators[run.operator]
    if (run.inputs, run.outputs) == (old.inputs, old.outputs):
        return Old(old.position)
    table = buffer.table_at(old.position, f"operator {run.operator}")
    return copied(table, _OPERATOR, {1: integers(run.inputs), 2: integers(run.outputs)})


def _metadata(model: Table, offsets: Sequence[int] | None) -> dict[int, bytes | Node]:
    """Return the model's lists of buffers and metadata with an offline plan of version 1, for subgraph 0 on."""
    entries = model.tables(6, "metadata entry")
    kept: list[Node] = [Old(entry.position) for entry in entries if entry.text(0) != OFFLINE_PLAN]
    if offsets is None:
        return {6: Objects(kept)} if len(kept) < len(entries) else {}
    data = struct.pack(f"<{3 + len(offsets)}i", 1, 0, len(offsets), *offsets)
    plan = NewTable({0: Numbers(data, len(data), _DATA_ALIGNMENT)})
    buffers: list[Node] = [Old(table.position) for table in model.tables(4, "buffer")]
    entry = NewTable({0: text(OFFLINE_PLAN), 1: struct.pack("<I", len(buffers))})
    return {4: Objects([*buffers, plan]), 6: Objects([*kept, entry])}
