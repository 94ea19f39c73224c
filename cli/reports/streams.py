"""What `schedopt measure` prints of plans of several streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.stream_report import StreamReport, StreamRow


def streams_document(report: StreamReport) -> dict[str, Any]:
    """Return the report as plain values, raw runs and the times of each op included."""
    first = report.rows[0]
    return {
        "hand_over_microseconds": report.hand_over,
        "waited": report.waited,
        "ways": [_document(report, row, first) for row in report.rows],
    }


def _document(report: StreamReport, row: StreamRow, first: StreamRow) -> dict[str, Any]:
    document: dict[str, Any] = {
        "way": row.label,
        "microseconds": list(row.microseconds),
        "runs": [list(runs) for runs in row.runs],
        "waits": [list(waits) for waits in row.waits],
        "equal": row.is_equal,
        "predicted_microseconds": row.predicted,
    }
    if row is not first:
        difference = row.time_against(first)
        time = {"change": difference.change, "low": difference.low, "high": difference.high}
        document["time_difference"] = {**time, "is_noise": difference.is_noise}
    if row.plan is not None:
        document |= {"streams": row.plan.count, "planned_microseconds": row.plan.planned}
    if row.plan is not None and row.spans is not None and row.predicted_spans is not None:
        names, real, foreseen = report.graph.op_names, row.spans, row.predicted_spans
        document["ops"] = [
            {
                "op": names[op],
                "stream": row.plan.stream_of[op],
                "start_us": float(real.start[op]),
                "end_us": float(real.end[op]),
                "predicted_start_us": float(foreseen.start[op]),
                "predicted_end_us": float(foreseen.end[op]),
            }
            for op in row.plan.order
        ]
    return document


def streams_table(report: StreamReport) -> Table:
    """Build the table that `measure` prints of plans: one line per way, against one stream."""
    from rich.markup import escape
    from rich.table import Table

    from ...core.base.units import signed, times_alike

    table = Table("plan")
    for column in ("streams", "predicted", "measured", "error", "speed-up", "results"):
        table.add_column(column, justify="right", no_wrap=True)
    first = report.rows[0]
    time = times_alike(also=(t for row in report.rows for t in (row.predicted or 0.0, row.median_microseconds)))
    for row in report.rows:
        error = row.error
        table.add_row(
            escape(row.label),
            "" if row.plan is None else str(row.plan.count),
            "" if row.predicted is None else time(row.predicted),
            f"[bold]{time(row.median_microseconds)}[/]",
            "" if error is None else f"{signed(100 * error, 1)}%",
            "" if row is first else f"{first.median_microseconds / row.median_microseconds:.2f}",
            "equal" if row.is_equal else "[bold]differ[/]",
        )
    return table
