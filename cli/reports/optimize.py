"""What `schedopt optimize` prints: one table, and what there is to say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..console import show, write
from .measure import change, orders_document

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.pipeline import Job, Optimized


def document(job: Job, optimized: Optimized) -> dict[str, Any]:
    """Return what was found as plain values."""
    result = optimized.result
    graph = result.problem.graph
    return {
        "model": job.model,
        "output": job.output,
        "schedule": job.schedule,
        "graph": graph.name,
        "imported": dict(graph.annotations.imported),
        "ops": graph.num_ops,
        "tensors": graph.num_data_tensors,
        "program_order_peak": int(result.input_value),
        "peak_memory": result.peak_memory,
        "lower_bound": int(result.lower_bound),
        "memory_limit": result.problem.memory_limit,
        "status": result.status,
        "method": result.method,
        "found_by": result.found_by,
        "seconds": round(result.seconds, 3),
        "explanation": result.explain().splitlines(),
        "equal": True,
        "repeats": job.repeats,
        "orders": orders_document(optimized.rows),
    }


def print_report(job: Job, optimized: Optimized) -> None:
    """Print the table, what the peak is made of, and whether the times differ."""
    from ...core.programs.measurement import time_sentences

    result, rows = optimized.result, optimized.rows
    show(_table(optimized), result.title())
    if explanation := result.explain():
        write(explanation)
    for row in rows[1:]:
        write("\n".join(time_sentences(row, rows[0])))


def _table(optimized: Optimized) -> Table:
    """Build the table: program order, the order found, and what no order can beat."""
    from rich.table import Table

    from ...core.units import format_bytes, format_microseconds

    result, before = optimized.result, int(optimized.result.input_value)
    by_order = dict(zip(("before", "after"), optimized.rows, strict=False))
    table = Table("order")
    for column in ("peak", "change", *(("measured", "change", "time") if by_order else ())):
        table.add_column(column, justify="right", no_wrap=True)
    method = f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else "")
    for name, key, peak in (("program order", "before", before), (method, "after", result.peak_memory)):
        cells = [name, format_bytes(peak), change(peak, before) if key == "after" else ""]
        if by_order:
            row, first = by_order.get(key), by_order["before"]
            if row is None:
                cells += ["", "", ""]
            else:
                changed = change(row.measured_peak, first.measured_peak) if key == "after" else ""
                cells += [format_bytes(row.measured_peak), changed, format_microseconds(row.median_microseconds)]
        table.add_row(*cells)
    bound = int(result.lower_bound)
    table.add_row("lower bound", format_bytes(bound), change(bound, before))
    return table
