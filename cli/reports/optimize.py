"""What `schedopt optimize` prints: one table, and what there is to say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..console import show, tell
from .measure import change, orders_document

if TYPE_CHECKING:
    from rich.table import Table

    from ...core.programs.pipeline import Job, Optimized
    from ...core.report.result import Result


def document(job: Job, optimized: Optimized) -> dict[str, Any]:
    """Return what was found as plain values."""
    from ...core.model.simulator import input_peak

    result = optimized.result
    graph = result.problem.graph
    runs = len(result.schedule)
    again = {"runs": runs, "added_share": result.added_share} if result.problem.recompute else {}
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
    from rich.table import Table

    from ...core.base.units import bytes_alike, times_alike
    from ...core.model.simulator import input_peak

    result, before = optimized.result, input_peak(optimized.result.problem.graph)
    by_order = dict(zip(("before", "after"), optimized.rows, strict=False))
    measured = [row.measured_peak for row in by_order.values()]
    memory = bytes_alike([before, result.peak_memory, _bound(result)], also=measured)
    time = times_alike(also=(row.median_microseconds for row in by_order.values()))
    table = Table("order")
    for column in ("peak", "change", *(("measured", "change", "time") if by_order else ())):
        table.add_column(column, justify="right", no_wrap=True)
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
