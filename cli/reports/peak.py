"""What holds the memory at a schedule's peak, as a table; where there is no room, with its words in lines below."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...core.base.tables import FirstThatFits, compact_table
from ...core.base.units import bytes_alike

if TYPE_CHECKING:
    from ...core.report.peak_holders import Holder, Peak

_NAMES_SHOWN = 3


class _Row(NamedTuple):
    """A line of the table: who holds how many bytes where, what that is, what made it, and how long it stays."""

    name: str
    size: int
    until: str
    role: str = ""
    source: str = ""
    offset: int | None = None


def peak_table(peak: Peak, top: int) -> FirstThatFits:
    """Return the table of what is alive at the peak, with the `top` largest holders."""
    rows = [_row_of(holder) for holder in peak.holders[:top]]
    if rest := peak.holders[top:]:
        rows.append(_Row(f"{len(rest)} more", sum(holder.size for holder in rest), ""))
    if peak.workspace:
        rows.append(_Row(f"workspace of {peak.runs}", peak.workspace, "this step", source=peak.source))
    if peak.persistent:
        rows.append(_Row("persistent bytes (weights)", peak.persistent, "the end"))
    return FirstThatFits([_table(peak, rows, is_narrow) for is_narrow in (False, True)])


def _row_of(holder: Holder) -> _Row:
    names = ", ".join(holder.waiting[:_NAMES_SHOWN])
    more = len(holder.waiting) - _NAMES_SHOWN
    until = names + (f" and {more} more" if more > 0 else "") if names else "its end: final, sent or unused"
    return _Row(holder.name, holder.size, until, holder.role, holder.source, holder.offset)


def _table(peak: Peak, rows: list[_Row], is_narrow: bool) -> Table:
    has_addresses = any(row.offset is not None for row in rows)
    words = ("what", "made by") if any(row.role or row.source for row in rows) else ()
    table = compact_table() if is_narrow else Table()
    table.add_column("held by", overflow="fold")
    for name in ("bytes", "share", *(("address",) if has_addresses else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name in () if is_narrow else (*words, "until"):
        table.add_column(name, overflow="fold")
    memory = bytes_alike(also=(row.size for row in rows))
    for row in rows:
        cells = [_in_lines(row) if is_narrow else Text(row.name), memory(row.size)]
        cells.append(f"{100 * row.size / max(1, peak.memory):.1f}%")
        if has_addresses:
            cells.append("" if row.offset is None else f"{row.offset:,}")
        if not is_narrow:
            cells += [Text(text) for text in (*((row.role, row.source) if words else ()), row.until)]
        table.add_row(*cells)
    return table


def _in_lines(row: _Row) -> RenderableType:
    """Return the name of a holder with the rest of its words below."""
    made = ", ".join(filter(None, (row.role, row.source and f"made by {row.source}")))
    about = [Text(line) for line in (made, row.until and f"until {row.until}") if line]
    return Group(Text(row.name), *(Padding(line, (0, 0, 0, 2)) for line in about))
