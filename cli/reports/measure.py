"""Tables of the runs of a program, for `schedopt measure` and `schedopt optimize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.base.units import bytes_alike, format_change, signed, times_alike

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.runtime import Measurement


_WRITTEN = (
    *("order", "predicted_peak", "measured_peak", "measured_peaks", "error", "memory_limit", "keeps_limit", "own_peak"),
    *("predicted_microseconds", "microseconds", "runs", "page_faults", "kept_microseconds"),
)


def orders_document(rows: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the rows as plain values, raw runs included, with the difference in time from the first."""
    documents = []
    for row in rows:
        documents.append({**{name: getattr(row, name) for name in _WRITTEN}, "equal": row.is_equal})
        if row is not rows[0]:
            difference = row.time_against(rows[0])
            fields = ("change", "low", "high", "is_noise")
            documents[-1]["time_difference"] = {name: getattr(difference, name) for name in fields}
    return documents


def table(rows: Sequence[Measurement]) -> Table:
    """Build the table that `measure` prints: one line per order, against program order."""
    from rich.markup import escape

    from ...core.base.tables import number_table

    table = number_table("order", "predicted", "measured", "error", "change", "time", "results")
    first = rows[0]
    measured = [row.measured_peak for row in rows]
    own = first.own_peak
    memory = bytes_alike((row.predicted_peak for row in rows), also=(*measured, *(() if own is None else (own,))))
    time = times_alike(also=(row.median_microseconds for row in rows))
    if own is not None:
        table.add_row("as it is", "", f"[bold]{memory(own)}[/]", "", change(own, first.measured_peak), "", "")
    for row in rows:
        table.add_row(
            escape(row.order),
            memory(row.predicted_peak),
            f"[bold]{memory(row.measured_peak)}[/]",
            f"{signed(100 * row.error)}%",
            "" if row is first else change(row.measured_peak, first.measured_peak),
            time(row.median_microseconds),
            "equal" if row.is_equal else "[bold]differ[/]",
        )
    return table


def change(value: float, before: float) -> str:
    """Return how a value differs from one before, in percent; nothing where that is 0."""
    return format_change(value, before) if before else ""
