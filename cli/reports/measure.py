"""What `schedopt measure` and `schedopt optimize` print of the runs of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.measurement import Measurement


def orders_document(rows: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the rows as plain values, raw runs included, with the difference in time from the first."""
    return [_document(row, rows[0]) for row in rows]


def _document(row: Measurement, first: Measurement) -> dict[str, Any]:
    document = {
        "order": row.order,
        "predicted_peak": row.predicted_peak,
        "measured_peak": row.measured_peak,
        "measured_peaks": list(row.measured_peaks),
        "error": row.error,
        "memory_limit": row.memory_limit,
        "keeps_limit": row.keeps_limit,
        "predicted_microseconds": row.predicted_microseconds,
        "microseconds": list(row.microseconds),
        "runs": [list(runs) for runs in row.runs],
        "page_faults": list(row.page_faults),
        "kept_microseconds": list(row.kept_microseconds),
        "equal": row.is_equal,
    }
    if row is first:
        return document
    difference = row.time_against(first)
    time = {"change": difference.change, "low": difference.low, "high": difference.high}
    return {**document, "time_difference": {**time, "is_noise": difference.is_noise}}


def table(rows: Sequence[Measurement]) -> Table:
    """Build the table that `measure` prints: one line per order, against program order."""
    from rich.markup import escape
    from rich.table import Table

    from ...core.base.units import bytes_alike, signed, times_alike

    table = Table("order")
    for column in ("predicted", "measured", "error", "change", "time", "results"):
        table.add_column(column, justify="right", no_wrap=True)
    first = rows[0]
    memory = bytes_alike((row.predicted_peak for row in rows), also=(row.measured_peak for row in rows))
    time = times_alike(also=(row.median_microseconds for row in rows))
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
    from ...core.base.units import format_change

    return format_change(value, before) if before else ""
