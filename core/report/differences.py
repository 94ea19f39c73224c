"""A graph in numbers; differences of two schedules of a graph, or of two graphs."""

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from rich.table import Table

from ..base.names import one_line
from ..base.tables import PrintedTable, escape, number_table
from ..base.units import Written, bytes_alike, times_alike
from ..bounds.bounds import critical_path, memory_bound, min_cut_bound
from ..graph.graph import CostGraph
from ..model.simulator import input_peak
from ..problem.problem import Problem
from ..problem.schedule import Schedule
from .memory_by_role import UNNAMED, Holder, Peak, memory_shares


def totals_of(graph: CostGraph) -> dict[str, Any]:
    """Return the counts and sums that say how large a graph is, and the peak of program order on one device."""
    return {
        "ops": graph.num_ops,
        "tensors": graph.num_data_tensors,
        "tensor_bytes": int(graph.tensor_size[graph.alias_of < 0].sum()),
        "persistent_bytes": int(graph.persistent.sum()),
        "input_peak": input_peak(graph),
        "runtime_us": float(graph.runtime.sum()),
    }


def summarise(graph: CostGraph) -> dict[str, Any]:
    """Return the graph in numbers, bytes and microseconds."""
    problem, totals = Problem(graph), totals_of(graph)
    return {
        "name": graph.name,
        "ops": totals["ops"],
        "tensors": totals["tensors"],
        "edges": len(graph.edges[0]),  # distinct op pairs
        "tensor_bytes": totals["tensor_bytes"],
        "persistent_bytes": totals["persistent_bytes"],
        "total_runtime": totals["runtime_us"],
        "depth": max(levels(graph)),  # ops on the longest path
        "width": width(graph),
        "input_peak": totals["input_peak"],
        "memory_bound": min_cut_bound(problem, graph.input_order, memory_bound(problem)),
        "critical_path": critical_path(graph),  # which no schedule can beat
    }


def levels(graph: CostGraph) -> list[int]:
    """Return per op the number of ops on the longest path that ends in it."""
    level = [1] * graph.num_ops
    pointers, predecessors = (a.tolist() for a in graph.predecessors)
    for op in graph.input_order.tolist():
        for before in predecessors[pointers[op] : pointers[op + 1]]:
            level[op] = max(level[op], level[before] + 1)
    return level


def width(graph: CostGraph) -> int:
    """Return the size of the largest antichain (Dilworth: ops less a maximum matching of the closure)."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    ops = np.arange(graph.num_ops)
    leaving, entering = ops, ops + graph.num_ops
    source, sink = 2 * graph.num_ops, 2 * graph.num_ops + 1
    sources, targets = graph.edges
    tails = np.concatenate((np.full(graph.num_ops, source), entering, sources, entering))
    heads = np.concatenate((leaving, np.full(graph.num_ops, sink), targets + graph.num_ops, leaving))
    many = np.full(len(sources) + graph.num_ops, graph.num_ops)
    capacities = np.concatenate((np.ones(2 * graph.num_ops, np.int64), many))
    flow = SimpleMaxFlow()
    flow.add_arcs_with_capacity(tails, heads, capacities)
    flow.solve(source, sink)
    return graph.num_ops - int(flow.optimal_flow())


def log_histogram(values: list[int]) -> list[tuple[int, int, int]]:
    """Count whole numbers in bins that double: `(first, last, count)` per bin, empty ones at the ends left out."""
    bins = [max(0, value).bit_length() for value in values]
    return [(2**bits // 2, 2**bits - 1, bins.count(bits)) for bits in range(min(bins), max(bins) + 1)]


DEFAULT_TOP = 20
_TOTALS = {"tensor_bytes": "bytes in tensors", "persistent_bytes": "persistent bytes"}
_NUMBER = re.compile(r"_\d+$")
_BytesRow: TypeAlias = "tuple[str, int | None, int | None]"
"""A name, and bytes before and after."""
_Sized: TypeAlias = tuple[str, str, int]
"""A name, where it is made, and bytes."""


@dataclass(frozen=True, repr=False)
class ScheduleDifference(PrintedTable):
    """Which tensors make the difference between two peaks: of schedules of a graph, of snapshots, or of calls."""

    graph: str  # the graph's name
    names: tuple[str, str]  # what the schedules are called
    peaks: tuple[Peak, Peak]  # what is alive at the peak of each
    reserved: tuple[int | None, int | None] = (None, None)  # bytes that an allocator had reserved then, if known

    @property
    def held_by_one(self) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """The tensors that are held at the first peak alone or in another size, and those at the second."""
        a, b = (tuple(holder for holder in peak.holders if holder.size) for peak in self.peaks)
        first, second = ({(holder.name, holder.size) for holder in holders} for holders in (a, b))
        alone = tuple(holder for holder in a if (holder.name, holder.size) not in second)
        return alone, tuple(holder for holder in b if (holder.name, holder.size) not in first)

    @property
    def shared(self) -> int:
        """Bytes of the tensors that are held at both peaks."""
        one, _ = self.held_by_one
        return sum(holder.size for holder in self.peaks[0].holders) - sum(holder.size for holder in one)

    def title(self) -> str:
        """Return the lines above the table."""
        memory = self._memory(DEFAULT_TOP)
        lines = [
            f"{name}: peak {memory(peak.memory)} at step {peak.step:,}, {peak.runs}"
            + ("" if reserved is None else f"; {memory(reserved)} reserved then")
            for name, peak, reserved in zip(self.names, self.peaks, self.reserved, strict=True)
        ]
        return "\n".join(map(one_line, (self.graph, *lines)))

    def _memory(self, top: int) -> Written:
        """Return how the bytes of the table are written."""
        listed = [size for _, _, *sizes in self._rows(top) for size in sizes if size is not None]
        parts = [part for peak in self.peaks for part in (peak.memory, peak.workspace, peak.persistent)]
        parts += filter(None, self.reserved)
        return bytes_alike((peak.memory for peak in self.peaks), also=(*listed, self.shared, *parts))

    def _rows(self, top: int) -> list[tuple[str, str, int | None, int | None]]:
        """Return name, line, and bytes at both peaks: per peak the `top` largest tensors, and the sum of the others."""
        first, second = ({holder.name: holder for holder in side} for side in self.held_by_one)
        rows: list[Any] = []
        for side in ([*first.values()], [holder for name, holder in second.items() if name not in first]):
            both = [
                (h.name, h.source, *(held[h.name].size if h.name in held else None for held in (first, second)))
                for h in side
            ]
            rows += both[:top]
            if rest := both[top:]:
                sums = (sum(filter(None, sizes)) or None for sizes in [*zip(*rest, strict=True)][2:])
                rows.append((f"{len(rest)} more", "", *sums))
        return rows

    def table(self, top: int = DEFAULT_TOP) -> Table:
        """Return the table of `schedopt diff`, for Rich to print, with the `top` largest tensors of each."""
        a, b = self.peaks
        memory = self._memory(top)
        rows = self._rows(top)
        has_sources = any(source for _, source, *_ in rows)
        table = number_table("held at one peak", *map(escape, self.names))
        if has_sources:
            table.add_column("made at")
        for name, source, *sizes in rows:
            cells = ("" if size is None else memory(size) for size in sizes)
            table.add_row(escape(name), *cells, *((escape(source),) * has_sources))
        table.add_section()
        table.add_row("tensors held at both", memory(self.shared), memory(self.shared))
        for what, first, second in (
            ("workspace", a.workspace, b.workspace),
            ("persistent bytes", a.persistent, b.persistent),
        ):
            if first or second:
                table.add_row(what, memory(first), memory(second))
        table.add_row("[bold]peak[/]", *(f"[bold]{memory(peak.memory)}[/]" for peak in self.peaks))
        return table

    def document(self) -> dict[str, Any]:
        """Return everything as plain Python values, bytes as whole numbers."""
        schedules = [
            {
                "schedule": name,
                **{field: getattr(peak, field) for field in ("memory", "device", "step", "runs", "source")},
                **{"workspace": peak.workspace, "persistent": peak.persistent},
                **({} if reserved is None else {"reserved": reserved}),
                "held_alone": [asdict(holder) for holder in alone],
            }
            for name, peak, reserved, alone in zip(self.names, self.peaks, self.reserved, self.held_by_one, strict=True)
        ]
        return {"graph": self.graph, "held_by_both": self.shared, "schedules": schedules}


@dataclass(frozen=True)
class Change:
    """A tensor, or a resident, whose bytes differ in two graphs; None in the graph that does not have it."""

    name: str
    source: str
    before: int | None
    after: int | None

    @property
    def change(self) -> int:
        """How many bytes more it has in the second graph."""
        return (self.after or 0) - (self.before or 0)


@dataclass(frozen=True, repr=False)
class GraphDifference(PrintedTable):
    """The differences of two graphs. Ops are the same by name; by kind and number in a module, if both know these."""

    names: tuple[str, str]  # what the graphs are called
    # per graph the counts and sums: `ops`, `tensors`, `tensor_bytes`, `persistent_bytes`, `input_peak` (bytes of
    # program order on one device), `runtime_us`
    totals: tuple[dict[str, float], dict[str, float]]
    # per graph the bytes at program order's peak by role; their sum is the peak
    roles: tuple[dict[str, int], dict[str, int]]
    phases: tuple[dict[str, int], dict[str, int]]  # per graph the peak within each phase, bytes
    # ops that the second graph alone has, and those that the first alone has
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changes: tuple[Change, ...]  # tensors and residents whose bytes differ, the largest change first

    def title(self) -> str:
        """Return the line above the table."""
        return one_line(" and ".join(self.names)) + f": {len(self.added):,} ops added, {len(self.removed):,} removed"

    def table(self, top: int = DEFAULT_TOP) -> Table:
        """Return the table of `schedopt diff`, for Rich to print, with the `top` largest changes of tensors."""
        table = number_table("", *map(escape, self.names), "change")
        a, b = self.totals
        for key in ("ops", "tensors"):
            table.add_row(key, f"{a[key]:,}", f"{b[key]:,}", f"{b[key] - a[key]:+,}" if b[key] != a[key] else "")
        sizes: list[_BytesRow] = [(what, int(a[key]), int(b[key])) for key, what in _TOTALS.items()]
        shares, changes = self._shares(), self._changes(top)
        pairs = [(before or 0, after or 0) for _, before, after in (*sizes, *shares, *changes)]
        memory = bytes_alike(*(pair for pair in pairs if pair[0] != pair[1]), also=chain(*pairs))
        for what, *both in sizes:
            table.add_row(what, *_bytes_row(memory, *both))
        times = [total["runtime_us"] for total in self.totals]
        table.add_row("sum of runtimes", *map(times_alike(times), times), "")
        for rows in (shares, changes):
            table.add_section()
            for what, *both in rows:
                table.add_row(what if rows is shares else escape(what), *_bytes_row(memory, *both))
        return table

    def _shares(self) -> list[_BytesRow]:
        a, b = self.totals
        rows: list[_BytesRow] = [("[bold]peak in program order[/]", int(a["input_peak"]), int(b["input_peak"]))]
        for words, shares in (("  ", self.roles), ("peak of the ", self.phases)):
            before, after = shares
            rows += [(f"{words}{key}", before.get(key, 0), after.get(key, 0)) for key in {**before, **after}]
        return rows

    def _changes(self, top: int) -> list[_BytesRow]:
        """Return the `top` largest changes of tensors, and the sums of the others."""
        rows: list[_BytesRow] = []
        for change in self.changes[:top]:
            source = f" [{change.source}]" if change.source else ""
            rows.append((f"{change.name}{source}", change.before, change.after))
        if rest := self.changes[top:]:
            before, after = (sum(filter(None, (getattr(c, side) for c in rest))) for side in ("before", "after"))
            rows.append((f"{len(rest):,} more", before, after))
        return rows

    def document(self) -> dict[str, Any]:
        """Return everything as plain Python values, bytes as whole numbers."""
        graphs = [
            {"graph": name, **totals, "roles_at_peak": roles, "peak_of_phase": phases}
            for name, totals, roles, phases in zip(self.names, self.totals, self.roles, self.phases, strict=True)
        ]
        changes = [{**asdict(change), "change": change.change} for change in self.changes]
        return {"graphs": graphs, "added": list(self.added), "removed": list(self.removed), "changes": changes}


def graph_difference(names: tuple[str, str], first: CostGraph, second: CostGraph) -> GraphDifference:
    """Compare two graphs, and the peaks of their program orders on one device."""
    totals, roles, phases = zip(*(_measured(graph) for graph in (first, second)), strict=True)
    by_module = bool(first.annotations.modules and second.annotations.modules)
    are_named = bool(first.annotations.residents and second.annotations.residents)
    before, after = (_ops(graph, by_module) for graph in (first, second))
    changes = [*_changes(_tensors(first, before), _tensors(second, after))]
    changes += _changes(_residents(first, before, are_named), _residents(second, after, are_named))
    return GraphDifference(
        names=names,
        totals=totals,
        roles=roles,
        phases=phases,
        added=tuple(second.op_names[op] for key, op in after.items() if key not in before),
        removed=tuple(first.op_names[op] for key, op in before.items() if key not in after),
        changes=tuple(sorted(changes, key=lambda change: -abs(change.change))),
    )


def _measured(graph: CostGraph) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
    """Return the totals of a graph, and its program order's peak by role and by phase."""
    problem, schedule = Problem(graph), Schedule.single_device(graph.input_order)
    shares = memory_shares(problem, schedule)
    names = {} if graph.annotations.residents else {UNNAMED: "persistent bytes"}
    roles = {names.get(role, role): size for role, size in shares.roles.items()}
    return totals_of(graph), roles, {peak.phase: peak.memory for peak in shares.phases}


def _ops(graph: CostGraph, by_module: bool) -> dict[Hashable, int]:
    """Return each op by its identity in another graph."""
    if not by_module:
        return {name: op for op, name in enumerate(graph.op_names)}
    found: dict[Hashable, int] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for op in graph.input_order.tolist():
        kind = (graph.annotations.modules[op], _NUMBER.sub("", graph.op_names[op]))
        found[(*kind, seen[kind])] = op
        seen[kind] += 1
    return found


def _tensors(graph: CostGraph, ops: dict[Hashable, int]) -> dict[Hashable, _Sized]:
    """Return each tensor by its op and port; views take no bytes."""
    is_made = (graph.alias_of < 0) & ~graph.is_control & (graph.tensor_size > 0)
    return {
        (key, port): (graph.tensor_name(tensor), graph.annotations.source_of(op), int(graph.tensor_size[tensor]))
        for key, op in ops.items()
        for port, tensor in enumerate(graph.outputs(op))
        if is_made[tensor]
    }


def _residents(graph: CostGraph, ops: dict[Hashable, int], are_named: bool) -> dict[Hashable, _Sized]:
    """Return residents by name; by op, where some graph does not name them."""
    if are_named:
        sizes = {f"{held.role} {held.name}": held.size for held in graph.annotations.residents if held.op >= 0}
    else:
        held = (op for op in ops.values() if graph.persistent[op])
        sizes = {f"persistent bytes of {graph.op_names[op]}": int(graph.persistent[op]) for op in held}
    return {name: (name, "", size) for name, size in sizes.items()}


def _changes(old: dict[Hashable, _Sized], new: dict[Hashable, _Sized]) -> Iterator[Change]:
    """Yield the tensors of changed bytes."""
    for key in dict.fromkeys((*old, *new)):
        name, source, _ = new.get(key) or old[key]
        before, after = (sized[key][2] if key in sized else None for sized in (old, new))
        if before != after:
            yield Change(name, source, before, after)


def _bytes_row(memory: Written, before: int | None, after: int | None) -> tuple[str, str, str]:
    """Return the cells of bytes before and after, and the change."""
    texts = ["" if value is None else memory(value) for value in (before, after)]
    change = (after or 0) - (before or 0)
    return texts[0], texts[1], f"{'+' if change > 0 else '-'}{memory(abs(change))}" if change else ""
