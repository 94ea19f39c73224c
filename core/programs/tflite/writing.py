"""A TFLite file with another list of operators, whose old bytes all stay as they are.

A FlatBuffer's offsets lead forward alone. So the new part (the root, its subgraphs, their lists) is put before the old
file, which follows from byte 0 to its end: weights, options, quantisation and whatever else is not the order are the
bytes that they were. An offset is here, as in `flatbuffers.Builder`, the bytes from a place to the end of the new part:
a position of the old file is negative.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tflite
from flatbuffers import Builder

from ...base.errors import FormatError
from .program import IDENTIFIER, OFFLINE_PLAN, FlatBuffer, Subgraph, Table, TfliteProgram

_OFFSET = 0  # marks a field that is an offset; other fields have their width in bytes
_MODEL = (4, *[_OFFSET] * 7)
_SUBGRAPH = (*[_OFFSET] * 5, 4)
_TENSOR = (_OFFSET, 1, 4, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 1, _OFFSET)
_OPERATOR = (4, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 1, _OFFSET, _OFFSET, 8, 8, 1, _OFFSET, 4)
_ALIGNMENT = 64  # of the old file in the new one: whatever lay aligned in it still does
_DATA_ALIGNMENT = 16
Fields = Mapping[int, bytes | int]  # of a table, by number: scalars as their bytes, and offsets


def _place(new: Builder, data: bytes) -> None:
    """Put bytes before the present ones."""
    new.head -= len(data)
    new.Bytes[new.head : new.head + len(data)] = data


def _vector(new: Builder, offsets: Sequence[int]) -> int:
    """Return a new vector of offsets."""
    new.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        new.PrependUOffsetTRelative(offset)
    return int(new.EndVector())


def _integers(new: Builder, values: Sequence[int]) -> int:
    """Return a new vector of 32-bit whole numbers."""
    return int(new.CreateNumpyVector(np.array(values, "<i4")))


def _table(new: Builder, fields: Fields) -> int:
    """Return a new table."""
    new.StartObject(max(fields, default=-1) + 1)
    for number, value in fields.items():
        if isinstance(value, bytes):
            new.Prep(len(value), 0)
            _place(new, value)
        else:
            new.PrependUOffsetTRelative(value)
        new.Slot(number)
    return int(new.EndObject())


def _copied(new: Builder, table: Table, widths: Sequence[int], changes: Fields) -> int:
    """Return a new table with some fields of an old one changed."""
    fields: dict[int, bytes | int] = {}
    for number, offset in enumerate(table.fields):
        if not offset:
            continue
        if number >= len(widths):
            raise FormatError(f"{table.buffer.where}: {table.what} has a field {number}, which is not known here")
        width = widths[number]
        place = table.place(number, width) if width else table.target(number)
        assert place is not None
        fields[number] = table.buffer.data[place : place + width] or -place
    return _table(new, {**fields, **changes})


@dataclass(frozen=True)
class Run:
    """A run of an operator: its number in the old file, and the tensors that it reads and writes in the new one."""

    operator: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Edit:
    """The changes of a subgraph."""

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
    new = Builder(1024)
    new.Prep(_ALIGNMENT, 0)
    made = _edited_subgraph(new, tables[subgraph], program, edit, subgraph)
    subgraphs = [made if n == subgraph else -table.position for n, table in enumerate(tables)]
    changes: dict[int, bytes | int] = {2: _vector(new, subgraphs if edit.given is None else [made])}
    changes |= _metadata(new, model, edit.offsets)
    new.Finish(_copied(new, model, _MODEL, changes), IDENTIFIER)
    return bytes(new.Output()) + program.data


def _edited_subgraph(new: Builder, table: Table, program: TfliteProgram, edit: Edit, number: int) -> int:
    """Return the table of the edited subgraph."""
    subgraph = program.subgraphs[number]
    changes: dict[int, bytes | int] = {3: _vector(new, [_run(new, table.buffer, subgraph, run) for run in edit.runs])}
    own = subgraph.tensors
    if edit.copies or edit.blocks or edit.given is not None:
        named = {tensor for run in edit.runs for tensor in (*run.inputs, *run.outputs)}
        named.update(tensor for run in edit.runs for tensor in subgraph.operators[run.operator].intermediates)
        empty = 0 if edit.given is None else _block(new, 0)  # for tensors that no run names, where it stands alone
        tensors = [empty if empty and n not in named else -tensor.position for n, tensor in enumerate(own)]
        for original, name in edit.copies:
            old = table.buffer.table_at(own[original].position, f"tensor {original}")
            tensors.append(_copied(new, old, _TENSOR, {3: new.CreateString(name)}))
        tensors += [_block(new, size) for size in edit.blocks]
        changes[0] = _vector(new, tensors)
    if edit.given is not None:
        first = len(own) + len(edit.copies)
        blocks = range(first, first + len(edit.blocks))
        changes[1] = _integers(new, [*edit.given, *blocks])
        changes[2] = _integers(new, [*edit.taken, *blocks])
    return _copied(new, table, _SUBGRAPH, changes)


def _block(new: Builder, size: int) -> int:
    """Return a tensor of some bytes."""
    return _table(new, {0: _integers(new, [size]), 1: struct.pack("<b", tflite.TensorType.INT8), 2: bytes(4)})


def _run(new: Builder, buffer: FlatBuffer, subgraph: Subgraph, run: Run) -> int:
    """Return an operator as it is, if it has its old tensors, or else with its new ones."""
    old = subgraph.operators[run.operator]
    if (run.inputs, run.outputs) == (old.inputs, old.outputs):
        return -old.position
    table = buffer.table_at(old.position, f"operator {run.operator}")
    return _copied(new, table, _OPERATOR, {1: _integers(new, run.inputs), 2: _integers(new, run.outputs)})


def _metadata(new: Builder, model: Table, offsets: Sequence[int] | None) -> Fields:
    """Return the model's lists of buffers and metadata with an offline plan of version 1, for subgraph 0 on."""
    entries = model.tables(6, "metadata entry")
    kept = [-entry.position for entry in entries if entry.text(0) != OFFLINE_PLAN]
    if offsets is None:
        return {6: _vector(new, kept)} if len(kept) < len(entries) else {}
    data = struct.pack(f"<{3 + len(offsets)}i", 1, 0, len(offsets), *offsets)
    new.StartVector(1, len(data), _DATA_ALIGNMENT)
    _place(new, data)
    plan = _table(new, {0: int(new.EndVector())})
    buffers = [-table.position for table in model.tables(4, "buffer")]
    entry = _table(new, {0: new.CreateString(OFFLINE_PLAN), 1: struct.pack("<I", len(buffers))})
    return {4: _vector(new, [*buffers, plan]), 6: _vector(new, [*kept, entry])}
