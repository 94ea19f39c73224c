"""What `schedopt optimize` prints of one order for a range of sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..console import show, tell
from .measure import change, orders_document

if TYPE_CHECKING:
    from ...core.programs.pipeline import Job
    from ...core.programs.size_range import OptimizedRange


def range_document(job: Job, optimized: OptimizedRange) -> dict[str, Any]:
    """Return what was found as plain values."""
    plan = optimized.plan
    return {
        "model": job.model,
        "output": job.output,
        "schedule": job.schedule,
        "dimension": optimized.dimension,
        "sizes": [
            {
                "size": row.size,
                "program_order_peak": row.program_order,
                "peak_memory": row.peak,
                "lower_bound": row.bound,
                "gap": row.gap,
            }
            for row in plan.rows
        ],
        "examined": plan.examined,
        "is_linear": plan.is_linear,
        "worst_gap": plan.worst_gap,
        "is_close": plan.is_close,
        "method": optimized.plan.method,
        "equal": True,
        "measured": {size: orders_document(rows) for size, rows in optimized.measured.items()},
    }


def print_range(job: Job, optimized: OptimizedRange) -> None:
    """Print the peaks at both ends and at the worst size between, and whether the order is good for all."""
    from rich.table import Table

    from ...core.base.units import bytes_alike

    plan = optimized.plan
    table = Table(optimized.dimension)
    measures = ["measured"] if optimized.measured else []
    for column in ("program order", optimized.plan.method, "change", "bound", "gap", *measures):
        table.add_column(column, justify="right", no_wrap=True)
    memory = bytes_alike(*((row.program_order, row.peak, row.bound) for row in plan.rows))
    for row in plan.rows:
        peaks = (memory(row.program_order), memory(row.peak), change(row.peak, row.program_order))
        measured = optimized.measured.get(row.size)
        runs = " to ".join(memory(one.measured_peak) for one in measured) if measured else ""
        cells = (*peaks, memory(row.bound), f"{100 * row.gap:.2f}%", *([runs] if measures else []))
        table.add_row(str(row.size), *cells)
    show(table, f"{job.model}: one order for {plan.rows[0].size} to {plan.rows[-1].size}")
    tell(_sentence(optimized))


def _sentence(optimized: OptimizedRange) -> str:
    from ...core.programs.size_range import CLOSE

    plan = optimized.plan
    where = "every size" if plan.is_whole else f"each of {plan.examined} sizes"
    how = "" if plan.is_linear else " Sizes are not linear in it: only these were looked at."
    said = f"This order is within {100 * plan.worst_gap:.2f}% of the bound of {where}.{how}"
    if plan.is_close:
        return said
    return f"{said} No order was found that is within {100 * CLOSE:g}% at all of them."
