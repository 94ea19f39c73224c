"""Explanation of a peak on one device: its parts, the least of any order, and the least with recomputation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Explanation:
    """An order's peak on one device, explained."""

    # bytes that the order, and program order, need
    peak: int
    input_peak: int
    lower_bound: int  # bytes that no order of the same ops is below
    held: tuple[tuple[str, int], ...]  # what is alive at the peak, largest first: words for it, and bytes
    # bytes that no schedule is below even if ops may run again, and the op that needs them alone; the op is empty if it
    # is what stays to the end
    recomputation_bound: int
    needed_by: str

    def sentences(self) -> tuple[str, str, str]:
        """Return what is proven of the order, what holds its peak, and what recomputation could give."""
        return self._order(), self._holders(), self._recomputation()

    def _order(self) -> str:
        peak, before, bound = written_apart(self.peak, self.input_peak, self.lower_bound)
        if self.peak > self.lower_bound:
            if self.peak == self.input_peak:
                return f"No order better than program order was found; none is below {bound} (proven)."
            return f"Peak {peak}, program order {before}; no order is below {bound} (proven)."
        if self.peak == self.input_peak:
            return f"Program order is already optimal: no order needs less than {peak}."
        return f"No order needs less than {peak} (proven); program order needs {before}."

    def _holders(self) -> str:
        share = 100 / max(1, self.peak)
        pieces = [f"{words} {format_bytes(size)} ({share * size:.0f}%)" for words, size in self.held]
        return _listed("Peak: ", pieces) if pieces else "Nothing is held."

    def _recomputation(self) -> str:
        if self.recomputation_bound >= self.peak:
            reason = f"{self.needed_by} alone needs" if self.needed_by else "what stays to the end is"
            return f"Recomputation cannot help: {reason} as much."
        if self.recomputation_bound > _LITTLE * self.peak:
            return f"Recomputation could save at most {format_bytes(self.peak - self.recomputation_bound)}."
        reason = f"op {self.needed_by}" if self.needed_by else "what stays to the end"
        least = format_bytes(self.recomputation_bound)
        return f"Even with recomputation nothing goes below {least} ({reason})."


def explain(problem: Problem, schedule: Schedule, input_peak: int, lower_bound: int) -> Explanation:
    """Explain the peak of a schedule on one device."""
    graph = problem.graph
    peak = alive_at_peak(problem, schedule)
    least, op = recomputation_bound(graph)
    return Explanation(
        peak=peak.memory,
        input_peak=input_peak,
        lower_bound=lower_bound,
        held=tuple(sorted(_held(graph, peak), key=lambda held: -held[1])),
        recomputation_bound=least,
        needed_by=graph.op_names[op] if op >= 0 else "",
    )


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


def _held(graph: CostGraph, peak: Peak) -> list[tuple[str, int]]:
    """Return everything alive at a peak: resident bytes by role, tensors with where they are made, the workspace."""
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
    return held
