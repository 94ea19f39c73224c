"""Tables of a schedule's peak: each holder of memory, and the sums by role, by module and by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...core.base.tables import FirstThatFits, compact_table
from ...core.base.units import bytes_alike
from ...core.report.peak_holders import Holder, Peak

if TYPE_CHECKING:
    from ...core.report.memory_by_role import MemoryShares

_NAMES_SHOWN = 3
_MODULES_SHOWN = 10


def peak_table(peak: Peak, top: int) -> FirstThatFits:
    """Return the table of what is alive at the peak, with the `top` largest holders."""
    rows = [(holder, _until(holder)) for holder in peak.holders[:top]]
    if rest := peak.holders[top:]:
        rows.append((Holder(f"{len(rest)} more", sum(holder.size for holder in rest), ()), ""))
    if peak.workspace:
        rows.append((Holder(f"workspace of {peak.runs}", peak.workspace, (), source=peak.source), "this step"))
    if peak.persistent:
        rows.append((Holder("persistent bytes (weights)", peak.persistent, ()), "the end"))
    return FirstThatFits([_table(peak, rows, is_narrow) for is_narrow in (False, True)])


def _until(holder: Holder) -> str:
    """Return what a holder waits for."""
    more = len(holder.waiting) - _NAMES_SHOWN
    names = ", ".join(holder.waiting[:_NAMES_SHOWN])
    return names + (f" and {more} more" if more > 0 else "") if names else "its end: final, sent or unused"


def _table(peak: Peak, rows: list[tuple[Holder, str]], is_narrow: bool) -> Table:
    has_addresses = any(row.offset is not None for row, _ in rows)
    words = ("what", "made by") if any(row.role or row.source for row, _ in rows) else ()
    table = compact_table() if is_narrow else Table()
    table.add_column("held by", overflow="fold")
    for name in ("bytes", "share", *(("address",) if has_addresses else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for name in () if is_narrow else (*words, "until"):
        table.add_column(name, overflow="fold")
    memory = bytes_alike(also=(row.size for row, _ in rows))
    for row, until in rows:
        cells = [_in_lines(row, until) if is_narrow else Text(row.name), memory(row.size)]
        cells.append(f"{100 * row.size / max(1, peak.memory):.1f}%")
        if has_addresses:
            cells.append("" if row.offset is None else f"{row.offset:,}")
        if not is_narrow:
            cells += [Text(text) for text in (*((row.role, row.source) if words else ()), until)]
        table.add_row(*cells)
    return table


def _in_lines(row: Holder, until: str) -> RenderableType:
    """Return the name of a holder with the rest of its words below."""
    made = ", ".join(filter(None, (row.role, row.source and f"made by {row.source}")))
    about = [Text(line) for line in (made, until and f"until {until}") if line]
    return Group(Text(row.name), *(Padding(line, (0, 0, 0, 2)) for line in about))


def role_table(shares: MemoryShares) -> Table:
    """Return the bytes of each role, most first."""
    return _shares_table("role", shares.roles)


def module_table(shares: MemoryShares) -> Table:
    """Return the bytes of the largest modules; one that holds much of the peak is split into its own."""
    from ...core.report.memory_by_role import largest_modules

    modules = {path or "(the model itself, and inputs)": size for path, size in largest_modules(shares.modules).items()}
    names = list(modules)
    shown = {name: modules[name] for name in names[:_MODULES_SHOWN]}
    if rest := names[_MODULES_SHOWN:]:
        shown[f"{len(rest)} more"] = sum(modules[name] for name in rest)
    return _shares_table("module", shown)


def phase_table(shares: MemoryShares) -> Table:
    """Return the peak within each phase, and where it is."""
    table = Table("phase")
    table.add_column("peak", justify="right")
    table.add_column("step", justify="right")
    table.add_column("running")
    memory = bytes_alike(peak.memory for peak in shares.phases)
    for peak in shares.phases:
        runs = f"{peak.runs} ({peak.source})" if peak.source else peak.runs
        table.add_row(peak.phase, memory(peak.memory), f"{peak.step + 1:,}", escape(runs))
    return table


def _shares_table(title: str, sizes: Mapping[str, int]) -> Table:
    total = max(1, sum(sizes.values()))
    table = Table(title)
    table.add_column("bytes", justify="right")
    table.add_column("share", justify="right")
    memory = bytes_alike(also=sizes.values())
    for name, size in sizes.items():
        table.add_row(escape(name), memory(size), f"{100 * size / total:.1f}%")
    return table
