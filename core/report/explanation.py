"""Explanation of a peak on one device: its parts, the least of any order, and the least with recomputation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..base.units import format_bytes, written_apart
from ..bounds.bounds import recomputation_bound
from ..graph.graph import CostGraph
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .memory_by_role import UNNAMED, resident_roles
from .peak_holders import Peak, alive_at_peak

WIDTH = 80
_LITTLE = 0.95


def explain(problem: Problem, schedule: Schedule, input_peak: int, lower_bound: int) -> tuple[str, str, str]:
    """Return what is proven of an order on one device, what holds its peak, and what recomputation could give.

    `input_peak` are the bytes that program order needs; no order of the same ops is below `lower_bound`.
    """
    peak = alive_at_peak(problem, schedule)
    holders, could_save = _holders(problem.graph, peak), _recomputation(problem.graph, peak.memory)
    return _proven(peak.memory, input_peak, lower_bound), holders, could_save


def _proven(peak: int, input_peak: int, lower_bound: int) -> str:
    most, before, bound = written_apart(peak, input_peak, lower_bound)
    if peak > lower_bound:
        if peak == input_peak:
            return f"No order better than program order was found; none is below {bound} (proven)."
        return f"Peak {most}, program order {before}; no order is below {bound} (proven)."
    if peak == input_peak:
        return f"Program order is already optimal: no order needs less than {most}."
    return f"No order needs less than {most} (proven); program order needs {before}."


def _holders(graph: CostGraph, peak: Peak) -> str:
    share = 100 / max(1, peak.memory)
    pieces = [f"{words} {format_bytes(size)} ({share * size:.0f}%)" for words, size in held_at(graph, peak)]
    return _listed("Peak: ", pieces) if pieces else "Nothing is held."


def _recomputation(graph: CostGraph, peak: int) -> str:
    least, op = recomputation_bound(graph)
    name = graph.op_names[op] if op >= 0 else ""  # none if it is what stays to the end
    if least >= peak:
        return f"Recomputation cannot help: {f'{name} alone needs' if name else 'what stays to the end is'} as much."
    if least > _LITTLE * peak:
        return f"Recomputation could save at most {format_bytes(peak - least)}."
    reason = f"op {name}" if name else "what stays to the end"
    return f"Even with recomputation nothing goes below {format_bytes(least)} ({reason})."


def runs_again(problem: Problem, schedule: Schedule) -> str:
    """Return the sentence that names the ops which run again, those first that add most time; empty if none does."""
    graph = problem.graph
    extra = np.bincount(schedule.items, minlength=graph.num_ops) - 1
    added = extra * problem.op_times
    ops = sorted(np.flatnonzero(extra).tolist(), key=lambda op: (-added[op], op))
    sources = graph.annotations.modules
    pieces = [
        f"{graph.op_names[op]}{f' [{sources[op]}]' if sources and sources[op] else ''} "
        f"+{problem.format_time(float(added[op]))}"
        for op in ops
    ]
    return _listed("Runs again: ", pieces) if pieces else ""


def _listed(text: str, pieces: Sequence[str]) -> str:
    """Return a sentence that lists as many pieces, after a text, as a line has room for."""
    for number, piece in enumerate(pieces):
        more = f", {len(pieces) - number} more."
        longer = f"{', ' * (number > 0)}{piece}"
        if number and len(text) + len(longer) + len(more) > WIDTH:
            return text + more
        text += longer
    return f"{text}."


def short_name(tensor: str, names: Collection[str]) -> str:
    """Return the name of a tensor among all names, or that of its op where this has no other output."""
    op, _, port = tensor.rpartition(":")
    return op if port == "0" and f"{op}:1" not in names else tensor


def held_at(graph: CostGraph, peak: Peak) -> list[tuple[str, int]]:
    """Return what is alive at a peak, largest first: resident bytes by role, tensors and their source, workspace."""
    resident = resident_roles(graph)
    if list(resident) == [UNNAMED]:
        resident = {"persistent bytes": resident[UNNAMED]}
    held = list(resident.items())
    names = set(graph.tensor_names)
    for holder in peak.holders:
        if holder.size:
            name = short_name(holder.name, names)
            held.append((f"{name} [{holder.source}]" if holder.source else name, holder.size))
    if peak.workspace:
        held.append((f"workspace of {peak.runs}", peak.workspace))
    return sorted(held, key=lambda held: -held[1])
