"""Op times: a CSV file of what each op takes on each kind of device."""

from __future__ import annotations

import csv
from pathlib import Path

from ..base.errors import FormatError, UsageError
from ..base.units import parse_microseconds


def read_op_times(path: str | Path) -> dict[str, dict[str, float | None]]:
    """Read a CSV file with a column `op`, then one per kind of device."""
    try:
        rows = list(csv.reader(Path(path).read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path}: not a CSV file: {error}") from error
    if not rows or len(rows[0]) < 2 or rows[0][0].strip() != "op":
        raise FormatError(f"{path}, line 1: the columns are op, then one per kind of device")
    kinds = [kind.strip() for kind in rows[0][1:]]
    if again := next((kind for kind in kinds if kinds.count(kind) > 1), None):
        raise FormatError(f"{path}, line 1: the column of kind '{again}' is there twice")
    times: dict[str, dict[str, float | None]] = {}
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(kinds) + 1:
            raise FormatError(f"{path}, line {line}: has {len(row)} columns, not {len(kinds) + 1}")
        if row[0] in times:
            raise FormatError(f"{path}, line {line}: op '{row[0]}' is there twice")
        try:
            values = [parse_microseconds(cell.strip(), "time") if cell.strip() else None for cell in row[1:]]
        except UsageError as error:
            raise FormatError(f"{path}, line {line}: {error}") from error
        if all(value is None for value in values):
            raise FormatError(f"{path}, line {line}: op '{row[0]}' has no time for any kind of device")
        times[row[0]] = dict(zip(kinds, values, strict=True))
    if not times:
        raise FormatError(f"{path}: has no row, and every op needs one: its name, then its time on each kind of device")
    return times
