"""`schedopt.pack`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..addresses.packing import Lifetimes, Packing, pack_lifetimes, warm_up
from ..base.errors import ScheduleError, UsageError
from ..base.tables import PrintedTable
from ..base.units import bytes_alike, whole_number
from ..files.buffers_csv import COLUMNS, NEEDED, Buffers, buffers_text, read_buffers
from ..model.verifier import Piece, check_arena, most_alive
from ..search.options import PackOptions
from ..search.search import Watcher

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, eq=False, repr=False)
class PackedBuffers(PrintedTable):
    """Offsets of buffers, verified; printed, it is the table of `schedopt pack`.

    Parameters
    ----------
    buffers
        The packed buffers.
    packing
        Its offsets, and the bytes that they take.
    seconds
        Wall time from the buffers read and the kernels compiled.
    is_interrupted
        Whether Ctrl-C ended the search.

    Examples
    --------
    >>> rows = [("a", 0, 3, 64), ("b", 1, 2, 32)]
    >>> packed = schedopt.pack([dict(zip(("id", "lower", "upper", "size"), row)) for row in rows], align=64)
    >>> packed.status, packed.arena
    ('optimal', 128)
    """

    buffers: Buffers
    packing: Packing
    seconds: float
    is_interrupted: bool = False

    @property
    def offsets(self) -> dict[str, int]:
        """The offset of each buffer in bytes, by its id."""
        return dict(zip(self.buffers.ids, self.packing.offsets.tolist(), strict=True))

    @property
    def arena(self) -> int:
        """Bytes that hold all buffers."""
        return self.packing.arena

    @property
    def bound(self) -> int:
        """The most bytes that live at once: no arena is smaller."""
        return self.packing.bound

    @property
    def status(self) -> str:
        """`interrupted`, or `optimal` if the arena equals its bound, else `feasible`."""
        return "interrupted" if self.is_interrupted else "optimal" if self.packing.is_optimal else "feasible"

    def save(self, path: str | os.PathLike[str], format: str = "csv") -> None:
        """Write the buffers with their offsets as `csv`, or as macros of C; FormatError if that is not possible."""
        from ..files.atomic import write_atomically
        from ..files.buffers_csv import header_text

        if format == "c-header":
            text = header_text(Path(path).stem, {"arena": self.arena}, self.offsets.items())
        else:
            text = buffers_text(self.buffers, self.packing.offsets)
        write_atomically(path, text)

    def document(self) -> dict[str, Any]:
        """Return the output of `schedopt pack --json`, as plain Python values."""
        return {
            **{"buffers": len(self.buffers.ids), "arena": self.arena, "bound": self.bound, "status": self.status},
            **{"repeatable": self.packing.is_repeatable, "seconds": round(self.seconds, 3), "offsets": self.offsets},
        }

    def table(self) -> Table:
        """Return the table of `schedopt pack`, for Rich to print."""
        from rich.table import Column, Table

        table = Table("", Column(justify="right"), show_header=False)
        table.add_row("buffers", f"{len(self.buffers.ids):,}")
        memory = bytes_alike([self.arena, self.bound])
        table.add_row("arena", f"{memory(self.arena)} ({self.arena:,} bytes)")
        table.add_row("alive at once, the bound", f"{memory(self.bound)} ({self.bound:,} bytes)")
        above = "" if self.packing.is_optimal else f", {100 * (self.arena / self.bound - 1):.2f}% above the bound"
        table.add_row("status", self.status + above)
        table.add_row("time", f"{self.seconds:.2f} s")
        return table


def pack(
    buffers: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    align: int | str | None = None,
    time_limit: float | str = 10.0,
    seed: int = 0,
) -> PackedBuffers:
    """Give buffers with lifetimes offsets, in an arena as small as the time allows, and verify them.

    Parameters
    ----------
    buffers
        The path of a CSV file with the columns `id`, `lower`, `upper` (exclusive), `size` and maybe `alignment`; or
        mappings with these keys. Offsets that are there already are not looked at.
    align
        The unit of every offset, as 64 or `"4KiB"`, instead of the buffers' own, which is the default.
    time_limit
        Wall time, as `"2s"` or a number of seconds; 10 seconds by default. It ends before once the bound is met.
    seed
        Seed of every random choice; 0 by default.

    Returns
    -------
    PackedBuffers
        `offsets` by id, `arena` and `bound` in bytes, and `status`.

    Raises
    ------
    FormatError
        If a file cannot be read.
    UsageError
        If a value is not understood.

    Examples
    --------
    >>> rows = [("a", 0, 3, 64), ("b", 1, 2, 32), ("c", 2, 4, 32)]
    >>> packed = schedopt.pack([dict(zip(("id", "lower", "upper", "size"), row)) for row in rows])
    >>> packed.arena, packed.bound, packed.status, packed.offsets
    (96, 96, 'optimal', {'a': 0, 'b': 64, 'c': 64})
    """
    options = PackOptions.picked(locals())
    read = read_buffers(os.fspath(buffers)) if isinstance(buffers, (str, os.PathLike)) else _from_rows(buffers)
    if options.align is not None:
        known = read.lifetimes
        read = Buffers(read.ids, Lifetimes.of(known.lower, known.upper, known.size, options.align), read.offsets)
    warm_up()
    start = time.monotonic()
    stop = Watcher().interrupt.is_set
    packing = pack_lifetimes(read.lifetimes, options.time_limit, options.seed, stop)
    verify_buffers("the packing", read, packing.offsets.tolist(), packing.arena, packing.bound)
    return PackedBuffers(read, packing, time.monotonic() - start, stop())


def verify_buffers(where: str, buffers: Buffers, offsets: Sequence[int], arena: int, bound: int | None = None) -> None:
    """Check offsets of buffers by code that shares nothing with the packer."""
    known = buffers.lifetimes
    columns = (known.lower, known.upper, known.size, known.alignment)
    rows = zip(buffers.ids, offsets, *(column.tolist() for column in columns), strict=True)
    pieces = [
        Piece(f"buffer '{name}'", lower, upper, int(offset), size, alignment)
        for name, offset, lower, upper, size, alignment in rows
    ]
    check_arena(where, pieces, arena)
    found = most_alive(pieces, known.unit)
    if bound not in (None, found):
        raise ScheduleError(f"{where}: the bound is said to be {bound} bytes, but {found} live at once")


def _from_rows(rows: Iterable[Mapping[str, Any]]) -> Buffers:
    listed = list(rows) if isinstance(rows, Iterable) else [rows]
    for number, row in enumerate(listed):
        if not isinstance(row, Mapping) or not set(COLUMNS[:NEEDED]) <= set(row) <= set(COLUMNS):
            raise UsageError(
                f"buffer {number} must be a mapping with {', '.join(COLUMNS[:NEEDED])} and maybe alignment and offset, "
                f"not {str(row)[:80]}"
            )
    ids = tuple(str(row["id"]) for row in listed)
    if len(set(ids)) < len(ids):
        raise UsageError("each buffer needs an id of its own")
    filled = [{"alignment": 1, **row} for row in listed]
    columns = {
        name: np.array([whole_number(row[name], name, -(2**62)) for row in filled], np.int64)
        for name in ("lower", "upper", "size", "alignment")
    }
    return Buffers(ids, Lifetimes.of(**columns, names=[f"buffer '{name}'" for name in ids]))
