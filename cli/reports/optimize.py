"""The table of `schedopt optimize`, of one size or of a range, and its remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.base.units import bytes_alike, times_alike
from ..console import show, tell
from .measure import change, orders_document

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.pipeline import Job, Optimized
    from ...core.programs.size_range import OptimizedRange
    from ...core.report.result import Result


def document(job: Job, optimized: Optimized) -> dict[str, Any]:
    """Return what was found as plain values."""
    from ...core.model.simulator import input_peak

    result = optimized.result
    graph = result.problem.graph
    again = {"runs": len(result.schedule), "added_share": result.added_share} if result.problem.recompute else {}
    return {
        "model": job.model,
        "output": job.output,
        "schedule": job.schedule,
        "graph": graph.name,
        "imported": dict(graph.annotations.imported),
        "ops": graph.num_ops,
        "tensors": graph.num_data_tensors,
        "program_order_peak": input_peak(graph),
        "peak_memory": result.peak_memory,
        "lower_bound": _bound(result),
        **again,
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
    from ...core.programs.measurement import limit_sentences, time_sentences
    from ...core.programs.pipeline import limit_sentence

    result, rows = optimized.result, optimized.rows
    show(_table(optimized), result.title())
    if explanation := result.explain():
        tell(explanation)
    if result.status == "optimal" and not result.problem.recompute and "cannot help" not in explanation:
        tell("Less than any order: --memory-limit 70% --recompute lets ops run again.")
    if kept := limit_sentence(result):
        tell(kept)
    for row in rows[1:]:
        tell("\n".join((*limit_sentences(row), *time_sentences(row, rows[0]))))


def _bound(result: Result) -> int:
    """Return the bytes that no schedule of this kind needs less than."""
    from ...core.bounds.bounds import memory_bound

    return memory_bound(result.problem) if result.problem.recompute else int(result.lower_bound)


def _table(optimized: Optimized) -> Table:
    """Build the table: program order, the order found, and what no order can beat."""
    from ...core.base.tables import number_table
    from ...core.model.simulator import input_peak

    result, before = optimized.result, input_peak(optimized.result.problem.graph)
    by_order = dict(zip(("before", "after"), optimized.rows, strict=False))
    measured = [row.measured_peak for row in by_order.values()]
    own = by_order["before"].own_peak if by_order else None
    measured += [] if own is None else [own]
    memory = bytes_alike([before, result.peak_memory, _bound(result)], also=measured)
    time = times_alike(also=(row.median_microseconds for row in by_order.values()))
    table = number_table("order", "peak", "change", *(("measured", "change", "time") if by_order else ()))
    if own is not None:
        table.add_row("as it is", "", "", memory(own), change(own, measured[0]), "")
    method = f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else "")
    for name, key, peak in (("program order", "before", before), (method, "after", result.peak_memory)):
        cells = [name, memory(peak), change(peak, before) if key == "after" else ""]
        if by_order:
            row, first = by_order.get(key), by_order["before"]
            if row is None:
                cells += ["", "", ""]
            else:
                changed = change(row.measured_peak, first.measured_peak) if key == "after" else ""
                cells += [memory(row.measured_peak), changed, time(row.median_microseconds)]
        table.add_row(*cells)
    bound = _bound(result)
    table.add_row("lower bound", memory(bound), change(bound, before))
    return table


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
    from ...core.base.tables import number_table

    plan = optimized.plan
    measures = ["measured"] if optimized.measured else []
    columns = ("program order", optimized.plan.method, "change", "bound", "gap", *measures)
    table = number_table(optimized.dimension, *columns)
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
