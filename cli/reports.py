"""Tables and remarks of `measure`, `optimize` and `show`: runs of a program, orders, the holders of a peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table

from ..core.base.tables import FirstThatFits, compact_table, escape, number_table
from ..core.base.units import Written, bytes_alike, format_change, signed, times_alike
from ..core.bounds.bounds import memory_bound
from ..core.files.atomic import write_atomically
from ..core.files.schedule_json import reserved_fields
from ..core.model.simulator import input_peak
from ..core.model.timeline import timeline_of
from ..core.report.memory_by_role import Holder, MemoryShares, Peak, largest_modules
from ..core.report.plots.draw import draw
from ..core.report.result import Result, reference_timeline
from ..core.search.registry import INPUT_METHOD
from .console import show, tell

if TYPE_CHECKING:
    from ..core.programs.pipeline import Job, Optimized, RangePlan
    from ..core.programs.runtime import Measurement


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


def measurement_table(rows: Sequence[Measurement]) -> Table:
    """Build the table that `measure` prints: one line per order, against program order."""
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


def optimized_document(job: Job, optimized: Optimized) -> dict[str, Any]:
    """Return the result as plain values."""
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
        **reserved_fields(result.reserved),
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


_OF_SIZE = {
    **{"size": "size", "program_order_peak": "program_order"},
    **{"peak_memory": "peak", "lower_bound": "bound", "gap": "gap"},
}


def print_report(job: Job, optimized: Optimized) -> None:
    """Print the table, the holders of the peak, and whether the times differ."""
    from ..core.programs.pipeline import limit_sentence, reserved_sentence
    from ..core.programs.runtime import limit_sentences, time_sentences

    result, rows = optimized.result, optimized.rows
    show(_optimize_table(optimized), result.title())
    if explanation := result.explain():
        tell(explanation)
    for sentence in filter(None, (limit_sentence(result), reserved_sentence(result))):
        tell(sentence)
    for row in rows[1:]:
        tell("\n".join((*limit_sentences(row), *time_sentences(row, rows[0]))))


def _bound(result: Result) -> int:
    """Return the bytes that no schedule of this kind needs less than."""
    return memory_bound(result.problem) if result.problem.recompute else int(result.lower_bound)


def _optimize_table(optimized: Optimized) -> Table:
    """Build the table: program order, the order found, and the bound of all orders."""
    result, rows = optimized.result, optimized.rows[:2]
    before, bound = input_peak(result.problem.graph), _bound(result)
    own = rows[0].own_peak if rows else None
    measured = [row.measured_peak for row in rows]
    memory = bytes_alike([before, result.peak_memory, bound], also=measured + ([] if own is None else [own]))
    time = times_alike(also=(row.median_microseconds for row in rows))
    table = number_table("order", "peak", "change", *(("measured", "change", "time") if rows else ()))
    if own is not None:
        table.add_row("as it is", "", "", memory(own), change(own, measured[0]), "")
    changes = ["", *(change(peak, measured[0]) for peak in measured[1:])]
    runs = [(memory(r.measured_peak), c, time(r.median_microseconds)) for r, c in zip(rows, changes, strict=False)]
    method = f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else "")
    table.add_row("program order", memory(before), "", *chain(*runs[:1]))
    table.add_row(method, memory(result.peak_memory), change(result.peak_memory, before), *chain(*runs[1:]))
    table.add_row("lower bound", memory(bound), change(bound, before))
    return table


def range_document(job: Job, dimension: str, plan: RangePlan) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        **{"model": job.model, "output": job.output, "schedule": job.schedule, "dimension": dimension},
        "sizes": [{said: getattr(row, name) for said, name in _OF_SIZE.items()} for row in plan.rows],
        "examined": plan.examined,
        "is_linear": plan.is_linear,
        "worst_gap": plan.worst_gap,
        "is_close": plan.is_close,
        "method": plan.method,
        "equal": True,
        "measured": {size: orders_document(rows) for size, rows in plan.measured.items()},
    }


def print_range(job: Job, dimension: str, plan: RangePlan) -> None:
    """Print the peaks at both ends and at the worst size between, and whether the order is good for all."""
    from ..core.programs.pipeline import CLOSE

    measures = ["measured"] if plan.measured else []
    table = number_table(dimension, "program order", plan.method, "change", "bound", "gap", *measures)
    memory = bytes_alike(*((row.program_order, row.peak, row.bound) for row in plan.rows))
    for row in plan.rows:
        peaks = (memory(row.program_order), memory(row.peak), change(row.peak, row.program_order))
        measured = plan.measured.get(row.size)
        runs = " to ".join(memory(one.measured_peak) for one in measured) if measured else ""
        cells = (*peaks, memory(row.bound), f"{100 * row.gap:.2f}%", *([runs] if measures else []))
        table.add_row(str(row.size), *cells)
    show(table, f"{job.model}: one order for {plan.rows[0].size} to {plan.rows[-1].size}")
    where = "every size" if plan.is_whole else f"each of {plan.examined} sizes"
    how = "" if plan.is_linear else " Sizes are not linear in it: only these were looked at."
    far = "" if plan.is_close else f" No order was found that is within {100 * CLOSE:g}% at all of them."
    tell(f"This order is within {100 * plan.worst_gap:.2f}% of the bound of {where}.{how}{far}")


_NAMES_SHOWN = 3
_MODULES_SHOWN = 10


def peak_table(peak: Peak, top: int) -> FirstThatFits:
    """Return the table of the tensors alive at the peak, with the `top` largest holders."""
    rows = []
    for holder in peak.holders[:top]:
        more, names = len(holder.waiting) - _NAMES_SHOWN, ", ".join(holder.waiting[:_NAMES_SHOWN])
        until = names + (f" and {more} more" if more > 0 else "") if names else "its end: final, sent or unused"
        rows.append((holder, until))
    if rest := peak.holders[top:]:
        rows.append((Holder(f"{len(rest)} more", sum(holder.size for holder in rest), ()), ""))
    if peak.workspace:
        rows.append((Holder(f"workspace of {peak.runs}", peak.workspace, (), source=peak.source), "this step"))
    if peak.persistent:
        rows.append((Holder("persistent bytes (weights)", peak.persistent, ()), "the end"))
    return FirstThatFits([_peak_table(peak, rows, is_narrow) for is_narrow in (False, True)])


def _peak_table(peak: Peak, rows: list[tuple[Holder, str]], is_narrow: bool) -> Table:
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
        cells = [_in_lines(row, until) if is_narrow else escape(row.name), memory(row.size)]
        cells.append(f"{100 * row.size / max(1, peak.memory):.1f}%")
        if has_addresses:
            cells.append("" if row.offset is None else f"{row.offset:,}")
        if not is_narrow:
            cells += [escape(text) for text in (*((row.role, row.source) if words else ()), until)]
        table.add_row(*cells)
    return table


def _in_lines(row: Holder, until: str) -> RenderableType:
    """Return the name of a holder with the rest of its words below."""
    made = ", ".join(filter(None, (row.role, row.source and f"made by {row.source}")))
    about = filter(None, (made, until and f"until {until}"))
    return Group(escape(row.name), *(Padding(escape(line), (0, 0, 0, 2)) for line in about))


def module_table(shares: MemoryShares) -> Table:
    """Return the bytes of the largest modules; one that holds much of the peak is split into its own."""
    modules = {path or "(the model itself, and inputs)": size for path, size in largest_modules(shares.modules).items()}
    shown = dict(list(modules.items())[:_MODULES_SHOWN])
    if rest := list(modules.values())[_MODULES_SHOWN:]:
        shown[f"{len(rest)} more"] = sum(rest)
    return shares_table("module", shown)


def phase_table(shares: MemoryShares) -> Table:
    """Return the peak within each phase, and where it is."""
    table = Table("phase", Column("peak", justify="right"), Column("step", justify="right"), "running")
    memory = bytes_alike(peak.memory for peak in shares.phases)
    for peak in shares.phases:
        runs = f"{peak.runs} ({peak.source})" if peak.source else peak.runs
        table.add_row(peak.phase, memory(peak.memory), f"{peak.step:,}", escape(runs))
    return table


def shares_table(title: str, sizes: Mapping[str, int], total: int = 0, memory: Written | None = None) -> Table:
    """Return the bytes of each role or module, most first, and their share of a total, by default of all."""
    total, memory = total or max(1, sum(sizes.values())), memory or bytes_alike(also=sizes.values())
    table = Table(title, Column("bytes", justify="right"), Column("share", justify="right"))
    for name, size in sizes.items():
        table.add_row(escape(name), memory(size), f"{100 * size / total:.1f}%")
    return table


def draw_result(result: Result, target: str) -> None:
    """Draw a result, and the input order beside it unless it is the input order itself."""
    timelines = [timeline_of(result.method, result.problem, result.schedule, result.addresses)]
    if result.method != INPUT_METHOD:
        timelines.insert(0, reference_timeline(result.problem))
    write_atomically(target, draw(timelines, target))


def snapshot_tables(document: Mapping[str, Any], top: int) -> list[tuple[str, Table]]:
    """Build the tables of a memory snapshot with their titles: reserved bytes, their causes, and the peak's holders."""
    peak, then = document["peak_allocated"], document["reserved_then"]
    options = document["reserved_by_options"]
    memory = bytes_alike([peak, then, document["peak_reserved"], document["arena"], *options.values()])
    table = Table("", Column(justify="right"), show_header=False)
    table.add_row("allocations, events", f"{document['allocations']:,}, {document['events']:,}")
    table.add_row("allocated at most", memory(peak))
    table.add_row("reserved then", memory(then))
    table.add_row("reserved and unused then", f"{memory(then - peak)} ({100 * (then - peak) / max(then, 1):.1f}%)")
    table.add_row("reserved at most", memory(document["peak_reserved"]))
    table.add_section()
    table.add_row("the same allocations at fixed addresses", memory(document["arena"]))
    table.add_row("  the least that is possible", memory(document["arena_bound"]))
    for option, size in options.items():
        table.add_row(f"reserved by {option or 'default options'}, from an empty cache", memory(size))
    if (modelled := document["addresses_modelled"]) is not None:
        table.add_section()
        table.add_row("addresses as the model of the allocator says", f"{modelled:,} of {document['allocations']:,}")
    tables = [("", table)]
    for kind, holders in document["holders"].items():
        if shown := {name: size for name, size in list(holders.items())[:top] if name}:
            tables.append((f"allocated at the peak, by {kind}", shares_table(kind, shown, peak, memory)))
    return tables
