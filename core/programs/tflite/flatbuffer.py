"""FlatBuffers that nobody vouches for: every offset is checked before it is followed.

The generated readers of the `tflite` package follow offsets wherever they lead. Here a field is found by its number in
the schema, and what lies outside the file, or outside the table that it is a field of, is an error. Offsets lead
forward alone, so none can lead in a circle; vectors that lie over each other are limited in what they add up to.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import FormatError

_MOST_OVERLAP = 4
"""How often the bytes of a file may be read as vectors; a file that shares shapes between tensors reads some twice."""


class FlatBuffer:
    """The bytes of a file."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self._readable = _MOST_OVERLAP * len(data)

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

    def span(self, position: int, width: int, what: str) -> tuple[int, int]:
        """Return where the elements of `width` bytes of the vector at a position begin, and how many there are."""
        count = self.number(position, "<I", what)
        if position + 4 + count * width > len(self.data):
            raise self.error(f"its {what} has {count:,} entries at byte {position:,} of {len(self.data):,}")
        self._readable -= count * width
        if self._readable < 0:
            raise self.error("its vectors lie over each other")
        return position + 4, count

    def error(self, reason: str) -> FormatError:
        """Return the error that says what is wrong."""
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

    def number(self, field: int, layout: str, default: int = 0) -> int:
        """Return a scalar field, by its `struct` layout."""
        place = self.place(field, struct.calcsize(layout))
        return default if place is None else self.buffer.number(place, layout, self.what)

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
        """Return the vector that a field names; an empty one if it is not there."""
        target = self.target(field)
        return (0, 0) if target is None else self.buffer.span(target, width, what)

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
