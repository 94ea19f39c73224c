"""A TFLite file in the view of TensorFlow Lite for Microcontrollers: subgraphs, tensors, operators.

The generated readers of the `tflite` package follow offsets wherever they lead. Here every offset is checked before it
is followed. Offsets lead forward alone, so none can lead in a circle.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import networkx as nx
import tflite

from ...base.errors import FormatError, UsageError
from ...files.reading import read_bytes

_MOST_OVERLAP = 4
"""How often the bytes of a file may be read as vectors; a file that shares shapes between tensors reads some twice."""


class FlatBuffer:
    """The bytes of a file."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where = data, where
        self.readable = _MOST_OVERLAP * len(data)

    def root(self) -> Table:
        """Return the table that the file begins with."""
        return self.table_at(self.follow(0, "root table"), "root table")

    def number(self, position: int, layout: str, what: str) -> int:
        """Return the whole number at a position, by its `struct` layout."""
        if position < 0 or position + struct.calcsize(layout) > len(self.data):
            raise self.error(f"its {what} lies at byte {position:,} of {len(self.data):,}")
        return int(struct.unpack_from(layout, self.data, position)[0])

    def follow(self, position: int, what: str) -> int:
        """Return where the offset at a position leads."""
        return position + self.number(position, "<I", what)

    def table_at(self, position: int, what: str) -> Table:
        """Return the table at a position, whose fields lie within the file."""
        vtable = position - self.number(position, "<i", what)
        length, size = (self.number(vtable + 2 * place, "<H", what) for place in (0, 1))
        if length < 4 or length % 2 or vtable + length > len(self.data):
            raise self.error(f"the field list of its {what} has {length} bytes at byte {vtable:,}")
        if size < 4 or position + size > len(self.data):
            raise self.error(f"its {what} has {size} bytes at byte {position:,} of {len(self.data):,}")
        fields = struct.unpack_from(f"<{length // 2 - 2}H", self.data, vtable + 4)
        return Table(self, position, size, fields, what)

    def error(self, reason: str) -> FormatError:
        """Return the error with its reason."""
        return FormatError(f"{self.where}: not a TFLite model, or truncated: {reason}")


@dataclass(frozen=True)
class Table:
    """A table: its fields by their numbers in the schema."""

    buffer: FlatBuffer
    position: int
    size: int
    fields: tuple[int, ...]  # by number: offset from the table's position; 0 if it is not there
    what: str  # what errors call it

    def place(self, field: int, width: int = 4) -> int | None:
        """Return where a field of `width` bytes lies, or None if it is not there."""
        offset = self.fields[field] if field < len(self.fields) else 0
        if not offset:
            return None
        if offset < 4 or offset + width > self.size:
            raise self.buffer.error(f"field {field} of its {self.what} lies outside of it")
        return self.position + offset

    def number(self, field: int, layout: str) -> int:
        """Return a scalar field, by its `struct` layout; 0 if it is not there."""
        place = self.place(field, struct.calcsize(layout))
        return 0 if place is None else self.buffer.number(place, layout, self.what)

    def target(self, field: int) -> int | None:
        """Return where the offset in a field leads, or None if it is not there."""
        place = self.place(field)
        if place is None:
            return None
        target = self.buffer.follow(place, self.what)
        self.buffer.number(target, "<I", f"field {field} of {self.what}")
        return target

    def table(self, field: int, what: str) -> Table | None:
        """Return the table that a field names, or None."""
        target = self.target(field)
        return None if target is None else self.buffer.table_at(target, what)

    def span(self, field: int, width: int, what: str) -> tuple[int, int]:
        """Return where the elements of `width` bytes of a vector begin, and how many; none if it is not there."""
        target, buffer = self.target(field), self.buffer
        if target is None:
            return 0, 0
        count = buffer.number(target, "<I", what)
        if target + 4 + count * width > len(buffer.data):
            raise buffer.error(f"its {what} has {count:,} entries at byte {target:,} of {len(buffer.data):,}")
        buffer.readable -= count * width
        if buffer.readable < 0:
            raise buffer.error("its vectors lie over each other")
        return target + 4, count

    def numbers(self, field: int, what: str) -> tuple[int, ...]:
        """Return a vector of 32-bit whole numbers."""
        start, count = self.span(field, 4, what)
        return struct.unpack_from(f"<{count}i", self.buffer.data, start)

    def tables(self, field: int, what: str) -> Sequence[Table]:
        """Return a vector of tables."""
        start, count = self.span(field, 4, f"list of {what}s")
        places = range(start, start + 4 * count, 4)
        return [self.buffer.table_at(self.buffer.follow(place, what), f"{what} {n}") for n, place in enumerate(places)]

    def text(self, field: int) -> str:
        """Return a text, in which bytes that are no UTF-8 are replaced."""
        start, count = self.span(field, 1, f"text in {self.what}")
        return self.buffer.data[start : start + count].decode("utf-8", errors="replace")


IDENTIFIER = b"TFL3"
OFFLINE_PLAN = "OfflineMemoryAllocation"
ONLINE = -1  # the offset of a tensor for which the runtime itself finds a place
_COMPRESSION = "COMPRESSION_METADATA"
_MOST_DIMENSIONS = 64
_KINDS = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
_TYPES = {value: name for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
_BYTES = {
    **dict.fromkeys(("BOOL", "INT8", "UINT8", "INT4"), 1),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 2),
    **dict.fromkeys(("FLOAT32", "INT32", "UINT32", "RESOURCE"), 4),
    **dict.fromkeys(("FLOAT64", "INT64", "UINT64", "COMPLEX64"), 8),
    "COMPLEX128": 16,
}
"""Bytes of an element, by its type in the schema."""

_CALLS = {"IF": (0, 1), "WHILE": (0, 1), "CALL_ONCE": (0,), "CALL": (0,)}
"""The fields of an operator's options that name subgraphs, by its kind."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a subgraph."""

    # as the file has them; `kind` is a name of `tflite.TensorType`
    name: str
    kind: str
    shape: tuple[int, ...]
    bytes: int  # in memory
    is_constant: bool  # stays in the file and takes no memory
    is_variable: bool  # keeps its values from run to run
    position: int  # of its table in the file


@dataclass(frozen=True)
class Operator:
    """An operator of a subgraph."""

    kind: str  # such as `CONV_2D`, or the name of a custom operator
    is_custom: bool
    # tensors by their index in the subgraph; -1 is an optional input left out
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: tuple[int, ...]  # subgraphs that it runs
    intermediates: tuple[int, ...]  # tensors that quantise what an LSTM computes inside
    position: int  # of its table in the file

    @property
    def reads(self) -> tuple[int, ...]:
        """Inputs without those left out."""
        return tuple(tensor for tensor in self.inputs if tensor >= 0)


@dataclass(frozen=True)
class Subgraph:
    """A subgraph: its tensors, operators in the order they run, and which tensors the caller gives and gets."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class TfliteProgram:
    """A file, read and checked; the first subgraph is the model."""

    path: str
    data: bytes = field(repr=False)
    subgraphs: tuple[Subgraph, ...]  # at least one
    # arena offset per tensor of all subgraphs, from the metadata `OfflineMemoryAllocation`; empty without
    offsets: tuple[int, ...] = ()

    @property
    def main(self) -> Subgraph:
        """The subgraph that is the model."""
        return self.subgraphs[0]

    @cached_property
    def names(self) -> list[str]:
        """A unique name per operator: its first output's, without names that a converter merged, or `KIND_INDEX`."""
        full = [
            (self.main.tensors[operator.outputs[0]].name if operator.outputs else "") or f"{operator.kind}_{index}"
            for index, operator in enumerate(self.main.operators)
        ]
        short = [name.partition(";")[0] or name for name in full]
        times = Counter(short)
        chosen = [brief if times[brief] == 1 else name for brief, name in zip(short, full, strict=True)]
        seen: set[str] = set()
        for index, name in enumerate(chosen):
            if name in seen:
                chosen[index] = f"{name}#{index}"
            seen.add(chosen[index])
        return chosen


def load_program(path: str) -> TfliteProgram:
    """Read a TFLite file."""
    return parse_program(read_bytes(path), path)


def parse_program(data: bytes, path: str) -> TfliteProgram:
    """Read a TFLite model from its bytes; `path` is its name in errors."""
    if data[4:8] != IDENTIFIER:
        raise FormatError(f"{path}: not a TFLite model: bytes 4 to 8 are {data[4:8]!r}, not {IDENTIFIER!r}")
    model = FlatBuffer(data, path).root()
    if (version := model.number(0, "<I")) != 3:
        raise FormatError(f"{path}: TFLite schema version {version}; only version 3 is known")
    buffers = []
    for number, table in enumerate(model.tables(4, "buffer")):
        if table.number(1, "<Q") > 1:
            raise FormatError(f"{path}: buffer {number} stands behind the FlatBuffer, as in files above 2 GiB")
        buffers.append(table.span(0, 1, f"data of buffer {number}")[1])
    metadata = {entry.text(0): entry.number(1, "<I") for entry in model.tables(6, "metadata entry")}
    codes = []
    for table in model.tables(1, "operator code"):
        code = max(table.number(3, "<i"), table.number(0, "<b"))
        is_named = code == tflite.BuiltinOperator.CUSTOM
        kind = table.text(1) or "CUSTOM" if is_named else _KINDS.get(code, f"BUILTIN_{code}")
        codes.append((kind, is_named or code not in _KINDS))
    reader = _Reader(path, tuple(codes), tuple(buffers), _COMPRESSION in metadata)
    subgraphs = tuple(reader.subgraph(table) for table in model.tables(2, "subgraph"))
    if not subgraphs:
        raise FormatError(f"{path}: the model has no subgraph")
    if not subgraphs[0].operators:
        raise UsageError(f"{path}: the model has no operators; there is nothing to order")
    _check_calls(path, subgraphs)
    return TfliteProgram(path, data, subgraphs, _offline_plan(path, model, metadata, subgraphs))


@dataclass
class _Reader:
    """Reads subgraphs, given the model's common tables."""

    path: str
    codes: tuple[tuple[str, bool], ...]
    buffers: tuple[int, ...]
    is_compressed: bool

    def subgraph(self, table: Table) -> Subgraph:
        """Read one, and check its fields against each other."""
        tensors = tuple(self._tensor(entry) for entry in table.tables(0, "tensor"))
        subgraph = Subgraph(
            tensors,
            tuple(self._operator(entry, len(tensors)) for entry in table.tables(3, "operator")),
            *(self._tensors_of(table, field, len(tensors), 0) for field in (1, 2)),
        )
        self._check_order(subgraph, table.what)
        # Handles of resources take nothing: the runtime keeps them with the operator.
        handles = {n for operator in subgraph.operators if operator.kind == "VAR_HANDLE" for n in operator.outputs}
        tensors = tuple(replace(tensor, bytes=0) if n in handles else tensor for n, tensor in enumerate(tensors))
        return replace(subgraph, tensors=tensors)

    def _tensor(self, table: Table) -> Tensor:
        name = table.text(3)
        label = f"{table.what} '{name}'" if name else table.what
        number = table.number(1, "<b")
        kind = _TYPES.get(number)
        if kind is None:
            raise FormatError(f"{self.path}: {label} is of the unknown type {number}")
        shape = table.numbers(0, f"shape of {label}")
        if len(shape) > _MOST_DIMENSIONS:
            raise FormatError(f"{self.path}: {label} has {len(shape)} dimensions")
        if min(shape, default=0) < 0:
            raise FormatError(f"{self.path}: {label} has the negative shape {list(shape)}")
        at = table.number(2, "<I")
        if at >= len(self.buffers):
            raise FormatError(f"{self.path}: {label} is in buffer {at} of {len(self.buffers)}")
        held = self.buffers[at]
        if kind not in _BYTES and not held:
            raise FormatError(f"{self.path}: {label} is of type {kind}, whose size in memory is not known")
        size = math.prod(shape) * _BYTES.get(kind, 0)
        least = (size + 1) // 2 if kind == "INT4" else size
        if held and held < least and not self.is_compressed and table.place(6) is None:
            raise FormatError(f"{self.path}: {label} has {held:,} bytes of data; its shape and type take {least:,}")
        return Tensor(name, kind, shape, size, held > 0, bool(table.number(5, "<B")), table.position)

    def _operator(self, table: Table, tensors: int) -> Operator:
        code = table.number(0, "<I")
        if code >= len(self.codes):
            raise FormatError(f"{self.path}: {table.what} has the code {code} of {len(self.codes)}")
        if table.number(9, "<Q") > 1:
            raise FormatError(f"{self.path}: the options of {table.what} stand behind the FlatBuffer")
        kind, is_custom = self.codes[code]
        inputs = self._tensors_of(table, 1, tensors, -1)
        outputs = self._tensors_of(table, 2, tensors, 0)
        intermediates = self._tensors_of(table, 8, tensors, 0)
        options = None if is_custom or kind not in _CALLS else table.table(4, f"options of {table.what}")
        calls = tuple(options.number(number, "<i") for number in _CALLS[kind]) if options else ()
        return Operator(kind, is_custom, inputs, outputs, calls, intermediates, table.position)

    def _tensors_of(self, table: Table, field: int, tensors: int, least: int) -> tuple[int, ...]:
        found = table.numbers(field, f"tensors of {table.what}")
        for tensor in found:
            if not least <= tensor < tensors:
                raise FormatError(f"{self.path}: {table.what} names tensor {tensor} of {tensors}")
        return found

    def _check_order(self, subgraph: Subgraph, what: str) -> None:
        """Check that every tensor is written once, by one operator, and before it is read."""
        writer = {tensor: at for at, operator in enumerate(subgraph.operators) for tensor in operator.outputs}
        written: set[int] = set()
        given = {*subgraph.inputs, *(n for n, tensor in enumerate(subgraph.tensors) if tensor.is_constant)}
        for at, operator in enumerate(subgraph.operators):
            for tensor in operator.reads:
                if writer.get(tensor, -1) >= at:
                    raise FormatError(
                        f"{self.path}: operator {at} ({operator.kind}) of {what} reads tensor {tensor}, which operator "
                        f"{writer[tensor]} writes later: a cycle, or no order in which it can run"
                    )
            for tensor in operator.outputs:
                if tensor in written or tensor in given or subgraph.tensors[tensor].is_variable:
                    raise FormatError(
                        f"{self.path}: operator {at} ({operator.kind}) of {what} writes tensor {tensor}, "
                        "which is there already"
                    )
                written.add(tensor)


def _check_calls(path: str, subgraphs: tuple[Subgraph, ...]) -> None:
    """Check that subgraphs call subgraphs that are there, and not themselves through others."""
    calls = [(n, called, o.kind) for n, s in enumerate(subgraphs) for o in s.operators for called in o.calls]
    for _, called, kind in calls:
        if not 0 <= called < len(subgraphs):
            raise FormatError(f"{path}: a {kind} runs subgraph {called} of {len(subgraphs)}")
    graph = nx.DiGraph((n, called) for n, called, _ in calls)
    for n, called, kind in sorted(calls, key=lambda call: call[1]):
        if nx.has_path(graph, called, n):
            raise FormatError(f"{path}: subgraph {called} runs itself, through {kind}: a cycle")


def _offline_plan(path: str, model: Table, metadata: dict[str, int], subgraphs: Sequence[Subgraph]) -> tuple[int, ...]:
    """Return the offsets of an offline plan: version, subgraph, count, then an offset per tensor of all subgraphs."""
    if OFFLINE_PLAN not in metadata:
        return ()
    buffers = model.tables(4, "buffer")
    at = metadata[OFFLINE_PLAN]
    if at >= len(buffers):
        raise FormatError(f"{path}: the metadata {OFFLINE_PLAN} is in buffer {at} of {len(buffers)}")
    start, count = buffers[at].span(0, 1, OFFLINE_PLAN)
    plan = struct.unpack_from(f"<{count // 4}i", model.buffer.data, start)
    tensors = sum(len(subgraph.tensors) for subgraph in subgraphs)
    if plan[2:3] != (tensors,) or len(plan) < 3 + tensors:
        raise FormatError(f"{path}: the metadata {OFFLINE_PLAN} has no offset for each of the {tensors} tensors")
    offsets = plan[3 : 3 + tensors]
    if min(offsets, default=0) < ONLINE:
        raise FormatError(f"{path}: the metadata {OFFLINE_PLAN} has the negative offset {min(offsets)}")
    return offsets
