"""The memory at a schedule's peak by role, by module and by phase, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from ...core.base.units import bytes_alike

if TYPE_CHECKING:
    from ...core.report.memory_by_role import MemoryShares

_MODULES_SHOWN = 10


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
