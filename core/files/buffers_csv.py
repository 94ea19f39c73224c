"""Buffers with lifetimes as a CSV file, in the columns of minimalloc."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..addresses.packing import Lifetimes
from ..base.arrays import IntArray
from ..base.errors import FormatError, UsageError
from .reading import read_bytes

COLUMNS = ("id", "lower", "upper", "size", "alignment", "offset")
NEEDED = 4


@dataclass(frozen=True, eq=False)
class Buffers:
    """Named buffers with lifetimes, and the offsets that they came with, shape `(buffers,)`, if any."""

    ids: tuple[str, ...]
    lifetimes: Lifetimes
    offsets: IntArray | None = None


def read_buffers(path: str | Path) -> Buffers:
    """Read buffers: a line of column names, then a line per buffer; gzip is recognised."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path}: not a CSV file of buffers: {error}") from error
    columns = [name.strip() for name in lines[0]] if lines else []
    if not set(COLUMNS[:NEEDED]).issubset(columns):
        raise FormatError(f"{path}: the first line must name the columns {', '.join(COLUMNS[:NEEDED])}")
    for name in columns:
        if name not in COLUMNS or columns.count(name) > 1:
            what = "is there twice" if name in COLUMNS else f"is not known; known are {', '.join(COLUMNS)}"
            raise FormatError(f"{path}: the column '{name[:80]}' {what}")
    rows = [(number, line) for number, line in enumerate(lines[1:], start=2) if line]
    for number, line in rows:
        if len(line) != len(columns):
            raise FormatError(f"{path}: line {number} has {len(line)} values for {len(columns)} columns")
    table = {name: [(number, line[at].strip()) for number, line in rows] for at, name in enumerate(columns)}
    names = [f"line {number}: it" for number, _ in table["id"]]
    ids = tuple(text for _, text in table.pop("id"))
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise FormatError(f"{path}: the id '{twice[:80]}' is there twice")
    numbers = {name: np.array([_whole(*cell, name, path) for cell in cells]) for name, cells in table.items()}
    offsets = numbers.pop("offset", None)
    try:
        lifetimes = Lifetimes.of(**{name: column.astype(np.int64) for name, column in numbers.items()}, names=names)
    except (UsageError, OverflowError) as error:
        raise FormatError(f"{path}: {error}") from error
    return Buffers(ids, lifetimes, offsets)


def _whole(line: int, text: str, name: str, path: str | Path) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise FormatError(f"{path}: line {line} has the {name} '{text[:80]}', which is no whole number") from error
    if not -(2**62) <= value <= 2**62:
        raise FormatError(f"{path}: line {line} has the {name} {text[:80]}, which is out of range")
    return value


def buffers_text(buffers: Buffers, offsets: IntArray) -> str:
    """Return a CSV file of buffers with these offsets; the alignment is there where one is not 1."""
    lifetimes = buffers.lifetimes
    columns: dict[str, Any] = {"id": buffers.ids}
    columns |= {name: getattr(lifetimes, name).tolist() for name in ("lower", "upper", "size")}
    if np.any(lifetimes.alignment != 1):
        columns["alignment"] = lifetimes.alignment.tolist()
    columns["offset"] = offsets.tolist()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def header_text(name: str, sizes: Mapping[str, int], offsets: Iterable[tuple[str, int]]) -> str:
    """Return a C header: a macro for each size by its name, and for the offset of each buffer, in bytes."""
    prefix = _identifier(name)
    prefix = f"_{prefix}" if prefix[:1].isdigit() else prefix
    values = {f"{prefix}_{_identifier(what)}_BYTES": size for what, size in sizes.items()}
    for number, (buffer, offset) in enumerate(offsets):
        macro = f"{prefix}_{_identifier(buffer)}_OFFSET"
        values[macro if macro not in values else f"{macro}_{number}"] = offset
    lines = [f"#define {macro} {value}" for macro, value in values.items()]
    return "\n".join([f"#ifndef {prefix}_H", f"#define {prefix}_H", "", *lines, "", "#endif", ""])


def _identifier(text: str) -> str:
    """Return the letters and digits of a text as a part of a macro's name."""
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")
