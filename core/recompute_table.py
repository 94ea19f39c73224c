"""The table of a result with recomputation: peak and time, what both cost, and what no schedule can beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .costs.bounds import memory_bound
from .costs.simulator import input_peak
from .units import format_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from .result import Result


def recompute_table(result: Result) -> Table:
    """Return the table of `schedopt solve --recompute`."""
    from rich.table import Table

    problem, graph, runs = result.problem, result.problem.graph, len(result.schedule)
    once = float(problem.op_times.sum())
    taken = problem.time_of(runs, result.runtime)
    table = Table()
    for name in ("", "peak memory", "time", "added time"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("input order", format_bytes(input_peak(graph)), problem.format_time(once), "")
    table.add_row(
        f"[bold]{result.method}[/]" + (f" ({result.found_by})" if result.found_by != result.method else ""),
        f"[bold]{format_bytes(result.peak_memory)}[/]",
        f"[bold]{problem.format_time(taken)}[/]",
        f"[bold]{_added(result, taken - once)}[/]",
    )
    if result.is_proven_infeasible:
        table.add_row("lower bound", format_bytes(memory_bound(problem)), "", "")
    else:
        bound = result.lower_bound if problem.task == "runtime" else once
        peak = result.lower_bound if problem.task == "memory" else memory_bound(problem)
        table.add_row("lower bound", format_bytes(peak), problem.format_time(bound), _added(result, bound - once))
    table.add_section()
    table.add_row("status", *_status(result))
    if problem.memory_limit is not None:
        excess = result.peak_memory - problem.memory_limit
        kept = "kept" if excess <= 0 else f"exceeded by {format_bytes(excess)}"
        table.add_row("memory limit", format_bytes(problem.memory_limit), "", kept)
    if problem.runtime_limit is not None:
        kept = "kept" if result.is_feasible else "exceeded"
        table.add_row("limit of the time", "", problem.format_time(problem.runtime_limit), kept)
    again = int((np.bincount(result.schedule.items, minlength=graph.num_ops) > 1).sum())
    table.add_row("ops that run again", f"{again:,} of {graph.num_ops:,}", f"{runs - graph.num_ops:,} runs", "")
    table.add_row("evaluations", f"{result.evaluations:,.0f}", "", "")
    table.add_row("search", f"{result.seconds:.2f} s", "", "")
    return table


def _added(result: Result, time: float) -> str:
    """Return an added time with its share of that of all ops."""
    problem = result.problem
    share = 100 * time / float(problem.op_times.sum())
    return "none" if time <= 1e-12 * share else f"+{share:.2f}%, {problem.format_time(time)}"


def _status(result: Result) -> tuple[str, str, str]:
    """Return the row of the status: what it is, and how far from the bound."""
    if result.is_proven_infeasible:
        return "infeasible", "", "proven"
    if not result.is_feasible:
        return "limit not met", "", ""
    if result.status == "optimal":
        return result.status, "", ""
    return result.status, "", f"gap to bound {100 * result.gap:.2f}%"
